"""A control for any model: weights of the same spectrum, whose directions are drawn anew."""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

import torch
from jaxtyping import Float
from measured_transformer.models.stack import Stack
from measured_transformer.training.seeding import make_generator
from torch import Tensor

Model = TypeVar("Model", bound=Stack)


@torch.no_grad()
def same_spectrum(model: Model, seed: int) -> Model:
    r"""A copy of a model whose matrices keep their singular values and nothing else.

    Each matrix of a block, $U S V^\top$, becomes $U' S V'^\top$ with directions drawn alike from all rotations.
    So every matrix stretches as much as it did, and nothing that training has put where remains between them.
    Embedding, unembedding and the gains of norms stay as they are. For a model of 135 million weights it takes
    some half a minute.

    Args:
        model: stays as it is.
        seed: of the directions.
    """
    draws = make_generator(seed, "directions of the same spectrum")
    other = deepcopy(model)
    for name, weight in other.blocks.named_parameters():
        if weight.ndim == 2 and "norm" not in name:
            weight.copy_(turned(weight, draws))
    return other.eval().requires_grad_(False)


@torch.no_grad()
def turned(
    matrix: Float[Tensor, "row column"], generator: torch.Generator
) -> Float[Tensor, "row column"]:
    """A matrix with the same singular values and directions drawn alike from all rotations.

    >>> matrix = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> torch.linalg.svdvals(turned(matrix, torch.Generator().manual_seed(0))).round(decimals=4)
    tensor([3., 1.])
    """
    if matrix.shape[0] < matrix.shape[1]:
        return turned(matrix.T, generator).T
    middle = torch.linalg.qr(matrix, mode="r").R  # the same singular values, in a square
    left = orthonormal(matrix.shape[0], matrix.shape[1], generator)
    right = orthonormal(matrix.shape[1], matrix.shape[1], generator)
    return (left.to(matrix) @ middle) @ right.to(matrix)


def orthonormal(rows: int, columns: int, generator: torch.Generator) -> Float[Tensor, "row column"]:
    """Orthonormal columns, drawn alike from all of them (Haar)."""
    drawn = torch.randn(rows, columns, generator=generator, dtype=torch.float32)
    q, r = torch.linalg.qr(drawn)
    return q * r.diagonal().sign()
