"""Attention whose weights are the difference of two softmaxes (Ye et al. 2025)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.tap import Tap


def differential_weights(
    scores: Float[Tensor, "*batch 2 query key"], balance: Float[Tensor, ""] | float
) -> Float[Tensor, "*batch query key"]:
    """The softmax of the first scores, minus `balance` times that of the second.

    A row sums to 1 - balance, and its entries may be negative.

    >>> differential_weights(torch.zeros(2, 1, 4), 0.5)
    tensor([[0.1250, 0.1250, 0.1250, 0.1250]])
    """
    first, second = scores.softmax(-1).unbind(-3)
    return first - balance * second


class DifferentialAttention(nn.Module):
    """One head of differential attention: two maps of queries and keys, one of values.

    As in Ye et al. (2025), but for two things: the factor of the second softmax is a weight of its own, which
    begins at `balance`, and no norm follows, so that what comes out stays a weighted sum of values. It has as
    many weights as a `MultiHeadAttention` of the same width without biases, and one more.
    """

    def __init__(self, d_model: int, *, balance: float = 0.5) -> None:
        """Draw fresh weights.

        Raises:
            ValueError: when `d_model` is odd.
        """
        super().__init__()
        if d_model % 2:
            raise ValueError(f"expected an even width for two maps of half of it, got {d_model}")
        self.query, self.key = (Linear(d_model, d_model, bias=False) for _ in range(2))
        self.value, self.output = (Linear(d_model, d_model, bias=False) for _ in range(2))
        self.balance = nn.Parameter(torch.tensor(balance))
        self.pattern = Tap()

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        memory: Float[Tensor, "batch key d_model"],
        *,
        padding_mask: Bool[Tensor, "batch key"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """What queries from `x` read in `memory`, where `padding_mask` is true."""
        queries, keys = (
            part.unflatten(-1, (2, -1)).transpose(-3, -2)
            for part in (self.query(x), self.key(memory))
        )
        scores = queries @ keys.transpose(-2, -1) / queries.shape[-1] ** 0.5
        if padding_mask is not None:
            scores = scores.masked_fill(~padding_mask[:, None, None], -torch.inf)
        pattern = self.pattern(differential_weights(scores, self.balance))
        mixed: Tensor = self.output(pattern @ self.value(memory))
        return mixed
