"""A grid of arms: which trainings it asks for, how readings are put together, and what its digest counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from demo_room import Inline, Room
from measured_book.measuring import grid, only
from measured_book.measuring.grids import Trained
from measured_book.measuring.readings import (
    Curve,
    LastLoss,
    Progress,
    Scores,
    asked_rate,
    bounded,
    peak_rate,
    solving,
)
from measured_book.measuring.scheduler import measure_all
from measured_book.measuring.state import CURRENT, status
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.jobs import Job, make_jobs
from measured_transformer.training.loop import evaluate
from measured_transformer.training.schedules import WarmupLinear

TASK = Reversal(vocab=4, length=4)
GRID = '''
"""What this chapter measures."""

from measured_book.measuring import grid, job
from measured_book.measuring.readings import LastLoss
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal

TASK = Reversal(vocab=4, length=4)


def weight(one):
    return {"norm": ("place", [float(p.detach().norm()) for p in one.model.parameters()][:2])}


@grid(
    axes={"arm": ("pre", "post"), "rate": (0.01, 0.02)},
    coords={"place": (0, 1)},
    seeds=3,
    read=[LastLoss(2), weight],
)
def losses(seed, arm, rate):
    """The loss of the last steps.

    And nothing else.
    """
    config = Config(vocab=4, d_model=8, n_heads=2, n_layers=1, placement=arm)
    return job(config, TASK, seed, steps=4, learning_rate=rate)
'''


def cell(seed: int, arm: str, size: int) -> Job:
    """A training."""
    config = Config(vocab=4, d_model=8, n_heads=2, n_layers=size, placement=arm)  # type: ignore[arg-type]
    options = {
        "steps": 12,
        "learning_rate": 0.01,
        "evaluate_every": 4,
        "schedule": WarmupLinear(2, 12),
    }
    return make_jobs(config, TASK, [seed + 5], options)[0]


def test_every_cell_is_trained_and_read_along_the_axes():
    def told(one: Trained) -> dict:
        return {"size": one.labels["size"], "both": ("x", [one.seed, one.job.seed])}

    measured = grid(
        axes={"arm": ("pre", "post"), "size": (1, 2)},
        coords={"x": (0, 1)},
        seeds=4,
        read=[told, only(lambda one: {"post": one.labels["size"] * 10}, arm="post")],
    )(cell)
    assert (measured.name, measured.what) == ("cell", "A training.")
    assert (measured.seeds, measured.repeat) == (4, "opening")
    jobs = measured.jobs(3)
    assert list(jobs) == [("pre", 1), ("pre", 2), ("post", 1), ("post", 2)]
    assert [(job.config.placement, job.config.n_layers, job.seed) for job in jobs.values()] == [
        (arm, size, 8) for arm, size in jobs
    ]
    run = jobs["pre", 1].train()
    found = measured.variables(measured.function(3, dict.fromkeys(jobs, run)))
    axes, values = found["size"]
    assert (axes, values.tolist()) == (("arm", "size"), [[1, 2], [1, 2]])
    axes, values = found["both"]
    assert (axes, values.shape, values[1, 1].tolist()) == (("arm", "size", "x"), (2, 2, 2), [3, 8])
    assert (found["post"][0], found["post"][1].tolist()) == (("size",), [10, 20])


def test_one_axis_has_its_labels_as_names_of_trainings():
    measured = grid(axes={"size": (1, 2)}, seeds=2, read=[asked_rate])(
        lambda seed, size: cell(seed, "pre", size)
    )
    assert list(measured.jobs(0)) == [1, 2]


@pytest.mark.parametrize(
    ("axes", "read", "words"),
    [
        ({}, [asked_rate], "expected axes with labels"),
        ({"arm": ()}, [asked_rate], "expected axes with labels"),
        ({"arm": ("pre",)}, [], "at least one reading"),
        ({"arm": ("pre",)}, [only(asked_rate, arm="post")], "got arm='post'"),
        ({"arm": ("pre",)}, [only(asked_rate, size=2)], "got size=2"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(axes, read, words):
    with pytest.raises(ValueError, match=words):
        grid(axes=axes, seeds=2, read=read)


def test_readings_are_what_they_say():
    job = cell(1, "pre", 1)
    run = job.train()
    one = Trained(run, 1, {"arm": "pre", "size": 1}, cell)
    assert LastLoss(3)(one) == {"last_loss": pytest.approx(float(run.losses[-3:].mean()))}
    assert peak_rate(one)["rate"] == run.rates.max() <= asked_rate(one)["rate"] == 0.01
    score = evaluate(run.model, TASK, seed=1, size=64)
    assert Scores(size=64)(one) == {"loss": score.loss, "accuracy": score.accuracy}
    other = evaluate(run.model, TASK, seed=6, size=64)
    assert Scores(size=64, seed_of_job=True, names=("loss",))(one) == {"loss": other.loss}
    assert Scores(worst=1.0, names=("loss",))(one) == {"loss": 1.0}, "worse than a guess of e"
    assert solving(one) == {"steps": 12.0, "solved": False}
    axis, curve = Curve(5)(one)["curve"]
    assert axis == "at"
    assert curve[:3] == run.evaluation_losses.tolist()
    assert all(map(math.isnan, curve[3:]))
    assert len(curve) == 5
    found = Progress(level=5.0, last=4)(one)
    assert found["last"] == pytest.approx(float(np.mean(run.losses[-4:])))
    assert (found["area"], found["steps"]) == (pytest.approx(float(np.mean(run.losses))), 10)
    assert bounded(math.inf, 3.0) == bounded(5.0, 3.0) == 3.0


def test_a_grid_is_measured_as_any_measurement_is(room: Room, inline: Inline):
    room.write(GRID)
    measured = room.measurement("losses")
    measure_all([measured], executor=inline, progress="nothing", say=lambda _: None)
    at = status(measured)
    assert at.state == CURRENT, at.why
    found = at.result.dataset
    assert found.last_loss.dims == ("seed", "arm", "rate")
    assert found.norm.shape == (3, 2, 2, 2)
    assert found.attrs["what"] == "The loss of the last steps."


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ("seeds=3", "seeds=2", False),
        ("The loss of the last steps.", "Loss.", False),
        ("LastLoss(2)", "LastLoss(3)", True),
        ("LastLoss(2), weight", "LastLoss(2)", True),
        ("[:2])}", "[1:3])}", True),
        ("(0.01, 0.02)", "(0.01, 0.03)", True),
        ("steps=4", "steps=5", True),
    ],
)
def test_a_digest_counts_axes_training_and_readings(room: Room, old: str, new: str, other: bool):
    room.write(GRID)
    then = room.measurement("losses").code()
    room.edit(old, new)
    assert (room.measurement("losses").code() != then) == other
