"""What a training may be asked for: the checks that every way to train goes through."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.schedules import Schedule


def rate_at(learning_rate: float, schedule: Schedule, step: int) -> float:
    """The learning rate of a step, 0 for the first.

    Raises:
        ValueError: when the schedule's factor is no number, or is negative or not finite: the step would climb,
            or go nowhere.
    """
    factor = schedule(step)
    if not isinstance(factor, Real) or not 0 <= factor < math.inf:
        raise ValueError(
            f"the schedule must give a factor of at least 0 at every step, got {factor!r} at step {step}"
        )
    return learning_rate * float(factor)


def check_training(config: Config, task: Task, given: Mapping[str, Any]) -> None:
    """Check what `train` is asked for, before anything is made.

    Args:
        config, task: the model and what it is to learn.
        given: the other arguments of `train`, by name.

    Raises:
        ValueError: when an argument is of another kind than it should be, the vocabulary is too small, the
            model has no head, or a number is out of range.
    """
    _check_kinds(config, task, given)
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
            "steps must be a whole number and not negative, and learning_rate positive, got "
            f"{steps!r} and {rate}"
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
    betas = given["betas"]
    if (
        not isinstance(betas, list | tuple)
        or len(betas) != 2
        or not all(_is_number(beta) and 0 <= beta < 1 for beta in betas)
    ):
        raise ValueError(f"betas must be two numbers from 0 to below 1, got {betas!r}")
    if not 0 <= given["label_smoothing"] <= 1:
        raise ValueError(
            f"label_smoothing is a share between 0 and 1, got {given['label_smoothing']}"
        )


def check_seed(seed: object) -> None:
    """Raise ValueError unless this can be the seed of a generator: a whole number of at most 64 bits."""
    if not _is_whole(seed, -(2**63)) or not int(seed) < 2**63:  # type: ignore[call-overload]
        raise ValueError(f"seed must be a whole number, such as 0, got {seed!r}")


def check_task(task: object) -> None:
    """Raise ValueError unless this can be trained on: an object that makes batches, see `tasks.task.Task`."""
    missing = [name for name in ("vocab", "causal", "batch") if not hasattr(task, name)]
    if missing or isinstance(task, type):
        told = f"the class {task.__name__}" if isinstance(task, type) else type(task).__name__
        raise ValueError(
            "task must make batches, as TextFile('mine.txt') or a task of measured_transformer.tasks does, got "
            f"{told}"
            + (f" without {', '.join(missing)}" if missing else "; make one by calling it")
        )


def _check_kinds(config: object, task: object, given: Mapping[str, Any]) -> None:
    """Check of each argument that it is of the kind that it should be."""
    if not isinstance(config, Config):
        raise ValueError(
            f"config must be a Config, such as Config(vocab=256), got {type(config).__name__}"
        )
    check_task(task)
    check_seed(given["seed"])
    for name in ("learning_rate", "weight_decay", "eps", "label_smoothing", "clip"):
        value = given[name]
        if not _is_number(value) and not (name == "clip" and value is None):
            raise ValueError(
                f"{name} must be a number{' or None' if name == 'clip' else ''}, got {value!r}"
            )
    for name, such in (
        (
            "schedule",
            "a function from a step to a factor, such as WarmupCosine(warmup=10, steps=100)",
        ),
        ("prepare", "a function of the fresh model, or None"),
        ("after_step", "a function of a Step, or None"),
    ):
        value = given[name]
        if isinstance(value, type) or not (
            callable(value) or (value is None and name != "schedule")
        ):
            told = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
            raise ValueError(f"{name} must be {such}; got {told}")
    if not isinstance(given["checkpoint"], str | Path | None):
        raise ValueError(
            f"checkpoint must be the path of a file, or None, got {given['checkpoint']!r}"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(number: object, least: int) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= least
