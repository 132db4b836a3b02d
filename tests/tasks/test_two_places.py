"""Two places: the label follows both tokens and their order, and neither of them alone says anything."""

import math

import pytest
import torch
from measured_transformer.tasks.task import Task
from measured_transformer.tasks.two_places import TwoPlaces


def drawn(task, size, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


@pytest.mark.parametrize(("near", "far"), [(1, 3), (2, 5), (1, 2)])
def test_the_label_is_the_tables_entry(near, far):
    task = TwoPlaces(vocab=5, length=9, near=near, far=far, rule_seed=2)
    batch, table = drawn(task, 50), task.table().tolist()
    assert batch.scored[0].tolist() == [t >= far for t in range(9)]
    for row, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        for t in range(far, 9):
            assert answers[t] == table[row[t - near]][row[t - far]]


@pytest.mark.parametrize("vocab", [4, 6, 7, 12])
def test_rows_and_columns_of_the_table_are_permutations_and_order_matters(vocab):
    task = TwoPlaces(vocab=vocab)
    table = task.table()
    for lines in (table, table.T):
        assert torch.equal(lines.sort(dim=1).values, torch.arange(vocab).expand(vocab, vocab))
    assert not torch.equal(table, table.T)
    assert torch.equal(table, task.table())
    assert not torch.equal(table, TwoPlaces(vocab=vocab, rule_seed=1).table())


def test_one_token_alone_says_nothing():
    task = TwoPlaces(vocab=4, length=8)
    batch = drawn(task, 4000)
    for back in range(8 - 3):
        token = batch.inputs.roll(back, dims=1)[:, max(3, back) :]
        label = batch.targets[:, max(3, back) :]
        joint = torch.zeros(4, 4).index_put_(
            (token.flatten(), label.flatten()), torch.ones(token.numel()), accumulate=True
        )
        shares = joint / joint.sum(1, keepdim=True)
        assert (shares - math.exp(-task.blind_loss())).abs().max() < 0.03, back


def test_it_is_a_task_for_a_model_that_sees_the_whole_sequence():
    assert isinstance(TwoPlaces(), Task)
    assert TwoPlaces.causal is False
    assert drawn(TwoPlaces(), 3, length=20).inputs.shape == (3, 20)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TwoPlaces(vocab=0), "vocab .* got 0"),
        (lambda: TwoPlaces(near=3, far=3), "near=3 and far=3"),
        (lambda: TwoPlaces(length=3), "3 places back: length must be larger, got 3"),
        (lambda: drawn(TwoPlaces(), 2, length=2), "must be larger, got 2"),
        (lambda: drawn(TwoPlaces(), 0), "size .* got 0"),
    ],
)
def test_impossible_tasks_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
