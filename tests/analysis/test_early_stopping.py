"""Runs that end when they have solved their task, against the whole ones."""

from __future__ import annotations

import numpy as np
import pytest
from measured_transformer.analysis.early_stopping import train_until_solved
from measured_transformer.analysis.solving import solved
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import train
from measured_transformer.training.schedules import Constant

TASK = Reversal(vocab=3, length=3)
CONFIG = Config(vocab=3, d_model=16, n_layers=1, n_heads=2, activation="relu")
OPTIONS = {"learning_rate": 1e-2, "batch_size": 16, "schedule": Constant(warmup=10)}


def test_it_stops_at_the_first_look_at_which_the_task_is_solved():
    whole = train(CONFIG, TASK, steps=300, seed=3, **OPTIONS)
    part = train_until_solved(CONFIG, TASK, 3, steps=300, look_every=15, **OPTIONS)
    when = solved([whole]).steps[0]
    assert 15 < when < 200  # or the test would show nothing
    assert solved([part]).steps[0] == when
    assert len(part.losses) == 15 * np.ceil(when / 15)


def test_it_ends_after_all_steps_when_the_task_is_never_solved():
    part = train_until_solved(CONFIG, TASK, 3, steps=25, look_every=10, **OPTIONS)
    assert len(part.losses) == 25
    assert not solved([part]).observed.any()


def test_a_run_that_diverges_is_not_continued():
    part = train_until_solved(
        CONFIG, TASK, 3, steps=40, look_every=20, learning_rate=1e30, batch_size=16, clip=None
    )
    assert part.diverged
    assert len(part.losses) <= 20


@pytest.mark.parametrize("every", [5, 50])
def test_looks_that_make_no_sense_are_refused(every):
    with pytest.raises(ValueError, match="look_every"):
        train_until_solved(CONFIG, TASK, 3, steps=40, look_every=every, **OPTIONS)
