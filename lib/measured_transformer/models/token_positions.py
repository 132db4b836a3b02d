"""The positions of a call's tokens and of the keys they can see, and which tokens are real."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class TokenPositions:
    """Positions of the tokens of one call (queries) and of all tokens up to its last (keys).

    Attributes:
        queries: (query) when every row of the batch is alike, else (batch, query).
        keys: the same for the keys: tokens held by a cache, then those of this call.
        padding_mask: (batch, key), True where a key is a token rather than padding; None when all are.
        below: a number that no position reaches; None when it is not known without looking.
    """

    queries: Int[Tensor, "*batch query"]
    keys: Int[Tensor, "*batch key"]
    padding_mask: Bool[Tensor, "batch key"] | None
    below: int | None


def find_positions(
    tokens: Int[Tensor, "batch position"],
    *,
    padding_mask: Bool[Tensor, "..."] | None = None,
    positions: Int[Tensor, "..."] | None = None,
    earlier: TokenPositions | None = None,
) -> TokenPositions:
    """Number the tokens of a call: a token's position is the number of real tokens before it.

    So padding, on whichever side, moves no token, and a chunk goes on where the one before it ended.

    Args:
        tokens: the tokens of this call.
        padding_mask: True where one of them is real; all are when not given.
        positions: their positions, where they should be others.
        earlier: the positions of the calls that this one continues.

    Raises:
        ValueError: when `padding_mask` or `positions` have another shape or kind than the tokens need.
    """
    batch, n = tokens.shape
    _check(tokens, padding_mask, positions)
    past = 0 if earlier is None else earlier.keys.shape[-1]
    earlier_mask = None if earlier is None else earlier.padding_mask
    device = tokens.device
    if padding_mask is None and positions is None and (earlier is None or earlier.keys.ndim == 1):
        keys = torch.arange(past + n, device=device)
        return TokenPositions(keys[past:], keys, None, past + n)

    mask = None
    if padding_mask is not None or earlier_mask is not None:
        before = torch.ones(batch, past, dtype=torch.bool, device=device)
        now = torch.ones(batch, n, dtype=torch.bool, device=device)
        mask = torch.cat(
            (
                before if earlier_mask is None else earlier_mask,
                now if padding_mask is None else padding_mask,
            ),
            dim=1,
        )
    if positions is not None:
        queries, below = positions.to(torch.int64), None
    else:
        everything = torch.ones(batch, past + n, dtype=torch.int64, device=device)
        counted = everything if mask is None else mask.to(torch.int64)
        queries, below = (counted.cumsum(dim=1) - counted)[:, past:], past + n
    keys = queries
    if earlier is not None:
        keys = torch.cat((earlier.keys.expand(batch, past), queries), dim=1)
    return TokenPositions(queries, keys, mask, below)


def _check(tokens: Tensor, padding_mask: Tensor | None, positions: Tensor | None) -> None:
    shape = tuple(tokens.shape)
    for name, given in (("padding_mask", padding_mask), ("positions", positions)):
        if given is not None and not isinstance(given, Tensor):
            raise ValueError(
                f"{name} must be a tensor of shape (batch, position) = {shape}, got {type(given).__name__}"
            )
    if padding_mask is not None and (
        padding_mask.dtype != torch.bool or tuple(padding_mask.shape) != shape
    ):
        raise ValueError(
            f"padding_mask must be Boolean of shape (batch, position) = {shape}, True for real tokens; "
            f"got {padding_mask.dtype} of shape {tuple(padding_mask.shape)}"
        )
    if positions is not None and (
        positions.dtype not in (torch.int64, torch.int32) or tuple(positions.shape) != shape
    ):
        raise ValueError(
            f"positions must be whole numbers of shape (batch, position) = {shape}, got "
            f"{positions.dtype} of shape {tuple(positions.shape)}"
        )
