r"""The position-wise feed-forward network: every position goes through the same two-layer network.

ReLU: $\max(0, x W_1 + b_1) W_2 + b_2$ (Vaswani et al. 2017, equation 2). GELU: the same with
$x \Phi(x)$ (Hendrycks and Gimpel 2016). SwiGLU: $(\text{SiLU}(x W_g) \odot x W_1) W_2$, and alike with other
functions on the gate (Shazeer 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.part import Part
from measured_transformer.parts.tap import Tap

Activation = Literal[
    "relu",
    "gelu",
    "gelu_tanh",
    "gelu_sigmoid",
    "silu",
    "reglu",
    "geglu",
    "geglu_tanh",
    "swiglu",
]
"""Names of activations; the last four stand on a gate."""

_gelu_tanh = partial(F.gelu, approximate="tanh")


def _gelu_sigmoid(x: Tensor) -> Tensor:
    return x * (1.702 * x).sigmoid()


# name: (function, whether it stands on a gate)
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "relu": (F.relu, False),
    "gelu": (F.gelu, False),
    "gelu_tanh": (_gelu_tanh, False),
    "gelu_sigmoid": (_gelu_sigmoid, False),
    "silu": (F.silu, False),
    "reglu": (F.relu, True),
    "geglu": (F.gelu, True),
    "geglu_tanh": (_gelu_tanh, True),
    "swiglu": (F.silu, True),
}


class FeedForward(Part):
    """Widen, activate, narrow: the same for every position.

    Taps: `pre_activation` (batch position d_ff; of gated forms the gate before its activation), `neurons`
    (batch position d_ff; of gated forms after the product with the gate) and `out` (batch position d_model).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Activation = "relu",
        bias: bool = True,
        wide: bool = False,
    ) -> None:
        """Make the two projections, and a third for the gate when the activation has one.

        Args:
            d_model: width of the stream.
            d_ff: number of neurons.
            activation: 'relu', 'gelu' (exact), its approximations 'gelu_tanh' and 'gelu_sigmoid', 'silu', or
                a gated form: 'reglu', 'geglu', 'geglu_tanh', 'swiglu'.
            bias: whether the projections have biases.
            wide: whether what the network writes is float32 where its weights are float16.

        Raises:
            ValueError: when the activation is another one or a width is not positive.
        """
        super().__init__()
        self.activate = activation_function(activation)
        if d_model < 1 or d_ff < 1:
            raise ValueError(f"widths must be positive, got d_model={d_model} and d_ff={d_ff}")
        self.activation = activation
        self.up = Linear(d_model, d_ff, bias=bias)
        self.gate = Linear(d_model, d_ff, bias=bias) if is_gated(activation) else None
        self.down = Linear(d_ff, d_model, bias=bias)
        self.down.wide = wide
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
        if self.gate is None:
            neurons = self.activate(self.pre_activation(self.up(x)))
        else:
            neurons = self.activate(self.pre_activation(self.gate(x))) * self.up(x)
        return self.out(self.down(self.neurons(neurons)))


def activation_function(name: Activation) -> Callable[[Tensor], Tensor]:
    """The function itself, of gated forms the one that stands on the gate.

    Raises:
        ValueError: when the name is another one.
    """
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(_ACTIVATIONS)}, got {name!r}")
    return _ACTIVATIONS[name][0]


def activation_names() -> list[str]:
    """The names of all activations."""
    return list(_ACTIVATIONS)


def is_gated(name: Activation) -> bool:
    """Return whether this activation stands on a gate, so that the network has three projections."""
    return _ACTIVATIONS[name][1]
