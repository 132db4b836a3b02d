"""A pair is one token that says its key and its value; everything else is associative recall."""

import pytest
import torch
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.recall import AssociativeRecall


def drawn(task, size=64, seed=0, **how):
    return task.batch(torch.Generator().manual_seed(seed), size, **how)


@pytest.mark.parametrize("between", [0, 1, 5])
@pytest.mark.parametrize(("pairs", "queries"), [(1, 1), (4, 1), (4, 3)])
def test_taken_apart_it_is_recall(between, pairs, queries):
    task = JoinedRecall(pairs, queries, keys=6, values=5, between=between)
    batch, recall = drawn(task), drawn(AssociativeRecall(pairs, queries, keys=6, values=5))
    assert batch.inputs.shape[1] == task.length
    key = (batch.inputs[:, :pairs] - 12).div(5, rounding_mode="floor")
    value = 6 + (batch.inputs[:, :pairs] - 12) % 5
    told = torch.stack([key, value], 2).flatten(1)
    assert (batch.inputs[:, pairs : pairs + between] == 11).all()
    rest = batch.inputs[:, pairs + between :]
    assert torch.equal(torch.cat([told, rest], 1), recall.inputs)
    assert torch.equal(batch.targets[batch.scored], recall.targets[recall.scored])
    for row, scored, targets, place in zip(
        batch.inputs, batch.scored, batch.targets, batch.gold["pair"], strict=True
    ):
        assert scored.sum() == queries
        assert torch.equal(row[place[scored]], 12 + 5 * row[scored] + targets[scored] - 6)
        assert (place[~scored] == -1).all()


def test_all_tokens_come_up_and_floors_are_those_of_recall():
    task = JoinedRecall(2, 2, keys=3, values=4, between=1)
    assert set(drawn(task, 400).inputs.flatten().tolist()) == set(range(task.vocab))
    recall = AssociativeRecall(2, 2, keys=3, values=4)
    assert (task.bag_loss(), task.blind_loss()) == (recall.bag_loss(), recall.blind_loss())


def test_another_length_is_another_number_of_pairs():
    task = JoinedRecall(pairs=2, queries=1, keys=8, between=2)
    assert drawn(task, length=task.length + 3).gold["pair"].max() == 4
    with pytest.raises(ValueError, match="no room"):
        drawn(task, length=3)
    with pytest.raises(ValueError, match="at most as many as keys"):
        drawn(task, length=task.length + 7)


@pytest.mark.parametrize(
    "wrong", [{"between": -1}, {"between": True}, {"values": 0}, {"pairs": 9}, {"queries": 5}]
)
def test_impossible_sizes_are_errors(wrong):
    with pytest.raises(ValueError, match=r"expected|must be"):
        JoinedRecall(**wrong)
