"""Floors against the enumeration of every bag."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.tasks.floors import bag_accuracy, bag_entropy, entropy, noisy_entropy
from measured_transformer.tasks.reversal import Reversal


@pytest.mark.parametrize(
    ("symbols", "candidates"), [(1, 3), (2, 1), (2, 5), (3, 4), (5, 3), (6, 2)]
)
def test_bags_by_enumeration(symbols, candidates):
    costs, hits = [], []
    for bag in itertools.product(range(symbols), repeat=candidates):
        counts = Counter(bag)
        costs.append(-sum(c / candidates * math.log(c / candidates) for c in counts.values()))
        hits.append(max(counts.values()) / candidates)
    assert bag_entropy(symbols, candidates) == pytest.approx(sum(costs) / len(costs), abs=1e-12)
    assert bag_accuracy(symbols, candidates) == pytest.approx(sum(hits) / len(hits), abs=1e-12)


@pytest.mark.parametrize(("vocab", "length"), [(12, 12), (12, 11), (5, 8), (64, 40)])
def test_reversal_without_positions_is_such_a_bag(vocab, length):
    task = Reversal(vocab=vocab, length=length)
    assert bag_entropy(vocab, task.candidates) == pytest.approx(task.bag_loss(), abs=1e-12)
    assert bag_accuracy(vocab, task.candidates) == pytest.approx(task.bag_accuracy(), abs=1e-12)


@given(symbols=st.integers(1, 40), candidates=st.integers(1, 30))
def test_a_bag_tells_something_but_not_all(symbols, candidates):
    loss, accuracy = bag_entropy(symbols, candidates), bag_accuracy(symbols, candidates)
    assert -1e-12 <= loss <= min(math.log(symbols), math.log(candidates)) + 1e-12
    assert max(1 / symbols, 1 / candidates) - 1e-12 <= accuracy <= 1 + 1e-12


@given(symbols=st.integers(1, 40), fidelity=st.floats(0, 1))
def test_the_cost_of_a_noisy_rule(symbols, fidelity):
    chances = [(1 - fidelity) / symbols] * symbols
    chances[-1] += fidelity
    expected = -sum(p * math.log(p) for p in chances if p)
    assert noisy_entropy(symbols, fidelity) == pytest.approx(expected, abs=1e-9)


def test_entropy_of_what_is_certain_and_of_what_is_even():
    assert entropy([1.0, 0.0]) == 0
    assert entropy([0.125] * 8) == pytest.approx(3 * math.log(2))
