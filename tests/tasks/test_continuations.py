"""A token of the string is asked about, and what stood behind it answers; nothing else there matters."""

import math

import pytest
import torch
from measured_transformer.tasks.continuations import Continuations
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.permuted_answers import PermutedAnswers


def test_answers_stand_behind_their_questions():
    task = Continuations(vocab=12, string=6, questions=3)
    batch = task.batch(torch.Generator().manual_seed(0), 200)
    assert batch.inputs.shape == (200, task.length) == (200, 11)
    string = batch.inputs[:, :6]
    assert all(len(set(row)) == 6 for row in string.tolist())
    for row in range(200):
        for place in batch.scored[row].nonzero()[:, 0].tolist():
            key, value = (int(batch.gold[name][row, place]) for name in ("key", "value"))
            assert value == key + 1 < 6
            assert batch.inputs[row, place] == string[row, key]
            assert batch.targets[row, place] == string[row, value]
    assert batch.scored.sum(1).tolist() == [3] * 200
    assert (batch.gold["key"][~batch.scored] == -1).all()


def test_no_question_comes_twice_and_all_are_asked():
    batch = Continuations(vocab=8, string=4, questions=3).batch(
        torch.Generator().manual_seed(1), 50
    )
    asked = batch.gold["key"][batch.scored].view(50, 3)
    assert asked.sort(1).values.tolist() == [[0, 1, 2]] * 50


def test_another_length_is_another_string():
    task = Continuations(vocab=8, string=4, questions=2)
    assert task.batch(torch.Generator(), 3, length=9).inputs.shape == (3, 9)
    assert task.bag_loss() == pytest.approx(math.log(3))
    with pytest.raises(ValueError, match="got 2 for length=5"):
        task.batch(torch.Generator(), 3, length=5)
    with pytest.raises(ValueError, match="questions < string"):
        Continuations(vocab=8, string=4, questions=4)


def test_permuted_answers_are_those_of_the_next_sequence():
    task = JoinedRecall(pairs=3, queries=2)
    own = task.batch(torch.Generator().manual_seed(2), 6)
    found = PermutedAnswers(task).batch(torch.Generator().manual_seed(2), 6)
    assert torch.equal(found.inputs, own.inputs)
    assert torch.equal(found.targets[1:], own.targets[:-1])
    assert torch.equal(found.gold["pair"], own.gold["pair"])
    assert (PermutedAnswers(task).vocab, PermutedAnswers(task).length) == (task.vocab, task.length)
