r"""What can stand in the place of the softmax between scores and weights.

Each function takes scores with the keys on the last axis, minus infinity where a key is forbidden, and gives
weights of the same shape:

- `softmax_plus_one`: a one in the denominator, so that a row may sum to less than one;
- `sigmoid_weights`: each key for itself, so that a row may sum to anything;
- `sparsemax`, `entmax15`: rows that sum to one, in which small scores get a weight of exactly zero.

The last two are members of one family. $\alpha$-entmax gives the weights $p$ that maximise $p \cdot s + H(p)$
with Tsallis's entropy $H(p) = \frac{1}{\alpha (\alpha - 1)} \sum_j (p_j - p_j^\alpha)$: softmax at
$\alpha = 1$, sparsemax at 2. The solution is $p_j = [(\alpha - 1) s_j - \tau]_+^{1/(\alpha - 1)}$ with the
threshold $\tau$ at which a row sums to one.

Sources: Miller (2023), "Attention is off by one"; Ramapuram et al. (2025), "Theory, analysis, and best
practices for sigmoid self-attention"; Martins and Astudillo (2016), "From softmax to sparsemax"; Peters et al.
(2019), "Sparse sequence-to-sequence models", whose algorithm 2 is that of `entmax15`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_scores,
    causal_mask,
)
from measured_transformer.parts.block import Block
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model

# From scores to weights ---------------------------------------------------------------------------


def softmax_plus_one(scores: Float[Tensor, "*row key"]) -> Float[Tensor, "*row key"]:
    r"""Weights $e^{s_j} / (1 + \sum_k e^{s_k})$: a softmax with one more score, zero, whose weight is lost.

    >>> softmax_plus_one(torch.zeros(3))
    tensor([0.2500, 0.2500, 0.2500])
    """
    total = scores.logsumexp(-1, keepdim=True)
    return (scores - torch.logaddexp(total, torch.zeros_like(total))).exp()


def sigmoid_weights(scores: Float[Tensor, "*row key"]) -> Float[Tensor, "*row key"]:
    r"""Weights $\sigma(s_j - \ln n)$ among n allowed keys: a row of zeros sums to nearly one.

    >>> sigmoid_weights(torch.zeros(3))
    tensor([0.2500, 0.2500, 0.2500])
    """
    allowed = (scores > -math.inf).sum(-1, keepdim=True)
    return (scores - allowed.to(scores.dtype).log()).sigmoid()


def sparsemax(scores: Float[Tensor, "*row key"]) -> Float[Tensor, "*row key"]:
    r"""Weights $[s_j - \tau]_+$ that sum to one: the point of the simplex that is nearest to the scores.

    >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    above = _below_largest(scores)
    ordered = above.detach().sort(-1, descending=True).values
    count = torch.arange(1, ordered.shape[-1] + 1, device=ordered.device)
    thresholds = (ordered.cumsum(-1) - 1) / count
    start = (above - _last_below(thresholds, ordered)).relu()
    # One step of Newton's method: it mends rounding, and the gradient of the threshold passes through it.
    kept = start > 0
    excess = (start.sum(-1, keepdim=True) - 1) / kept.sum(-1, keepdim=True)
    return torch.where(kept, start - excess, 0.0).relu()


def entmax15(scores: Float[Tensor, "*row key"]) -> Float[Tensor, "*row key"]:
    r"""Weights $[s_j / 2 - \tau]_+^2$ that sum to one: 1.5-entmax, half way between softmax and sparsemax.

    >>> entmax15(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.6740, 0.3260, 0.0000])
    """
    above = _below_largest(scores / 2)
    ordered = above.detach().sort(-1, descending=True).values
    count = torch.arange(1, ordered.shape[-1] + 1, device=ordered.device)
    mean = ordered.cumsum(-1) / count
    spread = ordered.square().cumsum(-1) - count * mean.square()
    thresholds = mean - ((1 - spread) / count).clamp(min=0).sqrt()
    start = (above - _last_below(thresholds, ordered)).relu()
    # As in `sparsemax`.
    slope = 2 * start.detach().sum(-1, keepdim=True)
    excess = (start.square().sum(-1, keepdim=True) - 1) / slope
    return torch.where(start > 0, start - excess, 0.0).relu().square()


def _below_largest(scores: Tensor) -> Tensor:
    """How far each score lies below the largest, at most 1: from there on no key has any weight."""
    return (scores - scores.detach().amax(-1, keepdim=True)).clamp(min=-1)


def _last_below(thresholds: Tensor, ordered: Tensor) -> Tensor:
    """The threshold of the longest run of largest scores all of which lie above it."""
    kept = (thresholds <= ordered).sum(-1, keepdim=True)
    return thresholds.gather(-1, kept - 1)


# A layer that uses them ---------------------------------------------------------------------------

WEIGHTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "softmax plus one": softmax_plus_one,
    "sigmoid": sigmoid_weights,
    "entmax": entmax15,
    "sparsemax": sparsemax,
}
"""What takes the place of the softmax, by name."""


class WeighedAttention(nn.Module):
    """Attention with another function from scores to weights, and the same projections.

    Taps: `scores` (batch head query key, before masking), `pattern` (the weights) and `out`
    (batch query d_model).
    """

    def __init__(self, old: MultiHeadAttention, weigh: Callable[[Tensor], Tensor]) -> None:
        """Take over the projections and the scale of an attention sublayer.

        Raises:
            ValueError: when it has fewer key-value heads than query heads.
        """
        super().__init__()
        if old.n_kv_heads != old.n_heads:
            raise ValueError(
                f"expected as many key-value heads as heads, got {old.n_kv_heads} and {old.n_heads}"
            )
        self.n_heads, self.scale, self.weigh = old.n_heads, old.scale, weigh
        self.query, self.key, self.value, self.output = old.query, old.key, old.value, old.output
        self.scores, self.pattern, self.out = Tap(), Tap(), Tap()

    def forward(
        self, x: Float[Tensor, "batch query d_model"], *, causal: bool = False, **other: Any
    ) -> Float[Tensor, "batch query d_model"]:
        """What the sublayer writes to the stream.

        Raises:
            ValueError: when anything but the stream is given that attention can take.
        """
        if given := [name for name, value in other.items() if value is not None]:
            raise ValueError(f"expected the stream alone, got {', '.join(given)}")
        queries, keys, values = (
            layer(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = self.scores(attention_scores(queries, keys, scale=self.scale))
        if causal:
            scores = scores.masked_fill(~causal_mask(x.shape[1], device=x.device), -math.inf)
        mixed = attend(self.pattern(self.weigh(scores)), values)
        return self.out(self.output(mixed.transpose(1, 2).flatten(2)))


@dataclass(frozen=True)
class Weighed:
    """Preparation for training: another function than the softmax in all self-attention of a model.

    Attributes:
        kind: which one, a key of `WEIGHTS`.

    Raises:
        ValueError: when there is no such kind.
    """

    kind: str

    def __post_init__(self) -> None:
        if self.kind not in WEIGHTS:
            raise ValueError(f"kind must be one of {', '.join(WEIGHTS)}, got {self.kind!r}")

    def __call__(self, model: Model) -> None:
        """Replace the attention sublayers, in place; their weights stay.

        Raises:
            ValueError: when the model is an encoder-decoder.
        """
        if isinstance(model, EncoderDecoder):
            raise ValueError("expected a Decoder or an Encoder, got an EncoderDecoder")
        for block in model.blocks:
            assert isinstance(block, Block)
            new = WeighedAttention(block.attention, WEIGHTS[self.kind])
            block.attention = new  # type: ignore[assignment]
