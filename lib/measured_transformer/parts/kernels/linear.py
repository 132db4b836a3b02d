"""The linear map of every projection: PyTorch's matrix product, or on request its convolution.

A linear map of many vectors is a convolution whose filter is one vector wide. On some processors with AVX-512
(AMD's, as measured), PyTorch's float32 convolution (oneDNN) is faster than its matrix product, forward and
backward; on others (Intel's) it is slower: the repository's `python -m benchmarks linear` measures by how much.
Both sum the same products in another order, so the last digits of a result depend on which of them computes.
That is why only the user chooses the convolution, by `linear_kernel`: nothing that is measured depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.parts.part import Part

Kernel = Literal["product", "convolution"]
_chosen: Kernel | None = None

# Below these sizes a convolution's preparations cost more than its kernel saves.
_LEAST_ROWS, _LEAST_WIDTH, _LEAST_PRODUCTS = 512, 32, 2**23
_LARGE_WEIGHT = 2**16  # from here on memory counts more than what a function in Python costs
_IMAGES = 16  # with one thread, PyTorch hands oneDNN batches of at least 16
_GEOMETRY = (
    [1, 1],  # stride
    [0, 0],  # padding
    [1, 1],  # dilation
    False,  # not transposed
    [0, 0],  # padding of the output
    1,  # groups
)


def chosen_kernel() -> Kernel | None:
    """The kernel that `linear_kernel` chose; None where nobody chose one."""
    return _chosen


@contextmanager
def linear_kernel(kernel: Kernel) -> Iterator[None]:
    """Compute the linear maps inside the block with a kernel, in all threads of this process.

    Args:
        kernel: 'product', PyTorch's matrix product on every processor. It is the default of `linear`; chosen by
            name, it also keeps decoding from laying out weights for oneDNN, as it does on AVX-512 by default.
            Or 'convolution', which falls back to the product where it cannot run or would be slower.

    Raises:
        ValueError: another word.

    >>> with linear_kernel("convolution"):
    ...     chosen_kernel()
    'convolution'
    """
    global _chosen
    if kernel not in ("product", "convolution"):
        raise ValueError(f"expected the kernel 'product' or 'convolution', got {kernel!r}")
    before, _chosen = _chosen, kernel
    try:
        yield
    finally:
        _chosen = before


def linear(
    x: Float[Tensor, "*batch d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, "d_out"] | None = None,
) -> Float[Tensor, "*batch d_out"]:
    r"""The map $x W^\top + b$, equal to `torch.nn.functional.linear` up to rounding.

    By that function itself, unless the caller chose the convolution (`linear_kernel`). The convolution computes
    float32 on a CPU with AVX-512, from 512 vectors, widths of 32 and $2^{23}$ products on, and with one thread
    only when the number of vectors is a multiple of 16.

    Args:
        x: vectors.
        weight: one row for each number that comes out.
        bias: added to each result.

    Raises:
        RuntimeError: PyTorch's own, when the shapes do not fit.

    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([5.0]))
    tensor([[16.]])
    """
    if _chosen != "convolution" or not _convolution_fits(x, weight, bias):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and weight.numel() >= _LARGE_WEIGHT:
        return _Convolution.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return _convolved(x, weight, bias)


class Linear(Part, nn.Linear):
    """`torch.nn.Linear` with the function above: the same weights and names, results equal up to rounding.

    Attributes:
        wide: whether weights in float16 are multiplied, and the products summed, in float32, which is then the
            precision of the result: for models whose stream overflows in float16 (T5).
    """

    wide: bool = False

    def forward(self, input: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """The map of each vector."""
        if self.wide and self.weight.dtype == torch.float16:
            bias = None if self.bias is None else self.bias.float()
            return linear(input.float(), self.weight.float(), bias)
        if _chosen is None:
            return F.linear(input, self.weight, self.bias)
        return linear(input, self.weight, self.bias)


def _convolution_fits(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    rows = x.numel() // max(1, x.shape[-1]) if x.ndim else 0
    return (
        rows >= _LEAST_ROWS
        and rows * weight.numel() >= _LEAST_PRODUCTS
        and _is_plain(x)
        and _is_plain(weight)
        and weight.ndim == 2
        and weight.shape[1] == x.shape[-1]
        and min(weight.shape) >= _LEAST_WIDTH
        and (bias is None or (_is_plain(bias) and bias.shape == weight.shape[:1]))
        and x.is_contiguous()
        and (rows % _IMAGES == 0 or torch.get_num_threads() > 1)
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkldnn.is_available()
        and torch._C._get_mkldnn_enabled()
    )


def _is_plain(x: Tensor) -> bool:
    return (
        type(x) in (Tensor, nn.Parameter)
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and x.layout == torch.strided
    )


class _Convolution(torch.autograd.Function):
    """The map by convolution. Its gradients come one after the other, to save memory.

    PyTorch's own has the gradient of the vectors and several copies of that of the weights at once.
    """

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
    rows = x.numel() // x.shape[-1]
    images = _IMAGES if rows % _IMAGES == 0 else 1
    return x.reshape(images, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = F.conv2d(_images(x), weight[:, :, None, None], bias).permute(0, 2, 3, 1).contiguous()
    # A tensor of its own and no view, so that it may be changed in place like any other result.
    return torch.ops.aten._unsafe_view(y, [*x.shape[:-1], len(weight)])
