"""Products of permutations against a game played by hand, move by move."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from measured_transformer.tasks.permutations import PermutationProducts


def drawn(task: PermutationProducts, size: int = 64, **options):
    return task.batch(torch.Generator().manual_seed(3), size, **options)


def test_the_moves_are_all_swaps_and_one_that_changes_nothing():
    for objects in (2, 3, 4, 5):
        moves = PermutationProducts(objects=objects).reorderings().tolist()
        assert moves[0] == list(range(objects))
        assert len(moves) == 1 + math.comb(objects, 2)
        assert all(sum(i != to for i, to in enumerate(move)) == 2 for move in moves[1:])


@pytest.mark.parametrize("start", [0, 1, 2])
@pytest.mark.parametrize("moves", ["swaps", "all"])
def test_the_answer_is_where_the_ball_is_when_the_cups_themselves_are_moved(start, moves):
    task = PermutationProducts(objects=3, length=7, moves=moves, start=start)
    batch, table = drawn(task), task.reorderings().tolist()
    for tokens, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        cups = ["ball" if place == start else "" for place in range(3)]
        for token, answer in zip(tokens, answers, strict=True):
            moved = list(cups)
            for place, to in enumerate(table[token]):
                moved[to] = cups[place]
            cups = moved
            assert cups.index("ball") == answer


def test_the_order_is_that_of_matrices_multiplied():
    task = PermutationProducts(objects=4, length=5, moves="all", asked="order")
    every = list(itertools.permutations(range(4)))
    matrices = torch.zeros(24, 4, 4)
    for number, permutation in enumerate(every):
        matrices[number, list(permutation), range(4)] = 1  # column: from, row: to
    batch = drawn(task)
    for tokens, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        product = torch.eye(4)
        for token, answer in zip(tokens, answers, strict=True):
            product = matrices[token] @ product
            assert torch.equal(matrices[answer], product)


def test_the_order_of_the_moves_matters():
    task = PermutationProducts(objects=3, length=2, asked="order")
    batch = drawn(task, 200)
    results = {}
    for tokens, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        results[tuple(tokens)] = answers[-1]
    assert results[1, 2] != results[2, 1]


def test_all_answers_become_equally_likely():
    task = PermutationProducts(objects=3, length=6)
    last = drawn(task, 4000).targets[:, -1]
    assert torch.bincount(last).div(4000).allclose(torch.full((3,), 1 / 3), atol=0.03)
    assert task.blind_loss() == pytest.approx(math.log(3))
    assert PermutationProducts(asked="order").blind_loss() == pytest.approx(math.log(6))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objects": 1}, "two to five objects, got objects=1"),
        ({"objects": 6}, "two to five objects, got objects=6"),
        ({"start": 3}, "start from 0 to 2, got 3"),
        ({"length": 0}, "length"),
    ],
)
def test_what_makes_no_game_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        PermutationProducts(**wrong)


def test_another_length_can_be_drawn():
    assert drawn(PermutationProducts(), 2, length=9).inputs.shape == (2, 9)
