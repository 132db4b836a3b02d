"""Reversal: right answers, and floors against the enumeration of every sequence."""

import itertools
import math
from collections import Counter, defaultdict

import pytest
import torch
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Task


def best_without_positions(vocab, length):
    """Loss and accuracy of the best predictor that sees its own token and the bag of all others.

    Every sequence and every position is enumerated; what looks the same is pooled.
    """
    answers = defaultdict(Counter)
    for sequence in itertools.product(range(vocab), repeat=length):
        for i, own in enumerate(sequence):
            others = sequence[:i] + sequence[i + 1 :]
            answers[own, tuple(sorted(others))][sequence[length - 1 - i]] += 1
    total = length * vocab**length
    loss = -sum(
        count * math.log(count / counts.total())
        for counts in answers.values()
        for count in counts.values()
    )
    right = sum(max(counts.values()) for counts in answers.values())
    return loss / total, right / total


@pytest.mark.parametrize(
    ("vocab", "length"),
    [
        (1, 3),
        (2, 1),
        (2, 2),
        (2, 3),
        (2, 6),
        (2, 7),
        (3, 2),
        (3, 4),
        (3, 5),
        (4, 5),
        (5, 3),
        (5, 4),
    ],
)
def test_the_floors_are_those_of_every_sequence(vocab, length):
    loss, accuracy = best_without_positions(vocab, length)
    task = Reversal(vocab=vocab, length=length)
    assert task.bag_loss() == pytest.approx(loss, abs=1e-12)
    assert task.bag_accuracy() == pytest.approx(accuracy, abs=1e-12)


def test_the_floors_of_the_default_task_agree_with_chance_draws():
    task = Reversal()
    batch = task.batch(torch.Generator().manual_seed(0), 4000)
    losses, hits = [], []
    for row, answer in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        others = Counter(row)
        others[row[0]] -= 1  # the first position looks at the bag of the others
        losses.append(-math.log(others[answer[0]] / 11))
        hits.append(max(range(12), key=lambda token: others[token]) == answer[0])
    losses = torch.tensor(losses)
    hits = torch.tensor(hits).double()
    for drawn, exact in ((losses, task.bag_loss()), (hits, task.bag_accuracy())):
        assert abs(drawn.mean().item() - exact) < 4 * drawn.std().item() / math.sqrt(4000)


def test_a_batch_holds_sequences_and_their_reversals():
    batch = Reversal(vocab=7, length=5).batch(torch.Generator().manual_seed(0), 20)
    assert batch.inputs.shape == (20, 5)
    for row, answer in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert answer == row[::-1]
    assert batch.scored.all()
    assert batch.inputs.unique().tolist() == list(range(7))
    longer = Reversal(vocab=7, length=5).batch(torch.Generator().manual_seed(0), 3, length=9)
    assert longer.inputs.shape == longer.targets.shape == longer.scored.shape == (3, 9)


def test_the_same_generator_state_gives_the_same_batch_and_moves_on():
    task = Reversal()
    state = torch.random.get_rng_state()
    a, b = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    first = task.batch(a, 8)
    assert torch.equal(first.inputs, task.batch(b, 8).inputs)
    assert not torch.equal(first.inputs, task.batch(a, 8).inputs)
    other = task.batch(torch.Generator().manual_seed(6), 8)
    assert not torch.equal(first.inputs, other.inputs)
    assert torch.equal(torch.random.get_rng_state(), state), "the global generator is not touched"


def test_tokens_are_uniform():
    batch = Reversal(vocab=6, length=10).batch(torch.Generator().manual_seed(1), 6000)
    shares = torch.stack([(batch.inputs == token).double().mean(0) for token in range(6)])
    assert (shares - 1 / 6).abs().max() < 5 * math.sqrt(5 / 36 / 6000)


def test_it_is_a_task_for_a_model_that_sees_everything():
    assert isinstance(Reversal(), Task)
    assert Reversal.causal is False


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Reversal(vocab=0), "vocab must be a positive whole number, got 0"),
        (lambda: Reversal(length=-1), "length .* got -1"),
        (lambda: Reversal(length=2.0), "length .* got 2.0"),
        (lambda: Reversal().batch(torch.Generator(), 0), "size .* got 0"),
        (lambda: Reversal().batch(torch.Generator(), 2, length=0), "length .* got 0"),
    ],
)
def test_impossible_sizes_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
