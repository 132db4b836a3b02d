"""The linear map by convolution beside the matrix product: why `parts.linear` chooses as it does."""

from __future__ import annotations

import torch
from measured_transformer.parts.linear import linear
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measure import Work

# vectors, width in, width out: the projections of the models measured here, and some smaller ones
SHAPES = (
    (2048, 256, 1024),
    (2048, 1024, 256),
    (2048, 256, 256),
    (2048, 64, 256),
    (512, 256, 256),
    (2048, 64, 64),
)


def linear_maps(shape: tuple[int, int, int]) -> dict[str, Work]:
    """Forward and backward pass of one map, as PyTorch has it and as the library does."""
    n, d_in, d_out = shape
    generator = torch.Generator().manual_seed(0)
    x, weight, bias, given = (
        torch.randn(*sizes, generator=generator)
        for sizes in ((n, d_in), (d_out, d_in), (d_out,), (n, d_out))
    )
    leaves = [leaf.requires_grad_() for leaf in (x, weight, bias)]

    def work(by: object) -> Work:
        def both_ways() -> tuple[Tensor, ...]:
            y = by(*leaves)  # type: ignore[operator]
            return torch.autograd.grad(y, leaves, given)

        return both_ways

    return {"torch.nn.functional.linear": work(F.linear), "measured_transformer": work(linear)}
