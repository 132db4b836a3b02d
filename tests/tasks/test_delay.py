"""The answer stands so many positions back, and nothing else tells it."""

import math

import pytest
import torch
from measured_transformer.tasks.delay import Delay


def drawn(task, size=2000, **how):
    return task.batch(torch.Generator().manual_seed(0), size, **how)


@pytest.mark.parametrize("delay", [0, 1, 5, 31])
def test_every_scored_answer_is_the_token_so_many_positions_before(delay):
    batch = drawn(Delay(delay=delay))
    for t in range(32):
        assert batch.scored[:, t].all() == (t >= delay)
        if t >= delay:
            assert torch.equal(batch.targets[:, t], batch.inputs[:, t - delay])


def test_no_other_token_tells_the_answer():
    batch = drawn(Delay(vocab=4, length=12, delay=3))
    target = batch.targets[:, 8]
    for t in set(range(12)) - {5}:
        agree = (batch.inputs[:, t] == target).double().mean()
        assert abs(agree - 1 / 4) < 5 * math.sqrt(3 / 16 / 2000)
    assert Delay(vocab=4).blind_loss() == pytest.approx(math.log(4))


def test_another_length_is_another_number_of_answers():
    assert drawn(Delay(delay=5), 3, length=9).scored.sum() == 3 * 4
    with pytest.raises(ValueError, match="got delay=5 and length=5"):
        drawn(Delay(delay=5), 3, length=5)


@pytest.mark.parametrize("wrong", [{"delay": -1}, {"delay": 32}, {"vocab": 0}, {"length": 0}])
def test_sizes_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        Delay(**wrong)
