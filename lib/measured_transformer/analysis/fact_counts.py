"""Counts the facts of a table that a model stores.

A table is stored when nearly all of its facts are answered; tables grow until one is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from measured_transformer.models.config import Config
from measured_transformer.tasks.facts import Facts
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.store import Where

STORED = 0.99
"""Share of a table's facts that a model must answer to have stored it."""


@torch.no_grad()
def recalled(model: Model, task: Facts) -> Bool[Tensor, "fact"]:
    """Which facts of the table the model answers rightly, in the order of the table."""
    facts = task.facts().to(next(model.parameters()).device)
    right = predict(model, facts).argmax(-1) == facts.targets
    return right[facts.scored].cpu()


def recall(model: Model, task: Facts) -> float:
    """Share of the table's facts that the model answers rightly."""
    return float(recalled(model, task).double().mean())


def table_sizes(least: int, largest: int) -> list[int]:
    """Sizes of tables from `least` to at most `largest`, each about 1.4 times the one before, doubling in two.

    >>> table_sizes(64, 300)
    [64, 91, 128, 181, 256]

    Raises:
        ValueError: unless 0 < least <= largest.
    """
    if not 0 < least <= largest:
        raise ValueError(f"expected 0 < least <= largest, got {least} and {largest}")
    found: list[int] = []
    while (size := round(least * 2 ** (len(found) / 2))) <= largest:
        found.append(size)
    return found


@dataclass(frozen=True)
class Stored:
    """The largest table that a model stores.

    Attributes:
        number: facts of the largest table stored, reached from the first size tried.
        tried: share of the facts recalled, for each size that was tried.
        bounded: whether that table is the smallest or the largest of all sizes, so that the true number may lie
            beyond it; `number` is the smallest size also where even that is not stored.
    """

    number: int
    tried: dict[int, float]
    bounded: bool


def facts_stored(
    config: Config,
    task: Facts,
    *,
    seed: int,
    sizes: Sequence[int],
    start: int,
    learning_rate: float,
    steps: int,
    prepare: Callable[[Model], None] | None = None,
    store: Where = "found",
) -> Stored:
    """Count the facts that a model can store: the largest table of which it learns `STORED`.

    For each size a fresh model is trained, every step on the whole table. From the size `start` on, tables
    grow until one is not stored or, when the first is not, shrink until one is. A larger table holds the
    smaller one.

    Args:
        config: of the model.
        task: numbers of subjects, relations and objects; its count and seed are replaced.
        seed: of the weights and of the table.
        sizes: of the tables, rising, as from `table_sizes`.
        start: the first one tried.
        learning_rate: the largest; it rises over a twentieth of the steps and falls with a cosine.
        steps: of each training.
        prepare: what is done to the fresh model, as for `train`.
        store: where runs are looked up and kept, as for `train_ensemble`.

    Raises:
        ValueError: when the sizes do not rise, `start` is none of them, or the task has not enough pairs.
    """
    ladder = list(sizes)
    if not ladder or ladder != sorted(set(ladder)) or start not in ladder:
        raise ValueError(f"expected rising sizes with start among them, got {ladder} and {start}")
    tried: dict[int, float] = {}

    def stores(size: int) -> bool:
        table = dataclasses.replace(task, count=size)
        ((model, own),) = learned(
            config,
            table,
            [seed],
            learning_rate=learning_rate,
            steps=steps,
            prepare=prepare,
            store=store,
        )
        tried[size] = 0.0 if model is None else recall(model, own)
        return tried[size] >= STORED

    place = ladder.index(start)
    if stores(start):
        while place + 1 < len(ladder) and stores(ladder[place + 1]):
            place += 1
        return Stored(ladder[place], tried, bounded=place + 1 == len(ladder))
    while place > 0:
        place -= 1
        if stores(ladder[place]):
            return Stored(ladder[place], tried, bounded=False)
    return Stored(ladder[0], tried, bounded=True)


def learned(
    config: Config,
    task: Facts,
    seeds: Sequence[int],
    *,
    learning_rate: float,
    steps: int,
    prepare: Callable[[Model], None] | None = None,
    store: Where = "found",
) -> list[tuple[Any, Facts]]:
    """Train a model from each seed on a table of its own.

    Args:
        config, learning_rate, steps, prepare, store: as for `facts_stored`.
        task: the table's sizes; its seed is replaced.
        seeds: of the weights and of the tables.

    Returns:
        for each seed the model, None when its training diverged, and its table.
    """
    found = []
    for seed in seeds:
        own = dataclasses.replace(task, seed=seed)
        (run,) = train_ensemble(
            config,
            own,
            [seed],
            learning_rate=learning_rate,
            prepare=prepare,
            store=store,
            **whole_table(own.count, steps),
        )
        found.append((None if run.diverged else run.model, own))
    return found


def whole_table(size: int, steps: int) -> dict[str, Any]:
    """Options of `train`: every step on all facts, a rate that rises shortly and falls with a cosine."""
    schedule = WarmupCosine(warmup=max(1, steps // 20), steps=steps)
    return {"steps": steps, "batch_size": size, "schedule": schedule}


def log_ratio(treatment: Sequence[Stored], baseline: Sequence[Stored]) -> Float[np.ndarray, "seed"]:
    """Natural logarithm of how many times as many facts are stored, pair by pair.

    >>> log_ratio([Stored(200, {}, False)], [Stored(100, {}, False)]).round(3).tolist()
    [0.693]

    Raises:
        ValueError: when there are not as many of both.
    """
    if len(treatment) != len(baseline):
        raise ValueError(f"expected pairs, got {len(treatment)} and {len(baseline)}")
    pairs = zip(treatment, baseline, strict=True)
    return np.array([np.log(more.number / less.number) for more, less in pairs])
