r"""QK-clip: queries and keys that shrink whenever a head's scores have grown past a threshold.

After each step, a head whose largest score $S$ of the step's batch exceeds the threshold $\tau$ has the rows of
its query and its key weights multiplied by $\sqrt{\tau / S}$: the same scores would then be at most $\tau$.
Scores in use are left alone, unlike with a cap, and so is a head below the threshold.

Source: Kimi Team (2025), "Kimi K2: Open Agentic Intelligence", section 2.1, where the optimiser is Muon and the
threshold 100.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model, Step


class LargestScores(Tap):
    """Stands in the place of an attention's tap `scores`, and keeps the largest one of each head in training.

    Scores of keys behind their query, which a causal mask hides, do not count.

    Attributes:
        largest: buffer (head), of the last call in training mode.
    """

    largest: Tensor

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("largest", torch.full((n_heads,), -math.inf))

    @property
    def watched(self) -> bool:
        """Always: the scores must be computed to be looked at."""
        return True

    def __call__(
        self, value: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        """Look at scores, and pass them on."""
        if self.training:
            self.largest.copy_(largest_scores(value.detach()))
        seen: Tensor = super().__call__(value)
        return seen


def largest_scores(scores: Float[Tensor, "batch head query key"]) -> Float[Tensor, "head"]:
    """The largest score of each head among keys that are not behind their query.

    >>> largest_scores(torch.tensor([[[[1.0, 9.0], [2.0, 3.0]]]]))
    tensor([3.])
    """
    n, m = scores.shape[-2:]
    ahead = torch.ones(n, m, dtype=torch.bool, device=scores.device).triu(m - n + 1)
    return scores.masked_fill(ahead, -math.inf).amax((0, 2, 3))


def watch_scores(model: Model) -> None:
    """Preparation for training: every attention sublayer keeps its heads' largest scores, for `ScoreClip`.

    Raises:
        ValueError: when queries and keys are normalised, so that their weights' size has no effect, when heads
            share keys, or when the projections have biases.
    """
    for module in list(model.modules()):
        if not isinstance(module, MultiHeadAttention):
            continue
        biased = module.query.bias is not None or module.key.bias is not None
        if module.qk_norm != "none" or module.n_kv_heads != module.n_heads or biased:
            raise ValueError(
                "expected heads with keys of their own, without norms and biases, got "
                f"qk_norm={module.qk_norm!r}, {module.n_kv_heads} key-value heads for {module.n_heads}, "
                f"and {'biases' if biased else 'no biases'}"
            )
        module.scores = LargestScores(module.n_heads).to(module.query.weight)


@dataclass(frozen=True)
class ScoreClip:
    """Hook after each step: shrinks queries and keys of heads whose scores exceeded a threshold in the step.

    The training needs `watch_scores` as its preparation.

    Attributes:
        threshold: above which a head is shrunk, positive.

    Raises:
        ValueError: when the threshold is not positive.
    """

    threshold: float

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise ValueError(f"the threshold must be positive, got {self.threshold}")

    @torch.no_grad()
    def __call__(self, step: Step) -> None:
        """Shrink the weights, in place.

        Raises:
            ValueError: when the model does not keep its largest scores.
        """
        layers = [m for m in step.model.modules() if isinstance(m, MultiHeadAttention)]
        for layer in layers:
            if not isinstance(layer.scores, LargestScores):
                raise ValueError(
                    "expected a model that keeps its largest scores: train with prepare=watch_scores"
                )
            over = (layer.scores.largest / self.threshold).clamp_min(1.0)
            factor = over.rsqrt().repeat_interleave(layer.d_head)[:, None]
            layer.query.weight.mul_(factor)
            layer.key.weight.mul_(factor)
