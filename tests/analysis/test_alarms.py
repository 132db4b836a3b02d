"""Alarms against hand-made runs; signals against what training itself says."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.alarms import (
    SIGNALS,
    Recorded,
    Recorder,
    jumps,
    signals_of,
    solved_before,
    spike_onsets,
    worth,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import train

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=1, n_heads=2)
GIVEN = {"learning_rate": 0.01, "seed": 3, "batch_size": 4, "clip": None}


def test_a_jump_is_measured_from_the_median_before_it_alone():
    found = jumps(np.array([1.0, 5.0, 2.0, 9.0, 2.0]), window=3)
    assert np.isnan(found[:3]).all()
    assert found[3:].tolist() == [9 - 2, 2 - 5]


def test_a_spike_begins_once_and_only_in_a_model_that_has_learned():
    losses = np.full(120, 0.01)
    losses[:30] = 1.6
    losses[70:80] = 0.5
    losses[105] = 0.5
    assert spike_onsets(losses) == [70, 105]
    assert spike_onsets(losses, rise=1.0) == []
    assert not solved_before(losses)[:40].any()
    assert solved_before(losses)[60:70].all()


def test_recording_changes_nothing_and_is_right():
    steps = 6
    bare = train(CONFIG, TASK, steps=steps, **GIVEN)
    run = train(
        CONFIG, TASK, steps=steps, **GIVEN, prepare=Recorded(steps), after_step=Recorder(TASK)
    )
    assert run.losses.tolist() == bare.losses.tolist()
    found = signals_of(run)
    assert tuple(found) == SIGNALS
    assert found["gradient"].tolist() == run.gradient_norms.tolist()
    assert found["surprise"][0] == pytest.approx(
        1.0, abs=0.05
    )  # the average is the gradient itself
    before = train(CONFIG, TASK, steps=steps - 1, **GIVEN)
    moved = [
        (b - a).reshape(-1)
        for a, b in zip(before.model.parameters(), run.model.parameters(), strict=True)
    ]
    expected = float(torch.cat(moved).square().mean().sqrt()) / 0.01
    assert found["update"][-1] == pytest.approx(expected, rel=1e-4)
    assert not hasattr(run.model, "recorder_state")


def test_warnings_and_false_alarms_are_counted_apart():
    alarm = np.zeros(100, dtype=bool)
    alarm[[10, 12, 40, 47, 50, 70]] = True
    found = worth(alarm, [50, 90], np.ones(100, dtype=bool))
    assert found.spikes == 2
    assert found.leads == (10,)  # 40 to 49 are before the spike; the alarm at 50 is too late
    assert found.false_alarms == 1  # 12 belongs to 10; 47 warned; 70 lies within 30 steps after
    assert found.calm == 40
