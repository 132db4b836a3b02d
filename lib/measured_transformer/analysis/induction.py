"""Scores of the two heads of induction: one looks at the token before, one behind an earlier copy.

Source: Olsson et al. (2022), "In-context Learning and Induction Heads".
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def previous_token_score(
    pattern: Float[Tensor, "batch head query key"],
) -> Float[Tensor, "head"]:
    """Mean weight that each head gives to the position right before, over queries that have one.

    >>> previous_token_score(torch.eye(3).roll(-1, 1)[None, None])
    tensor([1.])
    """
    return pattern.diagonal(offset=-1, dim1=-2, dim2=-1).mean((0, -1))


def prefix_matching_score(
    pattern: Float[Tensor, "batch head query key"], tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "head"]:
    """Mean weight that each head gives to positions right behind earlier copies of the query's token.

    Over queries whose token has come before. Source: Olsson et al. (2022), "In-context Learning and Induction
    Heads".

    >>> tokens = torch.tensor([[5, 2, 5]])
    >>> weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.9, 0.1]])
    >>> prefix_matching_score(weights[None, None], tokens)
    tensor([0.9000])

    Raises:
        ValueError: when no token comes twice.
    """
    n = tokens.shape[-1]
    same = (tokens[:, :, None] == tokens[:, None, :]) & torch.ones(n, n, dtype=torch.bool).tril(-1)
    behind = same.roll(1, dims=-1)  # the last column is free: nothing is earlier than itself
    asked = same.any(-1)
    if not asked.any():
        raise ValueError("no token comes twice: there is nothing to match")
    weight = (pattern * behind[:, None]).sum(-1)
    return (weight * asked[:, None]).sum((0, -1)) / asked.sum()
