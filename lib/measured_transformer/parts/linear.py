"""The linear map of every projection, by the kernel that is fast where it runs.

A linear map of many vectors is a convolution whose filter is one vector wide. On processors with AVX-512,
PyTorch's float32 convolution (oneDNN) can be twice as fast as its matrix product, forward and backward: run
`python -m benchmarks linear`. Both sum the same products, in another order.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

# Below these sizes a convolution's preparations cost more than its kernel saves.
_LEAST_ROWS, _LEAST_WIDTH = 512, 32
_LEAST_PRODUCTS, _LEAST_PRODUCTS_WITH_GRADIENTS = 2**23, 2**25
_GEOMETRY = (
    [1, 1],
    [0, 0],
    [1, 1],
    False,
    [0, 0],
    1,
)  # stride, padding, ... of a filter one vector wide
_IMAGES = 16  # with one thread, PyTorch hands oneDNN batches of at least 16


def linear(
    x: Float[Tensor, "*batch d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, "d_out"] | None = None,
) -> Float[Tensor, "*batch d_out"]:
    r"""The map $x W^\top + b$, as `torch.nn.functional.linear` has it.

    Args:
        x: vectors.
        weight: one row for each number that comes out.
        bias: added to each result.

    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([5.0]))
    tensor([[16.]])
    """
    gradients = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    least = _LEAST_PRODUCTS_WITH_GRADIENTS if gradients else _LEAST_PRODUCTS
    if not _convolution_is_faster(x, weight, least):
        return F.linear(x, weight, bias)
    if gradients:
        return _Convolution.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return _convolved(x, weight, bias)


class Linear(nn.Linear):
    """`torch.nn.Linear` with the function above: the same weights, names and results."""

    def forward(self, input: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """The map of each vector."""
        return linear(input, self.weight, self.bias)


def _convolution_is_faster(x: Tensor, weight: Tensor, least_products: int) -> bool:
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or x.device.type != "cpu":
        return False
    rows = x.numel() // max(1, x.shape[-1])
    return (
        rows * weight.numel() >= least_products
        and rows >= _LEAST_ROWS
        and rows % _IMAGES == 0
        and min(weight.shape) >= _LEAST_WIDTH
        and x.is_contiguous()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
    )


class _Convolution(torch.autograd.Function):
    """The map by convolution. Its gradients come one after the other, weights first, to save memory."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _convolved(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)
        ctx.bias_sizes = None if bias is None else [len(weight)]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (given,) = gradients
        x, weight = ctx.saved_tensors
        to_x, *to_weights = ctx.needs_input_grad
        of_x = of_weight = of_bias = None
        if any(to_weights):
            _, of_weight, of_bias = torch.ops.aten.convolution_backward(
                _images(given),
                _images(x),
                weight[:, :, None, None],
                ctx.bias_sizes,
                *_GEOMETRY,
                [False, *to_weights],
            )
            of_weight = None if of_weight is None else of_weight[:, :, 0, 0]
        del x
        ctx.maybe_clear_saved_tensors()  # x may be large, and is not needed for what follows
        if to_x:
            of_x = _convolved(given, weight.T, None)
        return of_x, of_weight, of_bias

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = tangents
        total = x.new_zeros(()) if of_x is None else F.linear(of_x, weight)
        if of_weight is not None:
            total = total + F.linear(x, of_weight)
        return total if of_bias is None else total + of_bias


def _images(x: Tensor) -> Tensor:
    """Vectors as the pixels of a few images, one wide; the channels stay where they lie in memory."""
    return x.reshape(_IMAGES, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = F.conv2d(_images(x), weight[:, :, None, None], bias)
    return y.permute(0, 2, 3, 1).reshape(*x.shape[:-1], len(weight))
