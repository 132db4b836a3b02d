"""Counting: each answer is recounted token by token, and all numbers are equally likely."""

import math

import pytest
import torch
from measured_transformer.tasks.counting import Counting


@pytest.mark.parametrize("length", [None, 40])
def test_answers_are_the_numbers_of_occurrences(length):
    task = Counting(symbols=6, asked=3, most=4, told=13)
    batch = task.batch(torch.Generator().manual_seed(0), 50, length=length)
    told = (length or task.length) + 1 - 2 * task.asked
    assert batch.scored[:, told::2].all()
    assert batch.scored.sum() == 50 * 3
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert all(token < 6 for token in row[:told])
        asked = [token - 6 for token in row[told::2]]
        assert len(set(asked)) == 3
        assert [target - 12 for target in targets[told::2]] == [row[:told].count(a) for a in asked]


def test_numbers_places_and_symbols_are_drawn_evenly():
    task = Counting(symbols=5, asked=2, most=2, told=6)
    batch = task.batch(torch.Generator().manual_seed(1), 6000)
    counts = (batch.targets[batch.scored] - 10).bincount(minlength=3) / 12000
    assert torch.allclose(counts, torch.full((3,), 1 / 3), atol=0.02)
    told = batch.inputs[:, :6]
    for symbol in range(5):
        by_place = (told == symbol).float().mean(0)
        assert torch.allclose(by_place, torch.full((6,), 0.2), atol=0.03)
    assert task.blind_loss() == pytest.approx(math.log(3))
    assert task.vocab == 13
    assert int(batch.targets.max()) < task.vocab


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"asked": 8}, "fewer questions than symbols=8"),
        ({"told": 15}, "at least asked \\* most = 16"),
        ({"most": 0}, "most"),
    ],
)
def test_impossible_sizes_are_errors(wrong, message):
    with pytest.raises(ValueError, match=message):
        Counting(**wrong)


def test_too_short_a_row_is_an_error():
    with pytest.raises(ValueError, match="at least asked"):
        Counting().batch(torch.Generator(), 2, length=22)
