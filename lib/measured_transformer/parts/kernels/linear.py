"""The linear map of every projection: PyTorch's matrix product, or on request that of oneDNN.

PyTorch multiplies float32 matrices on a CPU by the library that it was built with, mostly MKL, and comes with a
second one, oneDNN. On some processors (AMD's with AVX-512, as measured) oneDNN is about twice as fast, forward
and backward; on others they differ little: the repository's `python -m benchmarks linear` measures by how much.
Both sum the same products in another order, so the last digits of a result depend on which of them computes.
That is why only the user chooses, by `linear_kernel`: nothing that is measured depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from measured_transformer.parts.part import Part

Kernel = Literal["product", "onednn", "fastest"]
"""Names of kernels, see `linear_kernel`."""
_chosen: Kernel | None = None

_LEAST_PRODUCTS = 2**20  # below, the call itself costs more than a kernel saves
_MARGIN = 1.05  # a kernel that wins by less has not won
_TURNS = 4  # of a trial, in which each kernel has one after the other
_trials: dict[tuple[int, ...], bool] = {}


def chosen_kernel() -> Kernel | None:
    """The kernel that `linear_kernel` chose; None where nobody chose one."""
    return _chosen


@contextmanager
def linear_kernel(kernel: Kernel) -> Iterator[None]:
    """Compute the linear maps inside the block with a kernel, in all threads of this process.

    Args:
        kernel: 'product', PyTorch's matrix product, which is also what is used unasked. 'onednn', oneDNN's,
            wherever it can run: float32 on a CPU, from some size on. Or 'fastest': for each size of vectors
            and weights both are tried once on this machine, some milliseconds, and the faster one is kept for
            the rest of the process. `generate` then also tries copies of the weights in oneDNN's own layout
            (`parts.kernels.packed`), which take as much memory as the weights while a text is written.

    Raises:
        ValueError: another word.

    >>> with linear_kernel("fastest"):
    ...     chosen_kernel()
    'fastest'
    """
    global _chosen
    if kernel not in get_args(Kernel):
        raise ValueError(f"expected one of the kernels {get_args(Kernel)}, got {kernel!r}")
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

    By that function itself, unless the caller chose another kernel (`linear_kernel`) that can run.

    Args:
        x: vectors.
        weight: one row for each number that comes out.
        bias: added to each result.

    Raises:
        RuntimeError: PyTorch's own, when the shapes do not fit.

    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([5.0]))
    tensor([[16.]])
    """
    if _chosen in (None, "product") or not _fits(x, weight, bias):
        return F.linear(x, weight, bias)
    if _chosen == "fastest" and not _wins(x, weight, bias):
        return F.linear(x, weight, bias)
    return _by_onednn(x, weight, bias)


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


def _fits(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether oneDNN's product can take the place of PyTorch's."""
    rows = x.numel() // max(1, x.shape[-1]) if x.ndim > 1 else 0
    return (
        rows * weight.numel() >= _LEAST_PRODUCTS
        and is_plain(x)
        and is_plain(weight)
        and weight.ndim == 2
        and weight.shape[1] == x.shape[-1]
        and (bias is None or (is_plain(bias) and bias.shape == weight.shape[:1]))
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        # Within `torch.func` and forward derivatives only PyTorch's own operations are known.
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
        and has_onednn()
    )


def has_onednn() -> bool:
    """Return whether this build of PyTorch has oneDNN's product, and nobody has switched it off."""
    enabled = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
    return bool(enabled) and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def is_plain(x: Tensor) -> bool:
    """Return whether oneDNN's product can take this tensor: float32 on a CPU, no subclass."""
    return (
        type(x) in (Tensor, nn.Parameter)
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and x.layout == torch.strided
    )


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    given = (x, weight) if bias is None else (x, weight, bias)
    if torch.is_grad_enabled() and any(one.requires_grad for one in given):
        return _OneDnn.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return _multiplied(x, weight, bias)


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    found = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    # A tensor of its own and no view, so that it may be changed in place like any other result.
    result: Tensor = torch.ops.aten._unsafe_view(found, [*x.shape[:-1], len(weight)])
    return result


class _OneDnn(torch.autograd.Function):
    """The map by oneDNN; its gradients are two more such products, so that they have gradients in turn."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiplied(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (given,) = gradients
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        of_x = of_weight = of_bias = None
        by_row = given.reshape(-1, given.shape[-1])
        if to_weight:
            of_weight = _by_onednn(by_row.T, x.reshape(-1, x.shape[-1]).T, None)
        if to_bias:
            of_bias = by_row.sum(0)
        del x
        ctx.maybe_clear_saved_tensors()  # x may be large, and is not needed for what follows
        if to_x:
            of_x = _by_onednn(given, weight.T, None)
        return of_x, of_weight, of_bias


def _wins(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether oneDNN is faster on this machine, by a trial for each size that is kept."""
    rows = x.numel() // x.shape[-1]
    gradients = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    threads = torch.get_num_threads()
    key = (rows.bit_length(), *weight.shape, bias is not None, gradients, threads)
    if key not in _trials:
        _trials[key] = _is_faster(x, weight, bias, gradients=gradients)
    return _trials[key]


def _is_faster(x: Tensor, weight: Tensor, bias: Tensor | None, *, gradients: bool) -> bool:
    given = [None if one is None else one.detach() for one in (x, weight, bias)]
    turns = [
        [_seconds(kernel, given, gradients=gradients) for kernel in (F.linear, _by_onednn)]
        for _ in range(1 + _TURNS)
    ]
    by_product, by_onednn = zip(*turns[1:], strict=True)  # the first turn warms up
    return min(by_product) > _MARGIN * min(by_onednn)


def _seconds(
    kernel: Callable[..., Tensor], given: Sequence[Tensor | None], *, gradients: bool
) -> float:
    """How long a kernel takes for a product, or for one with its gradients."""
    leaves = [None if one is None else one.requires_grad_(gradients) for one in given]
    start = time.perf_counter()
    with torch.set_grad_enabled(gradients):
        result = kernel(*leaves)
        if gradients:
            torch.autograd.grad(result, [one for one in leaves if one is not None], result)
    return time.perf_counter() - start
