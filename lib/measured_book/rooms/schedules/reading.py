"""Readings of the chapter on schedules that no expression says: hand examples, gaps, sums that tell runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from measured_transformer.analysis.curves import area_under_curve
from measured_transformer.training.loop import make_model
from measured_transformer.training.schedules import (
    Constant,
    ExponentialDecay,
    InverseSquareRoot,
    Schedule,
)
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.schedules.measure import (
    FAILED,
    RATES,
    SHAPES,
    SPEAKER,
    STEPS,
    at_equal_training_loss,
    summed_rate,
    valley_height,
    valley_path,
)


@number
def stands(*, walker: str, step: int) -> float:
    """The height at which a walker of the hand example stands after so many steps."""
    along, across = valley_path(walker).T
    return float(valley_height(along, across)[step])


@number
def total(*, schedule: str) -> float:
    """The sum of the rates of three walkers of a thousand steps with a peak of 0.001."""
    made: dict[str, Schedule] = {
        "constant": Constant(),
        "root": InverseSquareRoot(100),
        "exponential": ExponentialDecay.lasting(50.0),
    }
    return summed_rate(made[schedule], 1e-3, 1000)


@number
def weights() -> int:
    """The number of weights of the language model, in thousands."""
    model = make_model(SPEAKER, causal=True, seed=0)
    return round(sum(weight.numel() for weight in model.parameters()) / 1000)


def too_high(race: Dataset) -> list[float]:
    """The peaks above the constant rate's best at which it fails from at least half of the seeds."""
    constant = race.loss.sel(shape="constant")
    best = float(constant.mean("seed").idxmin("rate"))
    fails = (constant > FAILED).mean("seed") >= 0.5
    return [rate for rate in RATES if rate > best and bool(fails.sel(rate=rate))]


def sums_of(rates: Sequence[float] = RATES) -> Float[ndarray, "shape rate"]:
    """The sum of the rates of every shape at every peak."""
    return np.array(
        [[summed_rate(made, rate, STEPS) for rate in rates] for made in SHAPES.values()]
    )


def told_by_the_sum(race: Dataset, rates: Sequence[float]) -> list[float]:
    """How well a small sum tells the runs that fail, of every seed: area under the curve, peaks as given."""
    failed: Bool[ndarray, "seed shape rate"] = (
        race.loss.sel(rate=list(rates)).transpose("seed", "shape", "rate").values > FAILED
    )
    sums = sums_of(rates).ravel()
    return [area_under_curve(-sums, one.ravel()) for one in failed]


@number
def auc(race: Dataset, *, which: str) -> list[float]:
    """The share of pairs of a failing and another run in which the failing one has the smaller sum.

    Of the runs whose peak is not too high ('stable'), or of all.
    """
    high = too_high(race) if which == "stable" else []
    return told_by_the_sum(race, [rate for rate in RATES if rate not in high])


LEVELS = tuple(float(level) for level in np.linspace(0.7, 1.2, 11).round(2))
"""Training losses, in nats, which all runs on few sequences pass, and at which gaps are read."""


@number
def gap(repeated: Dataset, *, schedule: str) -> DataArray:
    """Validation minus training loss of every seed, where training loss first falls to a level, on average."""
    here = repeated.sel(schedule=schedule)
    found = []
    for seed in repeated.seed.values:
        training, validation = (
            here[what].sel(seed=seed).values for what in ("training", "validation")
        )
        found.append(np.mean([at_equal_training_loss(training, validation, one) for one in LEVELS]))
    return DataArray(found, dims="seed", coords={"seed": repeated.seed.values})
