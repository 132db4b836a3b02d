"""Text written with a draft is the target's own: the same greedy text, and sampled ones alike."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.inference.speculative import (
    Speculative,
    accept,
    acceptance,
    agreement,
    per_pass,
    residual,
    speculate,
)
from measured_transformer.inference.windows import SlidingWindow
from measured_transformer.models.decoder import Decoder
from scipy import stats
from small_models import PROMPTS, SCHEMES, SMALL, VOCAB, greedy, made


def drafts(positions="sinusoidal"):
    """One that agrees always, one that agrees now and then, and one that hardly ever does."""
    target = made(Decoder, SMALL.replace(positions=positions))
    near = made(Decoder, SMALL.replace(positions=positions))
    with torch.no_grad():
        for weight in near.parameters():
            weight.add_(0.08 * torch.randn_like(weight))
    return target, [target, near, made(Decoder, SMALL.replace(n_layers=1), seed=5)]


def sampling(seed=0, **how):
    return Sampling(torch.Generator().manual_seed(seed), **how)


@pytest.mark.parametrize("ahead", [1, 4])
@pytest.mark.parametrize("positions", SCHEMES)
def test_greedy_text_is_that_without_a_draft(positions, ahead):
    target, others = drafts(positions)
    expected = [greedy(target, prompt, 12) for prompt in PROMPTS]
    passes = []
    for draft in others:
        ours = generate(
            target, PROMPTS, max_new_tokens=12, strategy=Speculative(draft, ahead=ahead)
        )
        for tokens, log_probs, (right, likely) in zip(
            ours.tokens, ours.log_probs, expected, strict=True
        ):
            assert tokens.tolist() == right
            assert log_probs.tolist() == pytest.approx(likely, abs=1e-9)
        passes.append(sum(ours.passes))
        assert all(a <= p for a, p in zip(ours.accepted, ours.proposed, strict=True))
        assert ours.cache_bytes > 0
    assert passes[0] < passes[2], "a draft that agrees saves passes"
    assert passes[0] == len(PROMPTS) * math.ceil(12 / (ahead + 1))


@settings(max_examples=10, deadline=None)
@given(
    positions=st.sampled_from(SCHEMES),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9),
    ahead=st.integers(1, 9),
    n=st.integers(1, 14),
    which=st.integers(0, 2),
    heads=st.sampled_from([1, 2, 4]),
    stop=st.lists(st.integers(0, VOCAB - 1), max_size=4),
)
def test_any_configuration_writes_what_plain_decoding_writes(
    positions, prompt, ahead, n, which, heads, stop
):
    config = SMALL.replace(positions=positions, n_kv_heads=heads)
    target = made(Decoder, config, seed=which)
    draft = made(Decoder, config, seed=which) if which else made(Decoder, seed=7)
    ours = generate(
        target,
        [prompt],
        max_new_tokens=n,
        strategy=Speculative(draft, ahead=ahead),
        stop=stop,
    )
    plain = generate(target, [prompt], max_new_tokens=n, stop=stop)
    assert ours.tokens[0].tolist() == plain.tokens[0].tolist()
    assert ours.finished == plain.finished


@pytest.mark.parametrize("how", [{"temperature": 0.7, "top_k": 9}])
def test_sampled_text_has_the_distribution_of_the_target(how):
    """Against the exact probability of each text of two tokens, by a chi-square test."""
    target, (_, near, _) = drafts()
    prompt, runs = [3, 1, 4], 150
    strategy = Speculative(near, sampling(1, **how), ahead=2)
    with torch.no_grad():
        first = strategy.distribution(target(torch.tensor([prompt]))[:, -1])[0]
        exact = {}
        for a in range(VOCAB):
            if first[a] > 0:
                rest = target(torch.tensor([[*prompt, a]]))[:, -1]
                exact |= {
                    (a, b): float(first[a] * p)
                    for b, p in enumerate(strategy.distribution(rest)[0])
                }
    counts = dict.fromkeys(exact, 0)
    ours = generate(target, [prompt] * runs, max_new_tokens=2, strategy=strategy)
    for tokens in ours.tokens:
        counts[tuple(tokens.tolist())] += 1
    assert all(exact[text] > 0 for text, count in counts.items() if count)
    assert 0 < sum(ours.accepted) < sum(ours.proposed)
    likely = [text for text in exact if exact[text] * runs >= 5]
    seen = [counts[text] for text in likely]
    due = [exact[text] * runs for text in likely]
    seen.append(runs - sum(seen))
    due.append(runs - sum(due))
    if due[-1] < 5:
        seen, due = [*seen[:-2], sum(seen[-2:])], [*due[:-2], sum(due[-2:])]
    assert stats.chisquare(seen, due).pvalue > 1e-3


def tables(seed, vocab=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, vocab, generator=generator, dtype=torch.float64).softmax(-1)


@pytest.mark.parametrize("seed", range(20))
def test_one_step_gives_each_token_as_often_as_the_target(seed):
    p, q = tables(seed)
    likely, rest = acceptance(p, q), residual(p, q)
    refused = 1 - float((q * likely).sum())
    torch.testing.assert_close(q * likely + refused * rest, p)
    assert 1 - refused == pytest.approx(float(agreement(p, q)))
    assert float(agreement(p, q)) == pytest.approx(1 - float((p - q).abs().sum()) / 2)
    assert rest.sum() == pytest.approx(1.0)


def test_accept_is_the_rule_on_a_grid_of_random_numbers():
    """Every pair of numbers of a fine grid, so that shares are probabilities."""
    p, q = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.6, 0.2]).double()
    target, draft = torch.stack((p, p)), q[None]
    grid = ((torch.arange(40) + 0.5) / 40).tolist()
    written = torch.zeros(3).double()
    for token, (u, v) in itertools.product(range(3), itertools.product(grid, grid)):
        uniform = torch.tensor([u, v])
        stand, following = accept(target, draft, torch.tensor([token]), uniform)
        written[token if stand else following] += q[token] / len(grid) ** 2
    torch.testing.assert_close(written, p)


def test_equal_models_accept_everything_and_residuals_of_equals_are_themselves():
    p, _ = tables(0)
    assert acceptance(p, p).tolist() == [1.0] * 3
    torch.testing.assert_close(residual(p, p), p)
    assert accept(p.expand(3, -1), p.expand(2, -1), torch.tensor([0, 2]), torch.rand(3))[0] == 2


def test_a_token_that_the_target_rules_out_is_never_written():
    p, q = torch.tensor([0.0, 0.4, 0.6]), torch.tensor([0.9, 0.1, 0.0])
    for number in torch.linspace(0, 0.999, 50):
        stand, token = accept(
            torch.stack((p, p)), q[None], torch.tensor([0]), torch.stack((number, number))
        )
        assert (stand, token == 0) == (0, False)


def test_the_same_generator_writes_the_same_text_whoever_else_is_asked():
    target, (_, near, _) = drafts()

    def written(prompts):
        strategy = Speculative(near, sampling(3), ahead=3)
        return generate(target, prompts, max_new_tokens=9, strategy=strategy).tokens

    assert torch.equal(written(PROMPTS)[0], written(PROMPTS)[0])
    assert torch.equal(written(PROMPTS)[0], written(PROMPTS[:1])[0]) or len(PROMPTS) > 1


def test_tokens_for_each_pass_are_those_of_the_geometric_series():
    for alpha, ahead in itertools.product((0.0, 0.3, 0.9), (1, 4, 7)):
        expected = (1 - alpha ** (ahead + 1)) / (1 - alpha)
        assert per_pass(alpha, ahead) == pytest.approx(expected)
    with pytest.raises(ValueError, match="a probability"):
        per_pass(1.2, 3)
    with pytest.raises(ValueError, match="at least one proposal"):
        per_pass(0.5, 0)


def test_a_stop_token_ends_a_text_wherever_it_comes():
    target, (same, _, _) = drafts()
    whole = greedy(target, PROMPTS[0], 12)[0]
    stop = whole[5]
    ours = speculate(target, Speculative(same, ahead=8), PROMPTS[0], max_new_tokens=12, stop=[stop])
    assert ours.tokens.tolist() == whole[: whole.index(stop) + 1]


def test_what_does_not_fit_is_refused():
    target = made(Decoder)
    with pytest.raises(ValueError, match="at least 1"):
        Speculative(target, ahead=0)
    other = made(Decoder, SMALL.replace(vocab=VOCAB + 1))
    for wrong, how in (
        (Speculative(other), {}),
        (Speculative(target), {"window": SlidingWindow(4)}),
        (Speculative(target), {"start": 1}),
    ):
        with pytest.raises(ValueError, match=r"same vocabulary|without start"):
            generate(target, [[1]], max_new_tokens=2, strategy=wrong, **how)
    short = made(Decoder, SMALL.replace(positions="learned", max_length=4))
    with pytest.raises(ValueError, match="learned positions"):
        generate(target, [[1, 2]], max_new_tokens=9, strategy=Speculative(short))
    with pytest.raises(ValueError, match="rows of the target"):
        accept(torch.ones(1, 2), torch.ones(1, 2), torch.tensor([0]), torch.rand(1))
    assert target.training is False
