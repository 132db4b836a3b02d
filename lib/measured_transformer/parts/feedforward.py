r"""The position-wise feed-forward network: every position goes through the same two-layer network.

ReLU: $\max(0, x W_1 + b_1) W_2 + b_2$ (Vaswani et al. 2017, equation 2). GELU: the same with
$x \Phi(x)$ (Hendrycks and Gimpel 2016). SwiGLU: $(\text{SiLU}(x W_g) \odot x W_1) W_2$ (Shazeer 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.parts.tap import Tap

Activation = Literal["relu", "gelu", "gelu_tanh", "swiglu"]

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """Widen, bend, narrow: the same for every position.

    Taps: `pre_activation` (batch position d_ff; with SwiGLU the gate before its activation), `neurons`
    (batch position d_ff; with SwiGLU after the product with the gate) and `out` (batch position d_model).
    """

    def __init__(
        self, d_model: int, d_ff: int, *, activation: Activation = "relu", bias: bool = True
    ) -> None:
        """Make the two projections, and a third for the gate when the activation has one.

        Args:
            d_model: width of the stream.
            d_ff: number of neurons.
            activation: 'relu', 'gelu' (exact), 'gelu_tanh' (the tanh approximation) or 'swiglu'.
            bias: whether the projections have biases.

        Raises:
            ValueError: when the activation is another one or a width is not positive.
        """
        super().__init__()
        if activation not in _FUNCTIONS:
            raise ValueError(f"activation must be one of {sorted(_FUNCTIONS)}, got {activation!r}")
        if d_model < 1 or d_ff < 1:
            raise ValueError(f"widths must be positive, got d_model={d_model} and d_ff={d_ff}")
        self.activation = activation
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if activation == "swiglu" else None
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        self.pre_activation, self.neurons, self.out = Tap(), Tap(), Tap()

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """What the network adds to the stream: (batch, position, d_model).

        Raises:
            ValueError: when the width is another than `d_model`.
        """
        if x.shape[-1] != self.up.in_features:
            raise ValueError(
                f"x must have width d_model={self.up.in_features}, got shape {tuple(x.shape)}"
            )
        bend = _FUNCTIONS[self.activation]
        if self.gate is None:
            neurons = bend(self.pre_activation(self.up(x)))
        else:
            neurons = bend(self.pre_activation(self.gate(x))) * self.up(x)
        return self.out(self.down(self.neurons(neurons)))
