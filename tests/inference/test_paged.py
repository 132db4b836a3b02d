"""Pages hold what a plain cache holds, wherever they lie, and are given back; requests come and go."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.inference.generate import generate
from measured_transformer.inference.paged import PagedCache, PageTable
from measured_transformer.inference.sampling import Sampling
from measured_transformer.inference.serving import serve
from measured_transformer.models.decoder import Decoder
from small_models import PROMPTS, SCHEMES, SMALL, VOCAB, made


def texts(generated):
    return [row.tolist() for row in generated.tokens]


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("positions", SCHEMES)
@torch.no_grad()
def test_logits_are_those_of_each_request_alone(positions, heads):
    model = made(Decoder, SMALL.replace(positions=positions, n_kv_heads=heads))
    cache = PagedCache(2, n_pages=30, page_size=2)
    for i, prompt in enumerate(PROMPTS):
        whole = model(torch.tensor([prompt]), cache=cache.rows([i], len(prompt)))
        torch.testing.assert_close(whole, model(torch.tensor([prompt])))
    for order in ([0, 1, 2, 3], [3, 1], [2, 0, 3]):
        rows = model(torch.tensor([[7]] * len(order)), cache=cache.rows(order, 1))
        for row, i in zip(rows, order, strict=True):
            PROMPTS_NOW[i].append(7)
            expected = model(torch.tensor([PROMPTS_NOW[i]]))[0, -1]
            torch.testing.assert_close(row[0], expected)
    PROMPTS_NOW.clear()
    PROMPTS_NOW.extend([list(prompt) for prompt in PROMPTS])


PROMPTS_NOW = [list(prompt) for prompt in PROMPTS]


@torch.no_grad()
def test_several_tokens_may_come_at_once_and_pages_may_lie_in_any_order():
    model = made(Decoder, SMALL.replace(positions="rotary"))
    text = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    cache = PagedCache(2, n_pages=6, page_size=2)
    model(torch.tensor([[8, 8, 8]]), cache=cache.rows(["other"], 3))
    model(text[:, :3], cache=cache.rows(["a"], 3))
    cache.release("other")
    last = model(text[:, 3:], cache=cache.rows(["a"], 5))
    assert cache.table.pages["a"] == [2, 3, 4, 5]
    torch.testing.assert_close(last, model(text)[:, 3:])
    other = model(torch.tensor([[8, 8, 8]]), cache=cache.rows(["other"], 3))
    torch.testing.assert_close(other, model(torch.tensor([[8, 8, 8]])))


def test_bytes_are_those_of_the_tokens_and_of_the_pages():
    model = made(Decoder)
    cache = PagedCache(2, n_pages=8, page_size=4)
    assert cache.bytes == cache.given_bytes == 0
    plain = model.make_cache()
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3, 4, 5]]), cache=cache.rows(["a"], 5))
        model(torch.tensor([[1, 2, 3, 4, 5]]), cache=plain)
    assert cache.bytes == plain.bytes
    assert cache.given_bytes == plain.bytes * 8 // 5
    cache.release("a")
    assert cache.bytes == 0


def test_a_table_gives_and_takes_pages():
    table = PageTable(3, 2)
    table.grow("a", 3)
    table.grow("b", 1)
    assert (table.free_pages, table.wasted) == (0, 2)
    table.grow("a", 1)
    with pytest.raises(ValueError, match="0 of 3 are free"):
        table.grow("a", 1)
    assert table.lengths == {"a": 4, "b": 1}
    table.release("a")
    table.grow("b", 4)
    assert table.pages == {"b": [2, 0, 1]}
    assert table.slots("b") == [4, 5, 0, 1, 2]
    with pytest.raises(ValueError, match="at least one page"):
        PageTable(0, 4)


def test_a_cache_without_room_changes_nothing():
    cache = PagedCache(1, n_pages=2, page_size=2)
    cache.rows(["a"], 2)
    with pytest.raises(ValueError, match="free pages"):
        cache.rows(["a", "b"], 2)
    assert cache.table.lengths == {"a": 2}
    rows = cache.rows(["a"], 1)
    keys = torch.ones(1, 1, 2, 4)
    with pytest.raises(ValueError, match="rows of its own"):
        rows.layers[0].extend(keys, keys)
    with pytest.raises(ValueError, match="reordered"):
        rows.layers[0].reorder(torch.tensor([0]))
    with pytest.raises(ValueError, match="empty"):
        _ = rows.layers[0].keys


# Serving ------------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(
    positions=st.sampled_from(SCHEMES),
    prompts=st.lists(
        st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9), min_size=1, max_size=6
    ),
    page_size=st.integers(1, 5),
    spare=st.integers(0, 8),
    at_once=st.integers(1, 4),
    stop=st.lists(st.integers(0, VOCAB - 1), max_size=3),
    sampled=st.booleans(),
)
def test_what_is_served_is_what_is_generated(
    positions, prompts, page_size, spare, at_once, stop, sampled
):
    model = made(Decoder, SMALL.replace(positions=positions, n_kv_heads=2))

    def strategy():
        return Sampling(torch.Generator().manual_seed(4), top_p=0.9) if sampled else None

    n_pages = -(-(max(map(len, prompts)) + 7) // page_size) + spare
    ours = serve(
        model,
        prompts,
        max_new_tokens=8,
        strategy=strategy(),
        stop=stop,
        n_pages=n_pages,
        page_size=page_size,
        at_once=at_once,
    )
    plain = generate(model, prompts, max_new_tokens=8, strategy=strategy(), stop=stop)
    assert texts(ours.written) == texts(plain)
    assert ours.written.finished == plain.finished
    for a, b in zip(ours.written.log_probs, plain.log_probs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    assert len(ours.running) == ours.steps
    assert max(map(len, ours.running)) <= at_once


def test_requests_come_and_go_and_each_step_is_full_while_any_wait():
    model = made(Decoder)
    limits = [2, 7, 3, 4, 1, 5]
    served = serve(model, [[1]] * 6, max_new_tokens=limits, n_pages=40, page_size=2, at_once=2)
    assert [len(text) for text in texts(served.written)] == limits
    assert [sum(i in step for step in served.running) for i in range(6)] == limits
    assert served.steps < sum(max(limits[i : i + 2]) for i in (0, 2, 4))
    assert all(len(step) == 2 for step in served.running[:-4])
    assert served.preemptions == 0


def test_without_room_the_last_to_join_gives_its_pages_back():
    model = made(Decoder, SMALL.replace(positions="rotary"))
    prompts = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 1, 2, 3]]
    served = serve(model, prompts, max_new_tokens=9, n_pages=4, page_size=4, at_once=3)
    assert served.preemptions > 0
    assert texts(served.written) == texts(generate(model, prompts, max_new_tokens=9))
    assert served.peak_bytes <= 4 * 4 * served.written.cache_bytes
    roomy = serve(model, prompts, max_new_tokens=9, n_pages=40, page_size=4, at_once=3)
    assert roomy.preemptions == 0
    assert roomy.steps == 9


def test_what_cannot_be_served_is_refused():
    model = made(Decoder)
    for wrong, words in (
        ({"n_pages": 2}, "may need 3 pages"),
        ({"n_pages": 9, "at_once": 0}, "at least 1"),
        ({"n_pages": 9, "max_new_tokens": [1, 2]}, "as many limits"),
    ):
        with pytest.raises(ValueError, match=words):
            serve(model, [[1, 2, 3]], **{"max_new_tokens": 8, "page_size": 4, **wrong})
    with pytest.raises(ValueError, match="lie in"):
        serve(model, [[VOCAB]], max_new_tokens=1, n_pages=9)
    learned = made(Decoder, SMALL.replace(positions="learned", max_length=8))
    with pytest.raises(ValueError, match="learned positions"):
        serve(learned, [[1]], max_new_tokens=9, n_pages=9)
