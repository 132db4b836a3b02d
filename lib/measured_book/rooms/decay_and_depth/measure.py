"""Weight decay in three ways on the ladder's small model, and learning rates over depth by three rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from measured_transformer.models.config import Config
from measured_transformer.tasks.standard_library import NAME, StandardLibrary
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.variants.decay import IndependentDecay, room_for_decay
from measured_transformer.variants.depth import COMPLETE, ROOT, ScaledByDepth
from numpy import ndarray

from measured_book.ladder import (
    BATCH,
    BETAS,
    LONG,
    RATES,
    SCORED_ON,
    SHORT,
    SMALL,
    WARMUP,
    WINDOW,
    speaker,
    steps_for,
)
from measured_book.measuring import Search, grid, job, measurement, tuned, tuning_seeds
from measured_book.measuring.readings import Scores, peak_rate

# Weight decay -------------------------------------------------------------------------------------

DECAY_SEEDS = 6
READ = (Scores(size=SCORED_ON, names=("loss",)), peak_rate)
"""Nats a byte on held-out windows; the peak rate."""
STRENGTHS = ("weak", "middle", "strong")
WAYS: Mapping[str, tuple[float, ...]] = {
    "decoupled": (0.1, 0.3, 1.0),
    "coupled": (1e-4, 3e-4, 1e-3),
    "independent": (3.2e-3, 9.6e-3, 3.2e-2),
}
"""The decays of each way, weak to strong.

Independent ones are the decoupled ones times a peak of 0.032, the best of the ladder's straight line. Coupled
ones are the decoupled ones times 0.001, the size of a typical gradient in a block there, so that Adam pulls a
typical weight as hard.
"""


def decayed(way: str, decay: float, seed: int, *, share: float = 1.0) -> Job:
    """20 tokens a weight along a straight line to zero, at a share of the peak that suits the decay best."""
    steps = steps_for(SMALL, LONG)
    task = StandardLibrary(length=WINDOW, windows=steps * BATCH, passes=1)
    schedule = WarmupLinear(WARMUP, steps)
    how: dict[str, Any] = {"batch_size": BATCH, "betas": BETAS, "schedule": schedule}
    arm = f"ladder-{way}-{decay}"
    match way:
        case "decoupled":
            how["weight_decay"] = decay
            arm = (
                f"ladder-passes-1-{decay}-0.0"  # the same trainings as in the passes over the data
            )
        case "coupled":
            how |= {"optimiser": "Adam", "weight_decay": decay}
        case "independent":
            how |= {"prepare": room_for_decay, "after_step": IndependentDecay(decay, schedule)}
    search = Search(arm, speaker(SMALL), task, RATES, tuning_seeds(2), steps, how)
    rate = share * tuned(search)
    return job(speaker(SMALL), task, seed, steps=steps, learning_rate=rate, **how)


@grid(axes={"decay": (0.0,)}, seeds=DECAY_SEEDS, read=READ, corpora=(NAME,))
def undecayed(seed: int, decay: float) -> Job:
    """20 tokens a weight without weight decay."""
    return decayed("decoupled", decay, seed)


@grid(
    axes={"way": tuple(WAYS), "strength": STRENGTHS}, seeds=DECAY_SEEDS, read=READ, corpora=(NAME,)
)
def decays(seed: int, way: str, strength: str) -> Job:
    """20 tokens a weight with weight decay in three ways and strengths."""
    return decayed(way, WAYS[way][STRENGTHS.index(strength)], seed)


FRESH = 3000
"""What is added to the seeds of the measurements `afresh`, so that no other measurement has looked at them."""
MANY = 30
"""Seeds of `decays_afresh`."""


@grid(
    axes={"way": ("decoupled", "coupled"), "strength": STRENGTHS[:1]},
    seeds=MANY,
    read=READ,
    corpora=(NAME,),
)
def decays_afresh(seed: int, way: str, strength: str) -> Job:
    """The strength that suited both ways best on six seeds, on thirty fresh ones."""
    return decayed(way, WAYS[way][STRENGTHS.index(strength)], FRESH + seed)


QUARTER = 0.25


@grid(axes={"way": ("decoupled", "independent")}, seeds=DECAY_SEEDS, read=READ, corpora=(NAME,))
def quartered(seed: int, way: str) -> Job:
    """The middle strength of two ways at a quarter of the best peak."""
    return decayed(way, WAYS[way][1], seed, share=QUARTER)


# Depth --------------------------------------------------------------------------------------------

DEPTH_SEEDS = 3
DEPTHS = (2, 4, 8)
RULES: Mapping[str, float | None] = {"standard": None, "root": ROOT, "CompleteP": COMPLETE}
"""The exponent of each rule; the standard way has no rule for depth."""
DEPTH_TASK = StandardLibrary(length=WINDOW)
GUESS = math.log(256)
"""The loss of a uniform guess, which a run that diverged counts as."""


def deep(depth: int) -> Config:
    """The ladder's small model with another number of blocks."""
    return replace(speaker(SMALL), n_layers=depth)


def weights_at(depth: int) -> int:
    """The number of its weights.

    >>> [weights_at(depth) for depth in DEPTHS]
    [32928, 57632, 107040]
    """
    return 257 * SMALL + depth * (12 * SMALL**2 + 2 * SMALL)


