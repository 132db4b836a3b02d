"""What no expression says of the results of the chapter on depth and heads: spreads over groups of seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.evidence.power import seeds_for_difference
from measured_book.measuring import number


def by_size(values: DataArray, axis: str) -> DataArray:
    """Mean over the other of the two sizes."""
    return values.mean("heads" if axis == "depth" else "depth")


def _spreads(
    values: Float[ndarray, "seed arm"], size: int, spread: Any
) -> tuple[Float[ndarray, "seed"], Float[ndarray, "group"]]:
    """Spread over the arms at each seed, and over as many seeds of one arm, seeds taken in groups."""
    groups = values.T.reshape(values.shape[1], -1, size)
    return spread(values, axis=1), spread(groups, axis=2).ravel()


def ranges(values: DataArray) -> tuple[Float[ndarray, "seed"], Float[ndarray, "group"]]:
    """Largest minus smallest: of nine models of each seed, and of three times nine seeds of each model."""
    return _spreads(values.values.reshape(-1, 9), 9, np.ptp)


def deviations_of(
    grid: Dataset, decoders: Dataset, race: Dataset, factor: str
) -> tuple[Float[ndarray, "seed"], Float[ndarray, "group"]]:
    """Standard deviation of the accuracy over three values of a factor, and over three seeds of one value."""
    values = {
        "depth": grid.accuracy.sel(heads=4, drop=True),
        "heads": grid.accuracy.sel(depth=4, drop=True),
        "decoder": decoders.accuracy,
        "schedule": race.accuracy,
    }[factor]
    return _spreads(values.values, 3, lambda x, axis: x.std(axis=axis, ddof=1))


@number
def table_range(grid: Dataset, *, of: str) -> list[float]:
    """Largest minus smallest accuracy of nine models of a seed, or of nine seeds of a model."""
    between, within = ranges(grid.accuracy)
    return list(between if of == "models" else within)


@number
def winners(grid: Dataset) -> int:
    """How many of the nine models are the best of at least one table; of equals the first counts."""
    best = grid.accuracy.stack(model=("depth", "heads")).argmax("model")
    return len(np.unique(best))


@number
def seeds_needed(grid: Dataset, *, points: float) -> int:
    """Seeds of each of two models that show such a difference, in points of accuracy, four times of five."""
    spread = float(np.sqrt(grid.accuracy.var("seed", ddof=1).mean()))
    return seeds_for_difference(points / 100, spread=spread, paired=False)


@number
def deviation(
    grid: Dataset, decoders: Dataset, race: Dataset, *, factor: str, of: str
) -> list[float]:
    """Standard deviation of the accuracy over three values of a factor, or over three seeds of one."""
    between, within = deviations_of(grid, decoders, race, factor)
    return list(between if of == "values" else within)
