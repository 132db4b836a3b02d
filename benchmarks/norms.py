"""LayerNorm beside RMSNorm: PyTorch's own functions, as the library calls them, and both written out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from torch import Tensor

from benchmarks.measure import Workload

LAYER = "LayerNorm"
RMS = "RMSNorm"
WRITTEN_OUT = ", written out"


def norms(width: int, *, tokens: int, gradients: bool, device: str = "cpu") -> dict[str, Workload]:
    """The work of both norms on `tokens` vectors, forward or forward and backward, in float32.

    Written out means one operation of PyTorch for each step of the formula.
    """
    torch.manual_seed(0)
    x = torch.randn(tokens, width, device=device)
    layer, rms = LayerNorm(width).to(device), RMSNorm(width).to(device)
    assert layer.bias is not None
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias, rms.weight):
            parameter.add_(0.1 * torch.randn_like(parameter))
    of_layer, of_rms = [layer.weight, layer.bias], [rms.weight]

    def layer_by_steps(at: Tensor) -> Tensor:
        centred = at - at.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + layer.eps).sqrt()
        return centred / scale * layer.weight + layer.bias

    def rms_by_steps(at: Tensor) -> Tensor:
        scale = (at.square().mean(-1, keepdim=True) + rms.eps).sqrt()
        return at / scale * rms.weight

    contenders: dict[str, tuple[Callable[[Tensor], Tensor], list[Tensor]]] = {
        LAYER: (layer, of_layer),
        RMS: (rms, of_rms),
        f"{LAYER}{WRITTEN_OUT}": (layer_by_steps, of_layer),
        f"{RMS}{WRITTEN_OUT}": (rms_by_steps, of_rms),
    }
    make = _both_ways if gradients else _forward
    return {name: make(norm, x, weights) for name, (norm, weights) in contenders.items()}


def _forward(norm: Callable[[Tensor], Tensor], x: Tensor, weights: list[Tensor]) -> Workload:
    def work() -> Tensor:
        with torch.inference_mode():
            return norm(x)

    return work


def _both_ways(norm: Callable[[Tensor], Tensor], x: Tensor, weights: list[Tensor]) -> Workload:
    leaf = x.clone().requires_grad_()
    given = torch.randn_like(x)

    def work() -> tuple[Tensor, ...]:
        return torch.autograd.grad(norm(leaf), [leaf, *weights], given)

    return work
