r"""Attention one tile at a time: the exact softmax without ever storing the pattern.

Keys arrive in tiles. For each query three things are kept: the largest score so far, the sum of exponentials
so far, and the mixture of values so far, both relative to that largest score. A later tile with a larger score
shrinks what was kept by one factor. What comes out is what `parts.attention_functions.fused_attention`
computes; this is the form to read, in plain PyTorch, and no faster for it.

Axes as in `parts.attention`. Source: Milakov and Gimelshein (2018), "Online normalizer calculation for
softmax"; Rabe and Staats (2021), "Self-attention Does Not Need O(n^2) Memory"; Dao et al. (2022),
"FlashAttention". The order of the loops, queries outside and keys inside, is that of Dao (2023),
"FlashAttention-2".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Running(NamedTuple):
    """The running state of each query over the keys seen so far.

    Attributes:
        maximum: the largest score.
        total: the sum of exponentials of all scores less the maximum.
        mixed: the values, weighted by these exponentials and summed.
    """

    maximum: Float[Tensor, "*batch query"]
    total: Float[Tensor, "*batch query"]
    mixed: Float[Tensor, "*batch query d_value"]


class Gradients(NamedTuple):
    """Gradients with respect to queries, keys and values, each of the shape of its own."""

    queries: Float[Tensor, "*batch query d_head"]
    keys: Float[Tensor, "*batch key d_head"]
    values: Float[Tensor, "*batch key d_value"]


def add_tile(
    running: Running,
    scores: Float[Tensor, "*batch query tile"],
    values: Float[Tensor, "*batch tile d_value"],
) -> Running:
    """The running state after another tile of keys.

    Args:
        running: what was kept before.
        scores: of the tile's keys; minus infinity where a key is hidden, as long as the query has seen
            another one, in this tile or before.
        values: of the tile's keys.

    >>> nothing = Running(torch.tensor([-math.inf]), torch.zeros(1), torch.zeros(1, 1))
    >>> seen = add_tile(nothing, torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0], [3.0]]))
    >>> seen.mixed / seen.total
    tensor([[2.]])
    """
    maximum = torch.maximum(running.maximum, scores.amax(-1))
    shrink = (running.maximum - maximum).exp()
    weights = (scores - maximum[..., None]).exp()
    total = shrink * running.total + weights.sum(-1)
    mixed = shrink[..., None] * running.mixed + weights @ values
    return Running(maximum, total, mixed)


def tiled_attention(
    queries: Float[Tensor, "*batch query d_head"],
    keys: Float[Tensor, "*batch key d_head"],
    values: Float[Tensor, "*batch key d_value"],
    *,
    query_tile: int = 64,
    key_tile: int = 64,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Float[Tensor, "*batch query d_value"], Float[Tensor, "*batch query"]]:
    r"""Attention that holds `query_tile` times `key_tile` scores at a time.

    Args:
        queries, keys, values: as in `parts.attention_functions.fused_attention`.
        query_tile: queries that are held at a time.
        key_tile: keys and values that are held at a time.
        causal: let query i of the last `query` positions see the keys up to its own place; tiles that are
            hidden altogether are skipped.
        scale: factor on the dot product; $1/\sqrt{d_\text{head}}$ when not given.

    Returns:
        The mixtures, and for each query the logarithm of its sum of exponentials, from which
        `tiled_gradients` computes the weights again.

    Raises:
        ValueError: when a tile is not positive, there is no key, or under `causal` there are more queries
            than keys.
    """
    scale = _checked(queries, keys, query_tile, key_tile, causal, scale)
    ahead = keys.shape[-2] - queries.shape[-2]  # query 0 stands at this key's place
    mixed = queries.new_empty(*queries.shape[:-1], values.shape[-1])
    log_total = queries.new_empty(queries.shape[:-1])
    for rows in tiles(queries.shape[-2], query_tile):
        query = scale * queries[..., rows, :]
        state = _nothing(query, values.shape[-1])
        for columns in tiles(keys.shape[-2], key_tile):
            if causal and columns.start >= rows.stop + ahead:
                break
            key, value = keys[..., columns, :], values[..., columns, :]
            scores = query @ key.transpose(-2, -1)
            if causal:
                hidden = _hidden(rows, columns, ahead, scores)
                scores = scores.masked_fill(hidden, -math.inf)
            state = add_tile(state, scores, value)
        mixed[..., rows, :] = state.mixed / state.total[..., None]
        log_total[..., rows] = state.maximum + state.total.log()
    return mixed, log_total


def tiled_gradients(
    given: Float[Tensor, "*batch query d_value"],
    queries: Float[Tensor, "*batch query d_head"],
    keys: Float[Tensor, "*batch key d_head"],
    values: Float[Tensor, "*batch key d_value"],
    mixed: Float[Tensor, "*batch query d_value"],
    log_total: Float[Tensor, "*batch query"],
    *,
    query_tile: int = 64,
    key_tile: int = 64,
    causal: bool = False,
    scale: float | None = None,
) -> Gradients:
    r"""The backward pass, which recomputes the weights tile by tile instead of storing them.

    With weights $p_{ij} = e^{s_{ij} - L_i}$, mixtures $o_i$ and given gradients $g_i$, the gradient of a score
    is $p_{ij} (g_i \cdot v_j - g_i \cdot o_i)$.

    Args:
        given: the loss's gradient with respect to the mixtures.
        queries, keys, values, query_tile, key_tile, causal, scale: as in the forward pass.
        mixed, log_total: what `tiled_attention` returned.

    Raises:
        ValueError: as `tiled_attention`.
    """
    scale = _checked(queries, keys, query_tile, key_tile, causal, scale)
    ahead = keys.shape[-2] - queries.shape[-2]
    found = Gradients(*(torch.zeros_like(each) for each in (queries, keys, values)))
    for rows in tiles(queries.shape[-2], query_tile):
        query, gradient = scale * queries[..., rows, :], given[..., rows, :]
        expected = (gradient * mixed[..., rows, :]).sum(-1, keepdim=True)
        for columns in tiles(keys.shape[-2], key_tile):
            if causal and columns.start >= rows.stop + ahead:
                break
            key, value = keys[..., columns, :], values[..., columns, :]
            scores = query @ key.transpose(-2, -1)
            if causal:
                hidden = _hidden(rows, columns, ahead, scores)
                scores = scores.masked_fill(hidden, -math.inf)
            weights = (scores - log_total[..., rows, None]).exp()
            of_scores = weights * (gradient @ value.transpose(-2, -1) - expected)
            found.queries[..., rows, :] += scale * of_scores @ key
            found.keys[..., columns, :] += of_scores.transpose(-2, -1) @ query
            found.values[..., columns, :] += weights.transpose(-2, -1) @ gradient
    return found


def tiles(n: int, size: int) -> Iterator[slice]:
    """The positions from 0 to n - 1 in tiles of a size; the last one may be smaller.

    >>> list(tiles(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _nothing(query: Tensor, d_value: int) -> Running:
    shape = query.shape[:-1]
    return Running(
        query.new_full(shape, -math.inf), query.new_zeros(shape), query.new_zeros(*shape, d_value)
    )


def _hidden(rows: slice, columns: slice, ahead: int, like: Tensor) -> Bool[Tensor, "query tile"]:
    """Return whether each key of the tile comes after each query of the tile."""
    query = torch.arange(rows.start, rows.stop, device=like.device)[:, None] + ahead
    return torch.arange(columns.start, columns.stop, device=like.device) > query


def _checked(
    queries: Tensor, keys: Tensor, query_tile: int, key_tile: int, causal: bool, scale: float | None
) -> float:
    """Check that the sizes fit, and return the scale."""
    if query_tile < 1 or key_tile < 1:
        raise ValueError(
            f"expected tiles of at least one query and one key, got query_tile={query_tile} and "
            f"key_tile={key_tile}"
        )
    n_query, n_key = queries.shape[-2], keys.shape[-2]
    if n_key < 1 or (causal and n_query > n_key):
        raise ValueError(
            "expected at least one key, and under causal as many as queries, got "
            f"{n_query} queries and {n_key} keys"
        )
    return 1 / math.sqrt(queries.shape[-1]) if scale is None else scale