def steps_at(depth: int) -> int:
    """The number of steps in which it sees five tokens a weight.

    >>> [steps_at(depth) for depth in DEPTHS]
    [161, 281, 523]
    """
    return round(SHORT * weights_at(depth) / (BATCH * WINDOW))


def deepened(rule: str, depth: int, rate: float, seed: int) -> Job:
    """Five tokens a weight at a depth by a rule; no weight decay and no clipping, so that the rule is exact."""
    steps = steps_at(depth)
    how: dict[str, Any] = {
        "batch_size": BATCH,
        "betas": BETAS,
        "schedule": WarmupLinear(WARMUP, steps),
        "clip": None,
    }
    exponent = RULES[rule]
    if exponent is not None and depth != DEPTHS[0]:
        scaled = ScaledByDepth(exponent, DEPTHS[0])
        how |= {"prepare": scaled, "eps": scaled.epsilon(depth)}
    return job(deep(depth), DEPTH_TASK, seed, steps=steps, learning_rate=rate, **how)


def depth_trainings(seed: int) -> dict[tuple[str, int, float], Job]:
    """Three depths by three rules at six rates; at the base depth the rules are the same."""
    return {
        (rule, depth, rate): deepened(rule, depth, rate, seed)
        for rule in RULES
        for depth in DEPTHS
        for rate in RATES
        if rule == "standard" or depth != DEPTHS[0]
    }


@measurement(
    seeds=DEPTH_SEEDS,
    coords={"rule": tuple(RULES), "depth": DEPTHS, "rate": RATES},
    trainings=depth_trainings,
    repeat="opening",
    corpora=(NAME,),
)
def depths(seed: int, runs: Mapping[tuple[str, int, float], Run]) -> dict[str, Any]:
    """Loss at six rates; the best rate of each depth, in doublings; its move for twice as many blocks."""
    losses = np.empty((len(RULES), len(DEPTHS), len(RATES)))
    for i, rule in enumerate(RULES):
        for j, depth in enumerate(DEPTHS):
            trained = "standard" if depth == DEPTHS[0] else rule
            for k, rate in enumerate(RATES):
                losses[i, j, k] = held_out(runs[trained, depth, rate], seed)
    best = [[lowest(RATES, row) for row in of_rule] for of_rule in losses]
    moves = [float(np.polyfit(np.log2(DEPTHS), row, 1)[0]) for row in best]
    return {
        "loss": (("rule", "depth", "rate"), losses),
        "best": (("rule", "depth"), best),
        "move": ("rule", moves),
    }


KEPT = 0.032
"""The rate that was best for two blocks on average over the seeds of `depths`."""
DEEPEST = DEPTHS[-1]
CARRIED_SEEDS = 12


def carried_trainings(seed: int) -> dict[str, Job]:
    """The deepest model by three rules at the rate that was best for the shallowest, on a fresh seed."""
    return {rule: deepened(rule, DEEPEST, KEPT, FRESH + seed) for rule in RULES}


@measurement(
    seeds=CARRIED_SEEDS,
    coords={"rule": tuple(RULES)},
    trainings=carried_trainings,
    repeat="opening",
    corpora=(NAME,),
)
def carried_afresh(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Eight blocks at the rate that was best for two, on twelve fresh seeds."""
    return {"loss": ("rule", [held_out(runs[rule], FRESH + seed) for rule in RULES])}


FURTHER, SETTLED_SEEDS = 1000, 24
"""What is added to the seeds of `carried_settled`, besides, and how many it has."""


def settling_trainings(seed: int) -> dict[str, Job]:
    """As `carried_trainings`, on a further seed."""
    return carried_trainings(FURTHER + seed)


@measurement(
    seeds=SETTLED_SEEDS,
    coords={"rule": tuple(RULES)},
    trainings=settling_trainings,
    repeat="opening",
    corpora=(NAME,),
)
def carried_settled(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Eight blocks at the rate that was best for two, on twenty-four further seeds."""
    return {"loss": ("rule", [held_out(runs[rule], FRESH + FURTHER + seed) for rule in RULES])}


def held_out(run: Run, seed: int) -> float:
    """Nats a byte on held-out windows, at most those of a uniform guess."""
    if run.diverged:
        return GUESS
    loss = evaluate(run.model, DEPTH_TASK, seed=seed, size=SCORED_ON).loss
    return min(loss, GUESS) if math.isfinite(loss) else GUESS


def lowest(rates: Sequence[float], losses: Sequence[float] | ndarray) -> float:
    """Base-2 logarithm of the rate at which the parabola through the lowest loss and its neighbours is lowest.

    Rates double from one to the next. Where the first or the last rate has the lowest loss, it is that rate.

    >>> lowest([0.25, 0.5, 1.0], [3.0, 1.0, 3.0]), lowest([0.25, 0.5, 1.0], [2.0, 1.0, 3.0])
    (-1.0, -1.1666666666666667)
    """
    values = np.asarray(losses, dtype=np.float64)
    at = int(values.argmin())
    place = math.log2(rates[at])
    if at in (0, len(values) - 1):
        return place
    before, least, after = values[at - 1 : at + 2]
    return place + 0.5 * float((before - after) / (before - 2 * least + after))
