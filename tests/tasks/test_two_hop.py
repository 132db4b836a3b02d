"""Two hops in joined pairs: the answer follows from the pairs that gold names, and from nothing less."""

import pytest
import torch
from measured_transformer.tasks.two_hop import JoinedTwoHop


def drawn(task: JoinedTwoHop, size: int = 200, **kwargs):
    return task.batch(torch.Generator().manual_seed(0), size, **kwargs)


@pytest.mark.parametrize("task", [JoinedTwoHop(), JoinedTwoHop(chains=3, names=5, values=2)])
def test_the_answer_is_at_the_end_of_the_path(task):
    batch = drawn(task)
    first, second = task.names + task.values, task.names + task.values + task.names**2
    assert batch.scored.sum(1).eq(task.chains).all()
    for row, place in batch.scored.nonzero().tolist():
        key = batch.inputs[row, place].item()
        one, other = (
            batch.inputs[row, batch.gold[name][row, place]].item() for name in ("bridge", "value")
        )
        assert first <= one < second <= other < task.vocab
        start, bridge = divmod(one - first, task.names)
        middle, value = divmod(other - second, task.values)
        assert start == key
        assert middle == bridge
        assert batch.targets[row, place].item() == task.names + value


def test_each_key_is_asked_for_once_and_its_answer_follows():
    task = JoinedTwoHop(chains=3, names=4, values=4)
    batch = drawn(task)
    keys = batch.inputs[:, 6::2]
    assert (keys < 4).all()
    assert (keys.sort(1).values.diff(dim=1) > 0).all()
    assert torch.equal(batch.inputs[:, 7::2], batch.targets[:, 6:-1:2])


def test_both_kinds_of_pairs_stand_anywhere():
    task = JoinedTwoHop()
    pairs = drawn(task).inputs[:, :4]
    late = pairs >= task.names + task.values + task.names**2
    share = late.double().mean(0)
    assert late.sum(1).eq(2).all()
    assert ((share > 0.35) & (share < 0.65)).all()


def test_the_floor_is_that_of_who_knows_the_values_left():
    task = JoinedTwoHop(chains=2, names=2, values=2)
    # Two values left: with a half they differ, and then either is as likely; with one left nothing is open.
    assert task.bag_loss() == pytest.approx(0.5 * torch.tensor(2.0).log().item() / 2)


def test_sizes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="at most as many as names=3, got 4"):
        JoinedTwoHop(chains=4)
    with pytest.raises(ValueError, match="multiple of four positions, got length=8"):
        drawn(JoinedTwoHop(), 2, length=8)
    assert drawn(JoinedTwoHop(), 2, length=11).inputs.shape == (2, 11)
