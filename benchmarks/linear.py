"""The library's linear map beside PyTorch's: what its choice of a kernel brings, or costs, at each size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from measured_transformer.parts.kernels.linear import _convolution_is_faster, linear
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measure import Workload

# vectors, width in, width out: the projections of the models measured here, and some smaller ones
SHAPES = (
    (2048, 256, 1024),
    (2048, 1024, 256),
    (2048, 256, 256),
    (2048, 64, 256),
    (512, 256, 256),
    (2048, 64, 64),
    (1750, 64, 256),
    (512, 64, 64),
)


def linear_maps(shape: tuple[int, int, int], *, gradients: bool) -> dict[str, Workload]:
    """One map, forward or forward and backward, as PyTorch has it and as the library does."""
    n, d_in, d_out = shape
    generator = torch.Generator().manual_seed(0)
    x, weight, bias, given = (
        torch.randn(*sizes, generator=generator)
        for sizes in ((n, d_in), (d_out, d_in), (d_out,), (n, d_out))
    )
    leaves = [leaf.requires_grad_(gradients) for leaf in (x, weight, bias)]

    def work(by: Callable[..., Tensor]) -> Workload:
        def both_ways() -> tuple[Tensor, ...]:
            return torch.autograd.grad(by(*leaves), leaves, given)

        return both_ways if gradients else lambda: by(*leaves)

    return {"torch.nn.functional.linear": work(F.linear), "measured_transformer": work(linear)}


def kernel(shape: tuple[int, int, int]) -> str:
    """Which of the two the library chooses here."""
    n, d_in, d_out = shape
    x, weight = torch.empty(n, d_in), torch.empty(d_out, d_in)
    return "convolution" if _convolution_is_faster(x, weight, None) else "product"
