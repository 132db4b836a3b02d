"""Ends a training when the task is solved, to ask how many steps that takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measured_transformer.analysis.solving import LEVEL, WINDOW
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import Run, Step, train

LOOK_EVERY = 40
"""After how many steps it is looked whether the task is solved."""


@dataclass(frozen=True)
class WhenSolved:
    """A hook for `train` that ends a training at the first check at which it has solved its task or diverged.

    Attributes:
        every: after how many steps to look.

    Raises:
        ValueError: when these are fewer than it takes to tell.
    """

    every: int = LOOK_EVERY

    def __post_init__(self) -> None:
        if self.every < WINDOW:
            raise ValueError(f"expected to look every {WINDOW} steps or later, got {self.every}")

    def __call__(self, step: Step) -> bool:
        """Return whether to end the training here."""
        if step.number % self.every:
            return False
        if not all(bool(weight.isfinite().all()) for weight in step.model.parameters()):
            return True
        if not math.isfinite(step.loss):
            return True
        means = np.convolve(step.losses, np.ones(WINDOW) / WINDOW, mode="valid")
        return bool((means <= LEVEL).any())


def train_until_solved(
    config: Config,
    task: Task,
    seed: int,
    *,
    steps: int,
    look_every: int = LOOK_EVERY,
    **options: Any,
) -> Run:
    """Train as `train` does, but stop at the first check at which the task is solved, or at the last check.

    The run is the beginning of the one that `train` would give for all the steps, bit for bit on a CPU, so
    `analysis.solving.solved` says the same of both.

    Args:
        config, task, seed: as for `train`.
        steps: the most that are taken.
        look_every: after how many steps to look.
        options: what else `train` takes.

    Raises:
        ValueError: when there are fewer steps than it takes to tell, or as `train`.
    """
    if not WINDOW <= look_every <= steps:
        raise ValueError(f"expected {WINDOW} <= look_every <= steps, got {look_every} and {steps}")
    hook = WhenSolved(look_every)
    return train(config, task, seed=seed, steps=steps, after_step=hook, **options)
