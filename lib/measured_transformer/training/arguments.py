"""What a training may be asked for: the checks that every way to train goes through."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any

from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.schedules import Schedule


def rate_at(learning_rate: float, schedule: Schedule, step: int) -> float:
    """The learning rate of a step, 0 for the first.

    Raises:
        ValueError: when the schedule's factor is negative or not finite: the step would climb, or go nowhere.
    """
    factor = schedule(step)
    if not 0 <= factor < math.inf:
        raise ValueError(
            f"the schedule must give a factor of at least 0 at every step, got {factor} at step {step}"
        )
    return learning_rate * factor


def check_training(config: Config, task: Task, given: Mapping[str, Any]) -> None:
    """Check what `train` is asked for, before anything is made.

    Args:
        config, task: the model and what it is to learn.
        given: the other arguments of `train`, by name.

    Raises:
        ValueError: when the vocabulary is too small, the model has no head, or a number is out of range.
    """
    if config.vocab < task.vocab:
        raise ValueError(f"the task has {task.vocab} tokens, the model only {config.vocab}")
    if config.head == "none":
        raise ValueError(
            "a model is trained on its logits, and with head='none' it has none: train it with the head "
            "'linear' and read its final state"
        )
    steps, rate = given["steps"], given["learning_rate"]
    if not _is_whole(steps, 0) or not 0 < rate < math.inf:
        raise ValueError(
            f"steps must not be negative and learning_rate positive, got {steps} and {rate}"
        )
    if given["optimiser"] not in (known := ("AdamW", "Adam", "RAdam", "SGD")):
        raise ValueError(f"optimiser must be one of {', '.join(known)}, got {given['optimiser']!r}")
    every, often = given["evaluate_every"], given["checkpoint_every"]
    if not (every is None or _is_whole(every, 1)) or not _is_whole(often, 1):
        raise ValueError(
            f"evaluate_every and checkpoint_every must be at least 1, got {every} and {often}"
        )
    if not _is_whole(given["batch_size"], 1):
        raise ValueError(
            f"batch_size must be a whole number of at least 1, got {given['batch_size']!r}"
        )
    if given["threads"] is not None and not _is_whole(given["threads"], 1):
        raise ValueError(
            f"threads must be a positive whole number or None, got {given['threads']!r}"
        )
    if given["clip"] is not None and not given["clip"] > 0:
        raise ValueError(
            f"clip is the largest length of the gradient and must be positive, got {given['clip']}; None "
            "clips nothing"
        )
    if not 0 <= given["weight_decay"] < math.inf or not 0 <= given["eps"] < math.inf:
        raise ValueError(
            "weight_decay and eps must not be negative, got "
            f"{given['weight_decay']} and {given['eps']}"
        )
    if len(given["betas"]) != 2 or not all(0 <= beta < 1 for beta in given["betas"]):
        raise ValueError(f"betas must be two numbers from 0 to below 1, got {given['betas']}")
    if not 0 <= given["label_smoothing"] <= 1:
        raise ValueError(
            f"label_smoothing is a share between 0 and 1, got {given['label_smoothing']}"
        )


def _is_whole(number: object, least: int) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= least
