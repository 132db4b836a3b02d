"""The answer is the value that a key was told with last, however often it was told before."""

import math

import pytest
import torch
from measured_transformer.tasks.overwritten_recall import OverwrittenRecall


def drawn(task, size=64, seed=0, **how):
    return task.batch(torch.Generator().manual_seed(seed), size, **how)


@pytest.mark.parametrize(("told", "queries", "keys"), [(1, 1, 1), (6, 3, 2), (9, 2, 8)])
def test_a_dictionary_that_reads_along_answers_everything(told, queries, keys):
    task = OverwrittenRecall(told, queries, keys, values=5)
    batch = drawn(task)
    assert batch.inputs.shape == (64, task.length)
    names = ("pair", "told")
    for row, targets, scored, place, times in zip(
        batch.inputs,
        batch.targets,
        batch.scored,
        *(batch.gold[name] for name in names),
        strict=True,
    ):
        known, heard = {}, []
        for t, token in enumerate(row.tolist()):
            if t < told:
                key, value = divmod(token - keys - 5, 5)
                known[key] = (t, keys + value)
                heard.append(key)
                assert (scored[t], place[t], times[t]) == (False, -1, -1)
            else:
                assert scored[t]
                assert (place[t], targets[t]) == known[token]
                assert times[t] == heard.count(token)


def test_all_tokens_come_up():
    task = OverwrittenRecall(4, 2, keys=3, values=4)
    batch = drawn(task, 400)
    met = set(batch.inputs.flatten().tolist()) | set(batch.targets[batch.scored].tolist())
    assert met == set(range(task.vocab))
    assert task.blind_loss() == math.log(4)


def test_another_length_is_another_number_of_pairs():
    task = OverwrittenRecall(told=2, queries=1)
    assert drawn(task, length=9).gold["pair"].max() == 7
    with pytest.raises(ValueError, match="no room"):
        drawn(task, length=1)


@pytest.mark.parametrize("wrong", [{"told": 0}, {"keys": True}, {"values": -1}, {"queries": 1.5}])
def test_impossible_sizes_are_errors(wrong):
    with pytest.raises(ValueError, match=r"expected|must be"):
        OverwrittenRecall(**wrong)
