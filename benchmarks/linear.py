"""The library's linear map by either of its kernels: what oneDNN's product brings, or costs, at each size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from measured_transformer.parts.kernels.linear import linear, linear_kernel
from measured_transformer.parts.kernels.packed import PackedMap
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

# the same of one step of decoding, for one text and for several: of width 256, and of SmolLM2
FEW = tuple(
    (n, d_in, d_out)
    for n in (1, 8)
    for d_in, d_out in (
        *((256, 256), (256, 768), (256, 1024), (1024, 256)),
        *((576, 960), (576, 1536), (1536, 576), (576, 49152)),
    )
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


def packed_maps(shape: tuple[int, int, int]) -> dict[str, Workload]:
    """One map of few vectors without gradients, as it is and with a copy of the weight that oneDNN laid out."""
    n, d_in, d_out = shape
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*sizes, generator=generator) for sizes in ((n, d_in), (d_out, d_in), (d_out,))
    )
    packed = PackedMap(weight, bias, n)
    return {"product": lambda: linear(x, weight, bias), "packed": lambda: packed(x)}
