"""Cyclic shift and reversal of sequences that differ in length: answers, and floors by enumeration."""

import itertools
import math
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.tasks.shift import CyclicShift
from measured_transformer.tasks.variable_reversal import VariableReversal


def drawn(task, size=20, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


def best_without_positions(sequences, answer):
    """Loss and accuracy of the best predictor that sees its own token and the bag of all others."""
    answers = defaultdict(Counter)
    for sequence in sequences:
        for i, own in enumerate(sequence):
            others = sequence[:i] + sequence[i + 1 :]
            answers[own, tuple(sorted(others))][answer(sequence)[i]] += 1
    total = sum(counts.total() for counts in answers.values())
    loss = -sum(
        c * math.log(c / counts.total()) for counts in answers.values() for c in counts.values()
    )
    return loss / total, sum(max(counts.values()) for counts in answers.values()) / total


@given(
    vocab=st.integers(1, 9),
    length=st.integers(2, 9),
    shift=st.integers(1, 20),
    seed=st.integers(0, 10**6),
)
def test_each_answer_stands_further_on(vocab, length, shift, seed):
    if shift % length == 0:
        shift += 1
    batch = drawn(CyclicShift(vocab, length, shift), seed=seed)
    for tokens, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert answers == [tokens[(i + shift) % length] for i in range(length)]
    assert batch.scored.all()


@pytest.mark.parametrize(
    ("vocab", "length", "shift"), [(2, 2, 1), (2, 6, 1), (3, 4, 1), (3, 4, 2), (3, 5, 3), (4, 4, 3)]
)
def test_the_floors_of_a_shift_are_those_of_every_sequence(vocab, length, shift):
    task = CyclicShift(vocab, length, shift)
    sequences = itertools.product(range(vocab), repeat=length)
    loss, accuracy = best_without_positions(
        sequences, lambda s: s[shift % length :] + s[: shift % length]
    )
    assert task.bag_loss() == pytest.approx(loss, abs=1e-12)
    assert task.bag_accuracy() == pytest.approx(accuracy, abs=1e-12)


@given(
    symbols=st.integers(1, 9),
    shortest=st.integers(1, 6),
    more=st.integers(0, 5),
    seed=st.integers(0, 10**6),
)
def test_the_real_tokens_are_reversed_and_the_rest_is_padding(symbols, shortest, more, seed):
    task = VariableReversal(symbols, shortest, shortest + more)
    batch = drawn(task, seed=seed)
    assert torch.equal(batch.padding_mask, batch.scored)
    for tokens, answers, real in zip(
        batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist(), strict=True
    ):
        n = sum(real)
        assert shortest <= n <= shortest + more
        assert answers[:n] == tokens[:n][::-1]
        assert max(tokens[:n]) < symbols == task.padding
        assert tokens[n:] == answers[n:] == [task.padding] * (task.length - n)


def test_all_lengths_are_equally_likely():
    lengths = drawn(VariableReversal(shortest=3, longest=8), size=6000).scored.sum(1)
    shares = torch.bincount(lengths)[3:] / 6000
    assert len(shares) == 6
    assert (shares - 1 / 6).abs().max() < 5 * math.sqrt(5 / 36 / 6000)
    longer = drawn(VariableReversal(shortest=3, longest=8), size=200, length=20)
    assert longer.inputs.shape == (200, 20)
    assert longer.scored.sum(1).max() > 8


@pytest.mark.parametrize(
    ("symbols", "shortest", "longest"), [(2, 1, 1), (2, 2, 5), (3, 1, 4), (4, 3, 4)]
)
def test_the_floor_of_different_lengths_is_that_of_every_sequence(symbols, shortest, longest):
    total = positions = 0.0
    for n in range(shortest, longest + 1):
        sequences = itertools.product(range(symbols), repeat=n)
        loss, _ = best_without_positions(sequences, lambda s: s[::-1])
        total, positions = total + n * loss, positions + n
    task = VariableReversal(symbols, shortest, longest)
    assert task.bag_loss() == pytest.approx(total / positions, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CyclicShift(shift=12), "shift by 12 .* length 12"),
        (lambda: CyclicShift(length=1), "leave every token in place"),
        (lambda: drawn(CyclicShift(shift=3), length=3), "shift by 3 .* length 3"),
        (lambda: CyclicShift(shift=0), "shift .* got 0"),
        (lambda: VariableReversal(shortest=5, longest=4), "shortest=5 tokens, got 4"),
        (lambda: drawn(VariableReversal(), length=3), "shortest=4 tokens, got 3"),
    ],
)
def test_impossible_tasks_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
