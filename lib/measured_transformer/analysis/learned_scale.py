"""Models whose scores start or move otherwise: a scale that is learned, queries and keys of another size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.training.loop import Model


class LearnedScale(nn.Module):
    """A projection whose result is multiplied by one learned number, at first 1.

    The number is kept as a logarithm, so that it stays positive, and the logarithm moves ten times as far as
    another weight would: Adam's steps are as long for every weight, and this one has far to go.
    """

    stride = 10.0

    def __init__(self, projection: nn.Module) -> None:
        """Wrap a projection."""
        super().__init__()
        self.projection = projection
        self.log_scale = nn.Parameter(torch.zeros(()))

    @property
    def factor(self) -> Tensor:
        """The learned number."""
        return (self.stride * self.log_scale).exp()

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Project, then multiply."""
        scaled: Tensor = self.factor * self.projection(x)
        return scaled


def learn_scale(model: Model) -> None:
    """Let every attention sublayer learn its scale, in place, starting from the config's.

    Made to be given to `train` as its `prepare`. The queries carry the learned number, so that scores do.
    """
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            module.query = LearnedScale(module.query)  # type: ignore[assignment]


@dataclass(frozen=True)
class RescaledScores:
    """Fresh scores times a factor, its root in the queries' and its root in the keys' weights.

    The model starts as if its scale were multiplied by the factor, but its weights move as before: how scores
    *start* comes apart from how far they *move* in a step. Made to be given to `train` as its `prepare`.

    Attributes:
        factor: on the scores, positive.

    Raises:
        ValueError: when the factor is not positive.
    """

    factor: float

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise ValueError(f"the factor on scores must be positive, got {self.factor}")

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Multiply the weights, in place."""
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                for parameter in (*module.query.parameters(), *module.key.parameters()):
                    parameter.mul_(math.sqrt(self.factor))
