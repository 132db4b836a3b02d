"""Temperature, top-k, top-p and the draw, against closed forms, sets by hand and `transformers`."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.inference.sampling import (
    Sampling,
    draw,
    keep_top_k,
    keep_top_p,
    with_temperature,
)
from scipy import stats
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


def random_logits(seed, *shape):
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def kept(logits):
    return logits > -math.inf


@settings(deadline=None)
@given(seed=st.integers(0, 999), temperature=st.floats(0.1, 10))
def test_temperature_raises_probabilities_to_its_inverse(seed, temperature):
    logits = random_logits(seed, 3, 7)
    expected = logits.softmax(-1) ** (1 / temperature)
    expected = expected / expected.sum(-1, keepdim=True)
    ours = with_temperature(logits, temperature).softmax(-1)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


@settings(deadline=None)
@given(seed=st.integers(0, 999), k=st.integers(1, 9))
def test_top_k_keeps_the_k_largest(seed, k):
    logits = random_logits(seed, 4, 7)
    ours = keep_top_k(logits, k)
    for row, new in zip(logits, ours, strict=True):
        largest = set(sorted(range(7), key=lambda i: -row[i].item())[:k])
        assert set(kept(new).nonzero().flatten().tolist()) == largest
        assert torch.equal(new[kept(new)], row[kept(new)])


@settings(deadline=None)
@given(seed=st.integers(0, 999), p=st.floats(0.01, 1))
def test_top_p_keeps_the_fewest_tokens_that_have_p(seed, p):
    logits = random_logits(seed, 1, 6)
    probabilities = logits[0].softmax(-1)
    chosen = kept(keep_top_p(logits, p))[0]
    assert probabilities[chosen].sum() >= p - 1e-12
    smaller = itertools.combinations(probabilities.tolist(), int(chosen.sum()) - 1)
    assert all(sum(some) < p + 1e-12 for some in smaller)
    assert chosen.all() or probabilities[chosen].min() > probabilities[~chosen].max()


@settings(deadline=None)
@given(
    seed=st.integers(0, 999),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    k=st.integers(1, 20),
    p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
)
def test_all_three_agree_with_transformers(seed, temperature, k, p):
    logits = random_logits(seed, 5, 17)
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    expected = TopPLogitsWarper(p)(None, TopKLogitsWarper(k)(None, expected))
    ours = Sampling(torch.Generator(), temperature, top_k=k, top_p=p).logits(logits)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_top_p_by_hand():
    logits = torch.tensor([[0.4, 0.1, 0.3, 0.2]]).double().log()
    for p, n in (
        (1e-9, 1),
        (0.39, 1),
        (0.41, 2),
        (0.69, 2),
        (0.71, 3),
        (0.89, 3),
        (0.91, 4),
        (1.0, 4),
    ):
        assert kept(keep_top_p(logits, p))[0, [0, 2, 3, 1]].tolist() == [True] * n + [False] * (
            4 - n
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_token_always_remains_however_sure_the_model_is(dtype):
    sure = torch.tensor([[0.0, 1000.0, -1000.0], [0.0, 0.0, 0.0]], dtype=dtype)
    assert kept(keep_top_p(sure, 1e-12)).sum(-1).tolist() == [1, 1]
    assert kept(keep_top_k(sure, 1)).sum(-1).tolist() == [1, 3], "equals of the last one stay"
    assert keep_top_p(sure, 1.0) is sure


def test_nothing_writes_into_the_logits():
    logits = random_logits(0, 2, 5)
    before = logits.clone()
    Sampling(torch.Generator(), 0.5, top_k=2, top_p=0.5).logits(logits)
    draw(logits, torch.tensor([0.3, 0.6]))
    assert torch.equal(logits, before)


@settings(deadline=None)
@given(seed=st.integers(0, 999), u=st.floats(0, 1, exclude_max=True, width=32))
def test_a_draw_is_the_inverse_of_the_distribution_function(seed, u):
    logits = random_logits(seed, 1, 8)
    total, expected = 0.0, 0
    for expected, probability in enumerate(logits[0].softmax(-1).tolist()):  # noqa: B007
        total += probability
        if total > u:
            break
    assert abs(total - u) < 1e-9 or draw(logits, torch.tensor([u])).item() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_impossible_is_never_drawn(dtype):
    logits = torch.full((3, 1001), -math.inf, dtype=dtype)
    logits[0, 500], logits[1, 3::7], logits[2, [0, 999]] = 0.0, 1.0, 2.0
    for u in (0.0, 1e-7, 0.25, 0.5, 0.75, 1 - 2**-24):
        token = draw(logits, torch.full((3,), u))
        assert kept(logits[torch.arange(3), token]).all()
        assert token[0] == 500
    ends = draw(logits, torch.tensor([0.0, 0.0, 1 - 2**-24]))
    assert ends.tolist() == [500, 3, 999]


def test_draws_follow_the_distribution():
    logits = random_logits(3, 1, 12)
    n = 20_000
    uniform = torch.rand(n, generator=torch.Generator().manual_seed(5))
    counts = draw(logits.expand(n, 12), uniform).bincount(minlength=12)
    expected = n * logits[0].softmax(-1)
    assert stats.chisquare(counts, expected).pvalue > 0.01
    assert stats.chisquare(counts, n * with_temperature(logits, 1.1)[0].softmax(-1)).pvalue < 1e-6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda g: Sampling(g, 0.0),
            r"temperature must be a positive number, got 0.0; .* use Greedy\(\)",
        ),
        (lambda g: Sampling(g, -1.0), "temperature must be a positive number, got -1.0"),
        (lambda g: Sampling(g, math.nan), "temperature must be"),
        (lambda g: Sampling(g, math.inf), "temperature must be"),
        (lambda g: Sampling(g, top_p=0.0), r"top_p must lie in \(0, 1\], got 0.0"),
        (lambda g: Sampling(g, top_p=1.01), r"top_p must lie in \(0, 1\], got 1.01"),
        (lambda g: Sampling(g, top_p=math.nan), r"top_p must lie"),
        (lambda g: Sampling(g, top_k=0), "top_k must be a whole number of at least 1, got 0"),
        (lambda g: with_temperature(torch.zeros(3), 0.0), "temperature"),
        (lambda g: keep_top_k(torch.zeros(3), -2), "top_k"),
        (lambda g: keep_top_p(torch.zeros(3), 2.0), "top_p"),
    ],
)
def test_numbers_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(torch.Generator())
