"""Brackets: every word is balanced, all are equally likely, and the floors follow from their number."""

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.tasks.brackets import Brackets


def drawn(task, size=20, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


def depths(word, kinds):
    """How many brackets are open before each token; None when the word is not balanced."""
    stack, found = [], []
    for token in word:
        found.append(len(stack))
        if token < kinds:
            stack.append(token)
        elif not stack or stack.pop() != token - kinds:
            return None
    return None if stack else found


@given(
    kinds=st.integers(1, 4),
    pairs=st.integers(1, 12),
    max_depth=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_every_word_is_balanced_and_not_too_deep(kinds, pairs, max_depth, seed):
    task = Brackets(kinds, 2 * pairs, max_depth)
    batch = drawn(task, seed=seed)
    assert (batch.inputs[:, 0] == task.start).all()
    for i, word in enumerate(batch.targets.tolist()):
        open_ = depths(word, kinds)
        assert open_ is not None
        assert max(open_) <= max_depth
        assert batch.gold["depth"][i].tolist() == open_
        for t, token in enumerate(word):
            partner = batch.gold["partner"][i, t].item()
            if token < kinds:
                assert partner == -1
            else:
                assert partner <= t
                assert batch.inputs[i, partner].item() == token - kinds
                assert depths(word[partner:t], kinds) is not None, "what lies between is balanced"


@pytest.mark.parametrize(
    ("kinds", "length", "max_depth"), [(1, 6, 3), (1, 8, 2), (2, 4, 2), (2, 6, 2)]
)
def test_all_words_are_equally_likely(kinds, length, max_depth):
    every = [
        word
        for word in itertools.product(range(2 * kinds), repeat=length)
        if (open_ := depths(word, kinds)) is not None and max(open_) <= max_depth
    ]
    task = Brackets(kinds, length, max_depth)
    assert task.words() == len(every)
    found = Counter(map(tuple, drawn(task, size=200 * len(every)).targets.tolist()))
    assert set(found) == set(every)
    expected = 200
    chi_square = sum((count - expected) ** 2 / expected for count in found.values())
    freedom = len(every) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)
    assert task.bayes_loss() == pytest.approx(math.log(len(every)) / length)


def test_words_without_a_limit_are_counted_by_catalan():
    for pairs in range(1, 9):
        catalan = math.comb(2 * pairs, pairs) // (pairs + 1)
        assert Brackets(3, 2 * pairs, max_depth=pairs).words() == catalan * 3**pairs
    assert Brackets(1, 10, max_depth=1).words() == 1


def test_the_costs_of_a_word_sum_to_the_same_for_every_word():
    task = Brackets(kinds=2, length=10, max_depth=3)
    losses = task.ideal_losses(drawn(task, size=50))
    assert losses.sum(1).tolist() == pytest.approx([math.log(task.words())] * 50)
    assert losses[:, 0].tolist() == pytest.approx([math.log(2)] * 50), "the first one opens"
    longer = task.ideal_losses(drawn(task, length=16))
    assert longer.sum(1).tolist() == pytest.approx([math.log(task.words(16))] * 20)


def test_forgetting_the_kinds_costs_half_their_entropy():
    task = Brackets(kinds=3, length=12)
    batch = drawn(task, size=50)
    closing = batch.gold["partner"] >= 0
    guessed = task.ideal_losses(batch) + closing * math.log(3)
    assert guessed.mean().item() == pytest.approx(task.kindless_loss())
    assert Brackets(kinds=1).kindless_loss() == Brackets(kinds=1).bayes_loss()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Brackets(length=7), "must be even, got 7"),
        (lambda: drawn(Brackets(), length=3), "must be even, got 3"),
        (lambda: Brackets(kinds=0), "kinds .* got 0"),
        (lambda: Brackets(max_depth=0), "max_depth .* got 0"),
    ],
)
def test_impossible_words_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
