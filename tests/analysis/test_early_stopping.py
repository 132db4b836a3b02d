"""Runs that end when they have solved their task, against the whole ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_transformer.analysis.early_stopping import solve_arms, train_until_solved
from measured_transformer.analysis.solving import solved
from measured_transformer.chapters.norm_gradients.measure import EqualRates, equal_gradients
from measured_transformer.evidence.profile import Profile
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import train
from measured_transformer.training.schedules import Constant
from measured_transformer.training.tuning import Arm

TASK = Reversal(vocab=3, length=3)
CONFIG = Config(vocab=3, d_model=16, n_layers=1, n_heads=2, activation="relu")
TWO = CONFIG.replace(n_layers=2)  # one block has nothing to be made equal to
OPTIONS = {"learning_rate": 1e-2, "batch_size": 16, "schedule": Constant(warmup=10)}


def same(one, other):
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("prepare", [None, equal_gradients, EqualRates(TASK, size=8)])
@pytest.mark.parametrize("optimiser", ["AdamW", "SGD"])
def test_a_run_that_stops_is_the_beginning_of_the_whole_one(prepare, optimiser):
    options = {**OPTIONS, "prepare": prepare, "optimiser": optimiser}
    whole = train(TWO, TASK, steps=60, seed=3, **options)
    part = train_until_solved(TWO, TASK, 3, steps=60, look_every=13, **options)
    n = len(part.losses)
    assert np.array_equal(part.losses, whole.losses[:n])
    assert same(part, train(TWO, TASK, steps=n, seed=3, **options))
    if prepare is not None:  # it changes something, also behind the first look
        bare = train(TWO, TASK, steps=60, seed=3, **{**options, "prepare": None})
        assert not np.array_equal(bare.losses[:n], part.losses)


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


def test_arms_get_the_rate_that_was_tuned_and_their_own_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arms = {"plain": CONFIG, "SGD": Arm(CONFIG, {"optimiser": "SGD"})}
    options = {"batch_size": 8, "schedule": Constant(warmup=5)}
    grid = {"steps": 60, "tuned_at": 12, "rates": (1e-5, 1e-2)}
    found = solve_arms("test", arms, TASK, profile=Profile(), quick=2, **grid, **options)
    assert [len(runs) for runs in found.values()] == [2, 2]
    assert [run.seed for run in found["plain"]] == Profile().seeds(quick=2)
    assert found["plain"][0].rates.max() == pytest.approx(1e-2)
    again = train(CONFIG, TASK, steps=60, seed=0, learning_rate=1e-2, optimiser="SGD", **options)
    first = found["SGD"][0].losses
    assert np.array_equal(first, again.losses[: len(first)])
