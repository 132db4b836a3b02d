"""Attention that cannot learn where to look: preparations for training.

They have a file to themselves because rates that were tuned with them stay good as long as it does.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model


@dataclass(frozen=True)
class FrozenScores:
    """Preparation for training: the query and key projections of all attention layers keep their random values.

    Everything else learns, the values and output projections among it. What a head attends to can then only
    change as far as what reaches its queries and keys changes.
    """

    def __call__(self, model: Model) -> None:
        """Take the projections of the model out of training."""
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.query.requires_grad_(False)
                module.key.requires_grad_(False)


@dataclass(frozen=True)
class CutScores:
    """Preparation for training: no gradient passes the attention scores.

    Then nothing learns from where attention went, neither queries and keys nor what they are made of. The
    scores themselves are computed as ever.
    """

    def __call__(self, model: Model) -> None:
        """Let the scores of all attention layers pass as constants, from now on."""
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.scores = _Cut()


class _Cut(Tap):
    """A tap that passes its value on as a constant."""

    @property
    def watched(self) -> bool:
        """Always: the scores must be computed for it to cut them off."""
        return True

    def __call__(self, value: Tensor) -> Tensor:
        return super().__call__(value.detach())
