"""Copying, reversing and sorting: right answers in both forms, and floors by enumeration."""

import itertools
import math
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.tasks.rewriting import (
    CopyED,
    CopyLM,
    ReversalED,
    ReversalLM,
    SortED,
    SortLM,
)

RULES = {CopyLM: list, ReversalLM: lambda x: x[::-1], SortLM: sorted}
SOURCES = {CopyED: CopyLM, ReversalED: ReversalLM, SortED: SortLM}


def drawn(task, size=20, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


@pytest.mark.parametrize("form", RULES)
@given(symbols=st.integers(1, 9), items=st.integers(1, 7), seed=st.integers(0, 10**6))
def test_the_answer_stands_behind_the_separator(form, symbols, items, seed):
    task = form(symbols=symbols, items=items)
    batch = drawn(task, seed=seed)
    assert task.vocab == symbols + 1
    for seen, answers, scored in zip(
        batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist(), strict=True
    ):
        given_, separator = seen[:items], seen[items]
        expected = RULES[form](given_)
        assert separator == task.separator == symbols
        assert seen[items + 1 :] == expected[:-1]
        assert [a for a, s in zip(answers, scored, strict=True) if s] == expected
        assert scored == [False] * items + [True] * items


@pytest.mark.parametrize("form", SOURCES)
@given(symbols=st.integers(1, 9), items=st.integers(1, 7), seed=st.integers(0, 10**6))
def test_the_decoder_writes_the_answer_to_the_source(form, symbols, items, seed):
    task = form(symbols=symbols, items=items)
    batch = drawn(task, seed=seed)
    for source, seen, answers in zip(
        batch.source.tolist(), batch.inputs.tolist(), batch.targets.tolist(), strict=True
    ):
        assert answers == RULES[SOURCES[form]](source)
        assert seen == [symbols, *answers[:-1]]
    assert batch.scored.all()
    assert batch.padding_mask is None


def test_other_lengths():
    assert drawn(ReversalLM(), length=20).inputs.shape == (20, 20)
    longer = drawn(SortED(), length=20)
    assert longer.source.shape == longer.inputs.shape == (20, 20)


def best(vocab, items, answer, view):
    """Loss of the best predictor of each answer token from a view of input and answer so far."""
    seen = defaultdict(Counter)
    for tokens in itertools.product(range(vocab), repeat=items):
        written = answer(list(tokens))
        for i, token in enumerate(written):
            seen[view(tokens, written[:i])][token] += 1
    total = sum(counts.total() for counts in seen.values())
    return (
        -sum(c * math.log(c / counts.total()) for counts in seen.values() for c in counts.values())
        / total
    )


@pytest.mark.parametrize(("symbols", "items"), [(1, 3), (2, 1), (2, 5), (3, 4), (5, 3)])
@pytest.mark.parametrize("form", RULES)
def test_the_floors_are_those_of_every_sequence(form, symbols, items):
    task = form(symbols=symbols, items=items)

    def bag(tokens, written):
        return tuple(sorted((Counter(tokens) - Counter(written)).elements()))

    expected = best(symbols, items, RULES[form], bag)
    assert task.bag_loss() == pytest.approx(expected, abs=1e-12)
    expected = best(symbols, items, RULES[form], lambda tokens, written: tuple(written))
    assert task.blind_loss() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CopyLM(symbols=0), "symbols .* got 0"),
        (lambda: SortED(items=-1), "items .* got -1"),
        (lambda: drawn(ReversalLM(), length=7), "must be even, got 7"),
    ],
)
def test_impossible_tasks_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
