"""Markov sources: tables, frequencies, and entropy rates by counting and by enumeration."""

import itertools
import math

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from measured_transformer.tasks.hidden_markov import HiddenMarkov
from measured_transformer.tasks.markov import Markov, chosen, stationary


def drawn(task, size=20, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


@given(
    vocab=st.integers(1, 12),
    branching=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    sharpness=st.sampled_from([0.0, 1.0, 3.0]),
    rule_seed=st.integers(0, 10**6),
)
def test_the_table_has_as_many_successors_as_it_says(vocab, branching, sharpness, rule_seed):
    branching = tuple(min(b, vocab) for b in branching)
    task = Markov(vocab, 8, branching, sharpness, rule_seed)
    chances = task.transitions()
    assert torch.equal(chances, task.transitions())
    assert (chances.sum(1) - 1).abs().max() < 1e-12
    for token, row in enumerate(chances):
        count = branching[token % len(branching)]
        assert (row > 0).sum() == count
        if sharpness == 0:
            assert (row[row > 0] - 1 / count).abs().max() < 1e-12
    reached = {0}
    for _ in range(vocab):
        reached |= {int(j) for i in reached for j in chances[i].nonzero()}
    assert reached == set(range(vocab)), "every token can be reached"
    often = stationary(chances)
    assert (often @ chances - often).abs().max() < 1e-9
    assert often.sum().item() == pytest.approx(1)
    assert often.min() > 0


def test_sequences_follow_the_table_from_the_first_token_on():
    task = Markov(vocab=4, length=6, branching=(2, 3), sharpness=1.0)
    chances, often = task.transitions(), stationary(task.transitions())
    batch = drawn(task, size=20000)
    for t in range(6):
        shares = torch.bincount(batch.inputs[:, t], minlength=4) / 20000
        assert (shares - often).abs().max() < 0.02, "as often at the beginning as in the long run"
        for token in range(4):
            after = batch.targets[batch.inputs[:, t] == token, t]
            spread = 5 * math.sqrt(0.25 / len(after))
            found = torch.bincount(after, minlength=4) / len(after)
            assert (found - chances[token]).abs().max() < spread
            assert ((found > 0) <= (chances[token] > 0)).all()


def test_equally_likely_successors_make_the_perplexity_their_geometric_mean():
    assert math.exp(Markov(branching=(4,)).entropy_rate()) == pytest.approx(4)
    mixed = Markov(vocab=16, branching=(2, 8))
    often = stationary(mixed.transitions())
    even = often[::2].sum().item()
    assert math.exp(mixed.entropy_rate()) == pytest.approx(2**even * 8 ** (1 - even))
    assert Markov(branching=(1,)).entropy_rate() == 0


def test_the_entropy_rate_is_the_cost_of_a_long_sequence():
    task = Markov(vocab=6, branching=(2, 5), sharpness=1.0)
    losses = task.ideal_losses(drawn(task, size=200, length=400))
    assert losses.shape == (200, 400)
    assert task.entropy_rate() == pytest.approx(losses.mean().item(), abs=0.01)
    assert task.entropy_rate() < task.unigram_loss()


def test_the_entropies_by_enumeration_of_all_sequences():
    task = Markov(vocab=3, branching=(2,), sharpness=1.0)
    chances, often = task.transitions().tolist(), stationary(task.transitions()).tolist()
    entropies = []
    for n in (1, 4, 5):
        cost = 0.0
        for word in itertools.product(range(3), repeat=n):
            p = often[word[0]] * math.prod(chances[a][b] for a, b in itertools.pairwise(word))
            cost -= p * math.log(p) if p else 0
        entropies.append(cost)
    assert task.unigram_loss() == pytest.approx(entropies[0])
    assert task.entropy_rate() == pytest.approx(entropies[2] - entropies[1])


def test_a_choice_never_has_no_chance():
    chances = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]], dtype=torch.float64)
    draws = torch.tensor([0.0, 0.4999, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert [chosen(u[None], chances).item() for u in draws] == [1, 1, 3, 3]


# --- hidden ---------------------------------------------------------------------------------------


def probability(task, word):
    """The chance of a word, summed over every sequence of hidden states."""
    moves, shows = task.transitions().tolist(), task.emissions().tolist()
    often = stationary(task.transitions()).tolist()
    return sum(
        often[path[0]]
        * math.prod(moves[a][b] for a, b in itertools.pairwise(path))
        * math.prod(shows[s][x] for s, x in zip(path, word, strict=True))
        for path in itertools.product(range(task.states), repeat=len(word))
    )


SMALL = HiddenMarkov(states=2, vocab=3, length=5, stay=0.6)


def test_beliefs_and_costs_by_enumeration_of_all_states():
    batch = drawn(SMALL, size=6)
    beliefs, losses = SMALL.beliefs(batch), SMALL.ideal_losses(batch)
    assert (beliefs.sum(2) - 1).abs().max() < 1e-12
    for i, row in enumerate(batch.inputs.tolist()):
        word = [*row, batch.targets[i, -1].item()]
        for t in range(1, len(word)):
            chance = probability(SMALL, word[: t + 1]) / probability(SMALL, word[:t])
            assert losses[i, t - 1].item() == pytest.approx(-math.log(chance))


def test_costs_with_a_short_past_by_enumeration_of_all_words():
    def block(n):
        chances = [probability(SMALL, word) for word in itertools.product(range(3), repeat=n)]
        assert sum(chances) == pytest.approx(1)
        return -sum(p * math.log(p) for p in chances)

    expected = [block(n + 1) - block(n) for n in (1, 2, 3, 4)]
    assert SMALL.bayes_losses(4).tolist() == pytest.approx(expected)
    assert expected == sorted(expected, reverse=True), "a longer past never costs"


def test_the_entropy_rate_is_where_the_costs_go():
    for task in (SMALL, HiddenMarkov()):
        rate = task.entropy_rate(tolerance=2e-3)
        losses = task.ideal_losses(drawn(task, size=400, length=300))[:, 50:]
        assert rate == pytest.approx(losses.mean().item(), abs=0.012)
        assert rate <= task.bayes_losses(5)[-1] + 2e-3


@settings(max_examples=15)
@given(rule_seed=st.integers(0, 10**6))
def test_the_rate_lies_where_it_says(rule_seed):
    task = HiddenMarkov(states=2, vocab=2, stay=0.3, rule_seed=rule_seed)
    try:
        fine = task.entropy_rate(tolerance=1e-3)
    except ValueError:
        reject()  # a memory too long to enumerate; that it says so is tested below
    assert abs(task.entropy_rate(tolerance=0.05) - fine) <= 0.05 + 1e-3
    assert 0 <= fine <= task.bayes_losses(8)[-1] + 1e-3


def test_states_that_show_themselves_make_it_a_markov_source():
    class Open(HiddenMarkov):
        def emissions(self):
            return torch.eye(3, dtype=torch.float64)

    task = Open(states=3, vocab=3)
    moves = task.transitions()
    expected = (stationary(moves) * torch.special.entr(moves).sum(1)).sum().item()
    assert task.entropy_rate(tolerance=1e-9) == pytest.approx(expected)
    batch = drawn(task)
    assert torch.equal(batch.inputs, batch.gold["state"])


def test_hidden_states_and_tokens_follow_their_tables():
    task = HiddenMarkov(states=3, vocab=4, length=8)
    batch = drawn(task, size=8000)
    states, tokens = batch.gold["state"], batch.inputs
    for s in range(3):
        here = states == s
        share = here.double().mean().item()
        assert share == pytest.approx(stationary(task.transitions())[s].item(), abs=0.03)
        shown = torch.bincount(tokens[here], minlength=4) / here.sum()
        assert (shown - task.emissions()[s]).abs().max() < 0.02
        after = states[:, 1:][here[:, :-1]]
        moved = torch.bincount(after, minlength=3) / len(after)
        assert (moved - task.transitions()[s]).abs().max() < 0.02
    assert task.transitions().diagonal().min() >= task.stay


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Markov(branching=()), r"branching=\(\)"),
        (lambda: Markov(vocab=4, branching=(5,)), r"between 1 and vocab=4, got branching=\(5,\)"),
        (lambda: Markov(branching=(0,)), r"branching=\(0,\)"),
        (lambda: Markov(sharpness=-1.0), "sharpness .* got -1.0"),
        (lambda: HiddenMarkov(sharpness=-1.0), "sharpness .* got -1.0"),
        (lambda: HiddenMarkov(stay=1.0), "below 1, got 1.0"),
        (lambda: HiddenMarkov(states=0), "states .* got 0"),
        (lambda: HiddenMarkov(vocab=10).bayes_losses(9), "at most 5, got 10"),
        (
            lambda: HiddenMarkov(vocab=20, stay=0.99).entropy_rate(tolerance=1e-6),
            "tolerance=1e-06: ask for less",
        ),
    ],
)
def test_impossible_sources_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
