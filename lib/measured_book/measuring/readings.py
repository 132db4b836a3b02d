"""Readings that many grids share: what is measured of one trained cell. See `measuring.grids`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from measured_transformer.analysis.curves import steps_until
from measured_transformer.analysis.solving import solved
from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import evaluate

from measured_book.measuring.grids import Trained


def solving(one: Trained) -> dict[str, Any]:
    """``steps`` to a loss of 0.05, or all that were asked for, and whether it was reached: ``solved``."""
    found = solved([one.run])
    reached = bool(found.observed[0])
    return {
        "steps": float(found.steps[0]) if reached else float(one.job.settings["steps"]),
        "solved": reached,
    }


@dataclass(frozen=True)
class LastLoss:
    """``last_loss``: the mean training loss of the last steps, NaN where a run left the finite numbers.

    Attributes:
        steps: how many of them.
        name: of the value.
    """

    steps: int = 20
    name: str = "last_loss"

    def __call__(self, one: Trained) -> dict[str, float]:
        """The value of one cell."""
        return {self.name: float(np.mean(one.run.losses[-self.steps :]))}


@dataclass(frozen=True)
class Scores:
    """``loss`` in nats and ``accuracy`` on held-out sequences that belong to the seed.

    Attributes:
        task: what they are drawn from; the task of the training unless given.
        size: how many.
        names: which of the two.
        worst: a loss above this, or none that is a number, counts as this.
        seed_of_job: whether the sequences belong to the training's seed, where that is not the measurement's.
    """

    task: Task | None = None
    size: int = 256
    names: tuple[str, ...] = ("loss", "accuracy")
    worst: float = math.inf
    seed_of_job: bool = False

    def __call__(self, one: Trained) -> dict[str, float]:
        """The values of one cell."""
        task = one.job.task if self.task is None else self.task
        seed = one.job.seed if self.seed_of_job else one.seed
        score = evaluate(one.model, task, seed=seed, size=self.size)
        values = {"loss": bounded(score.loss, self.worst), "accuracy": score.accuracy}
        return {name: values[name] for name in self.names}


def bounded(loss: float, worst: float) -> float:
    """A loss, or the worst where it is higher or no number, as of a run that diverged.

    >>> bounded(math.nan, 2.0), bounded(1.0, 2.0), bounded(math.nan, math.inf)
    (2.0, 1.0, nan)
    """
    if math.isinf(worst):
        return loss
    return min(loss, worst) if math.isfinite(loss) else worst


def peak_rate(one: Trained) -> dict[str, float]:
    """``rate``: the largest learning rate of the run."""
    return {"rate": float(one.run.rates.max())}


def asked_rate(one: Trained) -> dict[str, float]:
    """``rate``: the learning rate that was asked for, which a schedule may not reach."""
    return {"rate": one.job.settings["learning_rate"]}


@dataclass(frozen=True)
class Progress:
    """What a run was on the way: its last and its mean training loss, and how soon it fell to a level.

    ``last``: mean training loss of the last steps. ``area``: that of all steps. ``steps``: until the loss is at
    most a level, all of them where it never is.

    Attributes:
        level: of the loss, in nats.
        last: how many steps at the end.
        worst: as for `Scores`.
    """

    level: float
    last: int
    worst: float = math.inf

    def __call__(self, one: Trained) -> dict[str, float]:
        """The values of one cell."""
        losses = one.run.losses
        return {
            "last": bounded(float(losses[-self.last :].mean()), self.worst),
            "area": bounded(float(losses.mean()), self.worst),
            "steps": float(steps_until(losses, self.level)),
        }


@dataclass(frozen=True)
class Curve:
    """``curve``: the loss on held-out sequences at each evaluation on the way, NaN where the run has ended.

    Attributes:
        points: how many evaluations there are at most.
        axis: that they stand along.
    """

    points: int
    axis: str = "at"

    def __call__(self, one: Trained) -> dict[str, Any]:
        """The values of one cell."""
        found = one.run.evaluation_losses.tolist()
        return {"curve": (self.axis, found + [math.nan] * (self.points - len(found)))}
