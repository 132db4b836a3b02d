"""Who trains what: an accelerator large stacks and large models, the cores beside it what is left."""

import pytest
from measured_transformer.measuring.dividing import can_stack, device_seconds, parts_of, suits_cores
from measured_transformer.measuring.jobs import job
from measured_transformer.models.config import Config
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.jobs import Job


def one(width: int = 16, **options: object) -> Job:
    dropout = float(options.pop("dropout", 0.0))  # type: ignore[arg-type]
    config = Config(vocab=8, d_model=width, n_layers=2, positions="rotary", dropout=dropout)
    return job(config, Lag(vocab=8, lag=3), 0, steps=100, learning_rate=0.01, **options)


@pytest.mark.parametrize(
    ("given", "members", "on_cores"),
    [
        (one(), 1, True),
        (one(), 2, True),
        (one(), 60, False),
        (one(dropout=0.1), 60, True),  # cannot be stacked: sixty times alone
        (one(width=512), 1, False),
    ],
)
def test_few_small_ones_are_left_to_the_cores(given: Job, members: int, on_cores: bool):
    assert suits_cores(given, members, 16) is on_cores


def test_one_core_beside_an_accelerator_gets_less():
    assert suits_cores(one(), 2, 16)
    assert not suits_cores(one(), 2, 1)


def test_a_stack_takes_little_more_than_one_and_what_cannot_be_stacked_takes_each_its_time():
    assert device_seconds(one(), 60) < 2 * device_seconds(one(), 1)
    alone = one(dropout=0.1)
    assert not can_stack(alone)
    assert parts_of(alone, 3) == [1, 1, 1]
    assert device_seconds(alone, 60) == pytest.approx(60 * device_seconds(alone, 1))


def test_more_than_a_stack_may_have_are_two():
    assert parts_of(one(), 70) == [64, 6]
