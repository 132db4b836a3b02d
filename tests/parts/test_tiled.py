"""Attention by tiles against PyTorch's kernel, with its gradients, whatever the sizes of the tiles."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.parts.tiled import (
    Running,
    add_tile,
    tiled_attention,
    tiled_gradients,
    tiles,
)
from torch.nn import functional as F

TIGHT = {"rtol": 0, "atol": 1e-12}


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def drawn(n_query, n_key, d_head, d_value, seed=0, size=1.0):
    shapes = ((2, n_query, d_head), (2, n_key, d_head), (2, n_key, d_value))
    return [size * normal(*shape, seed=seed + i) for i, shape in enumerate(shapes)]


def kernel(queries, keys, values, *, causal=False, scale=None):
    n_query, n_key = queries.shape[-2], keys.shape[-2]
    past = torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query)
    return F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=past if causal else None, scale=scale
    )


sizes = {
    "n_key": st.integers(1, 20),
    "earlier": st.integers(0, 6),
    "d_head": st.integers(1, 6),
    "d_value": st.integers(1, 6),
    "query_tile": st.integers(1, 24),
    "key_tile": st.integers(1, 24),
    "causal": st.booleans(),
    "seed": st.integers(0, 1000),
}


@settings(deadline=None)
@given(**sizes)
def test_tiles_give_what_the_kernel_gives(
    n_key, earlier, d_head, d_value, query_tile, key_tile, causal, seed
):
    given = drawn(max(1, n_key - earlier), n_key, d_head, d_value, seed, size=3.0)
    how = {"query_tile": query_tile, "key_tile": key_tile, "causal": causal}
    mixed, log_total = tiled_attention(*given, **how)
    torch.testing.assert_close(mixed, kernel(*given, causal=causal), **TIGHT)
    scores = given[0] @ given[1].mT / math.sqrt(d_head)
    if causal:
        hidden = ~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(n_key - scores.shape[-2])
        scores = scores.masked_fill(hidden, -math.inf)
    torch.testing.assert_close(log_total, scores.logsumexp(-1), **TIGHT)


@settings(deadline=None)
@given(**sizes)
def test_gradients_by_tiles_are_those_of_the_kernel(
    n_key, earlier, d_head, d_value, query_tile, key_tile, causal, seed
):
    leaves = [
        x.requires_grad_() for x in drawn(max(1, n_key - earlier), n_key, d_head, d_value, seed)
    ]
    wanted = kernel(*leaves, causal=causal)
    gradient = normal(*wanted.shape, seed=99)
    of_kernel = torch.autograd.grad(wanted, leaves, gradient)
    how = {"query_tile": query_tile, "key_tile": key_tile, "causal": causal}
    with torch.no_grad():
        mixed, log_total = tiled_attention(*leaves, **how)
        found = tiled_gradients(gradient, *leaves, mixed, log_total, **how)
    for ours, theirs in zip(found, of_kernel, strict=True):
        torch.testing.assert_close(ours, theirs, **TIGHT)
    by_autograd = torch.autograd.grad(tiled_attention(*leaves, **how)[0], leaves, gradient)
    for ours, theirs in zip(by_autograd, of_kernel, strict=True):
        torch.testing.assert_close(ours, theirs, **TIGHT)


def test_scores_that_would_overflow_do_not():
    queries, keys, values = drawn(5, 9, 4, 3)
    queries, keys = 40 * queries, 40 * keys
    assert (
        queries @ keys.mT
    ).amax() > 710  # the exponential of which is infinite in double precision
    mixed, _ = tiled_attention(queries, keys, values, query_tile=2, key_tile=2)
    torch.testing.assert_close(mixed, kernel(queries, keys, values), **TIGHT)


def test_scale_and_leading_axes_are_those_of_the_kernel():
    queries, keys, values = normal(3, 2, 3, 7, 4).unbind(0)
    mixed, _ = tiled_attention(queries, keys, values, query_tile=3, key_tile=2, scale=0.3)
    torch.testing.assert_close(mixed, kernel(queries, keys, values, scale=0.3), **TIGHT)


def test_a_tile_is_merged_whatever_the_order():
    scores, values = normal(3, 6, seed=1), normal(6, 2, seed=2)
    state = Running(
        torch.full((3,), -math.inf).double(), torch.zeros(3).double(), torch.zeros(3, 2).double()
    )
    for columns in ([4, 1], [0], [5, 2, 3]):
        state = add_tile(state, scores[:, columns], values[columns])
    torch.testing.assert_close(
        state.mixed / state.total[:, None], scores.softmax(1) @ values, **TIGHT
    )
    assert torch.equal(state.maximum, scores.amax(1))


def test_nothing_of_the_callers_is_written_to():
    given = drawn(6, 6, 4, 4)
    before = [x.clone() for x in given]
    mixed, log_total = tiled_attention(*given, query_tile=4, key_tile=4, causal=True)
    kept = mixed.clone(), log_total.clone()
    tiled_gradients(mixed, *given, mixed, log_total, query_tile=4, key_tile=4, causal=True)
    for now, then in zip([*given, mixed, log_total], [*before, *kept], strict=True):
        assert torch.equal(now, then)


def test_a_future_key_changes_nothing():
    queries, keys, values = drawn(8, 8, 4, 4)
    before, _ = tiled_attention(queries, keys, values, query_tile=3, key_tile=3, causal=True)
    keys[:, 5], values[:, 5] = 7.0, 7.0
    after, _ = tiled_attention(queries, keys, values, query_tile=3, key_tile=3, causal=True)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_tiles_cover_everything_once():
    for n, size in ((1, 1), (7, 3), (6, 3), (4, 9)):
        covered = [i for each in tiles(n, size) for i in range(n)[each]]
        assert covered == list(range(n))
        assert all(each.stop - each.start <= size for each in tiles(n, size))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"query_tile": 0}, "got query_tile=0 and key_tile=64"),
        ({"key_tile": -1}, "got query_tile=64 and key_tile=-1"),
        ({"causal": True}, "got 5 queries and 3 keys"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        tiled_attention(*drawn(5, 3, 4, 4), **wrong)
    with pytest.raises(ValueError, match="at least one key"):
        tiled_attention(*drawn(5, 0, 4, 4))
