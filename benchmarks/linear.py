"""The library's linear map by either of its kernels: what oneDNN's product brings, or costs, at each size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from measured_transformer.parts.kernels.linear import linear, linear_kernel
from torch import Tensor

from benchmarks.measure import Workload

# vectors, width in, width out: of SmolLM2, of the models measured here, and smaller ones
SHAPES = (
    (256, 576, 1536),
    (1, 576, 49152),
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
    """One map, forward or forward and backward, by either kernel."""
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

    def chosen(*values: Tensor) -> Tensor:
        with linear_kernel("onednn"):
            return linear(*values)

    return {"product": work(linear), "onednn": work(chosen)}
