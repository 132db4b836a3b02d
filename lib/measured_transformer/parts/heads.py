"""BERT's layers between the final state and its answers (Devlin et al. 2019)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.parts.feedforward import Activation, activation_function
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.parts.tap import Tap


class MaskedTokenLayer(nn.Module):
    """One more layer before the unembedding: project, activate, normalise."""

    def __init__(
        self, d_model: int, *, activation: Activation = "gelu", eps: float = 1e-12
    ) -> None:
        """Make the layer. Raises ValueError when the activation is unknown."""
        super().__init__()
        self.activate = activation_function(activation)
        self.dense = Linear(d_model, d_model)
        self.norm = LayerNorm(d_model, eps=eps)

    def forward(
        self, x: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch position d_model"]:
        """What the unembedding reads."""
        return self.norm(self.activate(self.dense(x)))


class Pooler(nn.Module):
    """One vector for a sequence: a projection of its first position, through a tanh.

    Tap: `out` (batch d_model).
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.dense = Linear(d_model, d_model)
        self.out = Tap()

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Float[Tensor, "batch d_model"]:
        """The vector of each sequence of the batch, from the states of its positions."""
        return self.out(self.dense(x[:, 0]).tanh())
