"""The two tasks about order, answer by answer."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from measured_transformer.tasks.order import Duplicates, PlaceMap
from measured_transformer.tasks.task import Task


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("task", [PlaceMap(), Duplicates()])
def test_they_are_tasks_that_repeat_themselves_from_the_same_seed(task: Task) -> None:
    assert isinstance(task, Task)
    assert not task.causal
    a, b = task.batch(generator(), 4), task.batch(generator(), 4)
    assert torch.equal(a.inputs, b.inputs)
    assert torch.equal(a.targets, b.targets)
    assert a.inputs.shape == (4, 12)
    assert a.scored.all()
    assert int(a.inputs.max()) < task.vocab > int(a.targets.max())
    assert not torch.equal(a.inputs, task.batch(generator(1), 4).inputs)


@pytest.mark.parametrize("block", [1, 2, 6])
def test_the_place_chooses_the_map(block: int) -> None:
    task = PlaceMap(vocab=7, length=12, block=block)
    first, second = task.maps().tolist()
    assert sorted(first) == sorted(second) == list(range(7))
    assert all(a != b for a, b in zip(first, second, strict=True))
    batch = task.batch(generator(), 20)
    for tokens, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        for p, (token, answer) in enumerate(zip(tokens, answers, strict=True)):
            assert answer == (second if (p // block) % 2 else first)[token]


def test_another_rule_seed_is_another_rule() -> None:
    assert not torch.equal(PlaceMap().maps(), PlaceMap(rule_seed=1).maps())


def test_blind_answers_are_right_half_of_the_time() -> None:
    task = PlaceMap(vocab=5, length=4)
    batch = task.batch(generator(), 5000)
    blind = task.maps()[0][batch.inputs]
    assert (blind == batch.targets).double().mean().item() == task.blind_accuracy()
    assert task.blind_loss() == pytest.approx(-math.log(0.5))


def test_duplicates_are_counted_as_anyone_would() -> None:
    task = Duplicates(vocab=6, length=5)
    batch = task.batch(generator(), 200)
    for tokens, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert answers == [int(tokens.count(token) > 1) for token in tokens]


def test_duplicates_do_not_care_for_order() -> None:
    task = Duplicates()
    batch = task.batch(generator(), 1)
    order = torch.randperm(12, generator=generator(1))
    shuffled = batch.inputs[:, order]
    same = (shuffled[:, :, None] == shuffled[:, None, :]).sum(-1) > 1
    assert torch.equal(batch.targets[:, order], same.long())


def test_the_constant_loss_by_enumeration() -> None:
    task = Duplicates(vocab=3, length=4)
    answers = [s.count(t) > 1 for s in itertools.product(range(3), repeat=4) for t in s]
    share = sum(answers) / len(answers)
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert task.constant_loss() == pytest.approx(entropy)
    assert Duplicates(vocab=5, length=1).constant_loss() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: PlaceMap(vocab=1),
        lambda: PlaceMap(length=9),
        lambda: PlaceMap(length=12, block=4),
        lambda: PlaceMap(block=0),
        lambda: Duplicates(vocab=1),
        lambda: Duplicates(length=0),
    ],
)
def test_sizes_that_make_no_task_are_refused(make: object) -> None:
    with pytest.raises(ValueError, match="got"):
        make()  # type: ignore[operator]
