"""BERT's layers between the final state and its answers (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.parts.feedforward import Activation, activation_function
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.parts.part import Part
from measured_transformer.parts.tap import Tap

PoolerActivation = Literal["tanh", "relu", "gelu"]
"""The function of a `Pooler`."""
_POOLED: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": F.relu,
    "gelu": F.gelu,
}


class MaskedTokenLayer(Part):
    """One more layer before the unembedding: project, activate, normalise."""

    def __init__(
        self,
        d_model: int,
        *,
        activation: Activation = "gelu",
        eps: float = 1e-12,
        bias: bool = True,
    ) -> None:
        """Make the layer, with or without biases. Raises ValueError when the activation is unknown."""
        super().__init__()
        self.activate = activation_function(activation)
        self.dense = Linear(d_model, d_model, bias=bias)
        self.norm = LayerNorm(d_model, eps=eps, bias=bias)

    def forward(
        self, x: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch position d_model"]:
        """What the unembedding reads."""
        return self.norm(self.activate(self.dense(x)))


class Pooler(Part):
    """One vector for a sequence: a projection of its first position, through a tanh or another function.

    Tap: `out` (batch d_model).
    """

    def __init__(self, d_model: int, *, activation: PoolerActivation = "tanh") -> None:
        """Make the projection. Raises ValueError when the activation is none of a pooler's."""
        super().__init__()
        if activation not in _POOLED:
            raise ValueError(
                f"activation must be one of {', '.join(get_args(PoolerActivation))}; got {activation!r}"
            )
        self.activate = _POOLED[activation]
        self.dense = Linear(d_model, d_model)
        self.out = Tap()

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Float[Tensor, "batch d_model"]:
        """The vector of each sequence of the batch, from the states of its positions."""
        return self.out(self.activate(self.dense(x[:, 0])))
