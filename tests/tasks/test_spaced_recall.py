"""Fillers stand where they are said to stand, and everything else is associative recall."""

import pytest
import torch
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.spaced_recall import SpacedRecall


def drawn(task, size=64, seed=0, **how):
    return task.batch(torch.Generator().manual_seed(seed), size, **how)


@pytest.mark.parametrize(("before", "between"), [(0, 0), (1, 0), (0, 5), (2, 3)])
@pytest.mark.parametrize(("pairs", "queries"), [(1, 1), (4, 1), (4, 3)])
def test_without_its_fillers_it_is_recall(before, between, pairs, queries):
    task = SpacedRecall(pairs, queries, keys=6, values=5, before=before, between=between, fillers=2)
    batch = drawn(task)
    assert batch.inputs.shape[1] == task.length
    filler = batch.inputs >= 11
    places = torch.zeros_like(filler)
    places[:, :before] = True
    places[:, before + 2 * pairs : before + 2 * pairs + between] = True
    assert torch.equal(filler, places)
    told = batch.inputs[~filler].view(64, -1)
    recall = AssociativeRecall(pairs, queries, keys=6, values=5)
    assert told.shape[1] == recall.length
    for row, scored, targets, key, value in zip(
        batch.inputs,
        batch.scored,
        batch.targets,
        batch.gold["key"],
        batch.gold["value"],
        strict=True,
    ):
        assert scored.sum() == queries
        assert torch.equal(row[key[scored]], row[scored])  # the key was told before
        assert torch.equal(row[value[scored]], targets[scored])
        assert torch.equal(value[scored], key[scored] + 1)
        assert (key[~scored] == -1).all()
        assert (value[~scored] == -1).all()


def test_targets_are_the_next_tokens():
    batch = drawn(SpacedRecall(3, 2, before=1, between=4))
    assert torch.equal(batch.targets[:, :-1], batch.inputs[:, 1:])


def test_all_fillers_come_up_and_floors_are_those_of_recall():
    task = SpacedRecall(2, 1, keys=4, values=4, before=3, between=9, fillers=3)
    assert set(drawn(task).inputs.flatten().tolist()) == set(range(11))
    recall = AssociativeRecall(2, 1, keys=4, values=4)
    assert (task.bag_loss(), task.blind_loss()) == (recall.bag_loss(), recall.blind_loss())


def test_another_length_is_another_number_of_pairs():
    task = SpacedRecall(pairs=2, queries=1, keys=8, before=1, between=2)
    assert (drawn(task, length=task.length + 4).gold["value"].max()) > task.length - 4
    with pytest.raises(ValueError, match="odd number"):
        drawn(task, length=task.length + 1)
    with pytest.raises(ValueError, match="no room"):
        drawn(task, length=3)


@pytest.mark.parametrize(
    "wrong", [{"before": -1}, {"between": True}, {"fillers": 0}, {"pairs": 9}, {"queries": 5}]
)
def test_impossible_sizes_are_errors(wrong):
    with pytest.raises(ValueError, match=r"expected|must be"):
        SpacedRecall(**wrong)
