"""How an activation bends: its derivative, its largest jump, and how far approximations of GELU are off.

Source of GELU: Hendrycks and Gimpel (2016), "Gaussian Error Linear Units".
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.parts.feedforward import Activation, activation_function


def derivative(
    activation: Activation, x: Float[Tensor, "x"], *, order: int = 1
) -> Float[Tensor, "x"]:
    """The derivative of an activation at each x, by PyTorch's differentiation.

    Args:
        activation: its name; of gated forms the function on the gate.
        x: where.
        order: 1 or 2.

    Raises:
        ValueError: for another order.
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order}")
    with torch.enable_grad():
        at = x.detach().clone().requires_grad_()
        value = activation_function(activation)(at)
        for remaining in range(order, 0, -1):
            (value,) = torch.autograd.grad(value.sum(), at, create_graph=remaining > 1)
    return value.detach()


def gelu_derivative(x: Float[Tensor, "x"], *, second_term: bool = True) -> Float[Tensor, "x"]:
    r"""$\Phi(x) + x \varphi(x)$, from the Gaussian distribution function and its density."""
    below = (1 + torch.erf(x / math.sqrt(2))) / 2
    density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    return below + x * density if second_term else below


def largest_jump(activation: Activation, *, step: float = 1e-6, reach: float = 3.0) -> float:
    """Largest change of the derivative over a step, on a coarse grid and in a fine neighbourhood of zero.

    Outside of that neighbourhood, every 200th of a unit is looked at: for a function that is smooth there, or
    straight, that is enough.
    """
    fine = torch.arange(-50, 50, dtype=torch.float64) * step + step / 2
    coarse = torch.linspace(-reach, reach, round(400 * reach) + 1, dtype=torch.float64)
    at = torch.cat([fine, coarse])
    change = derivative(activation, at + step) - derivative(activation, at)
    return float(change.abs().max())


def lipschitz(activation: Activation, *, of_derivative: bool = False, reach: float = 8.0) -> float:
    """Largest absolute slope between -reach and reach: of the function, or of its derivative.

    ReLU's derivative has none: it jumps. The result is then infinite.
    """
    if of_derivative and activation in ("relu", "reglu"):
        return math.inf
    x = torch.linspace(-reach, reach, 320001, dtype=torch.float64)
    return float(derivative(activation, x, order=2 if of_derivative else 1).abs().max())


@torch.no_grad()
def approximation_error(activation: Activation, x: Float[Tensor, "x"]) -> Float[Tensor, "x"]:
    """What an approximation of GELU gives minus the exact form."""
    return activation_function(activation)(x) - F.gelu(x)
