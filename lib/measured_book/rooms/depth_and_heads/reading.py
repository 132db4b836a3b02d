"""How the results of the chapter on depth and heads are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.evidence.power import seeds_for_difference
from measured_book.measuring import evidence, number
from measured_book.rooms.depth_and_heads.measure import DEPTHS, HEADS, TWICE

# What the claims are judged by ----------------------------------------------------------------------------


def _against(
    treatment: DataArray, baseline: DataArray, best: DataArray | None = None
) -> dict[str, Any]:
    """Values for a difference, with the room that the best possible score leaves above the baseline."""
    room = {} if best is None else {"headroom": float(best.item()) - baseline}
    return {"treatment": treatment, "baseline": baseline, **room}


def by_size(values: DataArray, axis: str) -> DataArray:
    """Mean over the other of the two sizes."""
    return values.mean("heads" if axis == "depth" else "depth")


def _steps(values: DataArray, axis: str) -> list[DataArray]:
    """The mean of each of the three values of a size, the other one averaged out."""
    means = by_size(values, axis)
    return [means.isel({axis: i}) for i in range(3)]


@evidence("DA-4.6")
def _(table: Dataset) -> dict[str, Any]:
    return {"value": table.correlation}


@evidence("DA-4.8")
def _(table: Dataset) -> dict[str, Any]:
    return {"value": table.violations}


@evidence("DA-4.9")
def _(table: Dataset) -> dict[str, Any]:
    return {"value": table.gap.values.ravel()}


@evidence("DA-4.16")
def _(table: Dataset) -> dict[str, Any]:
    return {
        f"decoder_{depth}": {"value": table.between_tables.sel(decoder=depth)} for depth in TWICE
    }


def _spreads(
    values: Float[ndarray, "seed arm"], size: int, spread: Any
) -> tuple[Float[ndarray, "seed"], Float[ndarray, "group"]]:
    """Spread over the arms at each seed, and over as many seeds of one arm, seeds taken in groups."""
    groups = values.T.reshape(values.shape[1], -1, size)
    return spread(values, axis=1), spread(groups, axis=2).ravel()


def ranges(values: DataArray) -> tuple[Float[ndarray, "seed"], Float[ndarray, "group"]]:
    """Largest minus smallest: of nine models of each seed, and of three times nine seeds of each model."""
    return _spreads(values.values.reshape(-1, 9), 9, np.ptp)


@evidence("DA-4.1")
def _(grid: Dataset) -> dict[str, Any]:
    between, within = ranges(grid.accuracy)
    return {"treatment": between, "baseline": within}


@evidence("DA-4.2")
def _(grid: Dataset, ideal: Dataset) -> dict[str, Any]:
    two, four, six = _steps(grid.accuracy, "depth")
    return {"four": _against(four, two, ideal.accuracy), "six": _against(six, four, ideal.accuracy)}


@evidence("DA-4.3")
def _(grid: Dataset, ideal: Dataset) -> dict[str, Any]:
    two, four, eight = _steps(grid.accuracy, "heads")
    return {
        "four": _against(four, two, ideal.accuracy),
        "eight": _against(eight, four, ideal.accuracy),
    }


def _diminishing(
    first: DataArray, second: DataArray, third: DataArray, *, best: DataArray
) -> dict[str, Any]:
    """Values for a gain, and for one that grows smaller."""
    gain = _against(second, first, best)
    return {"gain": gain, "less": _against(second - first, third - second)}


@evidence("DA-4.4")
def _(grid: Dataset, ideal: Dataset) -> dict[str, Any]:
    sizes = [grid.accuracy.sel(depth=d, heads=h) for d, h in zip(DEPTHS, HEADS, strict=True)]
    return _diminishing(*sizes, best=ideal.accuracy)


@evidence("DA-5.5")
def _(grid: Dataset, ideal: Dataset) -> dict[str, Any]:
    return {
        f"{axis}_{part}": values
        for axis in ("depth", "heads")
        for part, values in _diminishing(*_steps(grid.accuracy, axis), best=ideal.accuracy).items()
    }


def places(values: DataArray, depth: int, heads: int) -> Int[ndarray, "seed"]:
    """The place of a model among the nine of each seed, 1 for the best."""
    one = values.sel(depth=depth, heads=heads)
    return 1 + (values > one).sum(("depth", "heads")).values


@evidence("DA-4.5")
def _(grid: Dataset) -> dict[str, Any]:
    first = places(grid.accuracy, 6, 8) == 1
    return {"successes": [int(first.sum())], "trials": [first.size]}


@evidence("DA-4.7")
def _(grid: Dataset) -> dict[str, Any]:
    smallest = grid.loss.sel(depth=2, heads=2)
    others = (grid.loss.sum(("depth", "heads")) - smallest) / 8
    return _against(smallest, others)


@evidence("DA-5.1")
def _(grid: Dataset, ideal: Dataset) -> dict[str, Any]:
    found = {}
    for axis in ("depth", "heads"):
        smallest, _, largest = _steps(grid.curve.mean("at"), axis)
        found[axis] = _against(largest, smallest, ideal.accuracy)
    return found


@evidence("DA-4.10")
def _(longer: Dataset, unmasked: Dataset, ideal: Dataset) -> dict[str, Any]:
    found = {}
    for name, arms in (("masked", longer), ("unmasked", unmasked)):
        two, four, six = (arms.greedy.sel(decoder=depth) for depth in DEPTHS)
        found[f"{name}_4"] = _against(two, four, ideal.greedy)
        found[f"{name}_6"] = _against(two, six, ideal.greedy)
    return found


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


@evidence("DA-1.2")
def _(grid: Dataset, decoders: Dataset, race: Dataset) -> dict[str, Any]:
    found = {}
    for factor in ("depth", "heads", "decoder", "schedule"):
        between, within = deviations_of(grid, decoders, race, factor)
        found[factor] = {"treatment": between, "baseline": within}
    return found


# Numbers that the prose names -----------------------------------------------------------------------------


@number
def size_mean(grid: Dataset, *, axis: str, value: int, score: str) -> DataArray:
    """A score of every seed at one depth or number of heads, the other averaged out."""
    return by_size(grid[score], axis).sel({axis: value})


@number
def cell(grid: Dataset, *, depth: int, heads: int, score: str) -> DataArray:
    """A score of one of the nine models, of every seed."""
    return grid[score].sel(depth=depth, heads=heads)


@number
def table_range(grid: Dataset, *, of: str) -> list[float]:
    """Largest minus smallest accuracy of nine models of a seed, or of nine seeds of a model."""
    between, within = ranges(grid.accuracy)
    return list(between if of == "models" else within)


@number
def behind(grid: Dataset, *, axis: str, at: int) -> DataArray:
    """By how much the largest size is behind the smallest during training."""
    means = by_size(grid.curve.sel(at=at), axis)
    return means.isel({axis: 0}) - means.isel({axis: 2})


@number
def depth_cost(longer: Dataset, *, depth: int) -> DataArray:
    """BLEU of a decoder of two layers minus that of a deeper one, after the longer training."""
    return longer.greedy.sel(decoder=2) - longer.greedy.sel(decoder=depth)


@number
def depth_cost_unmasked(unmasked: Dataset, *, depth: int) -> DataArray:
    """The same without the padding mask."""
    return unmasked.greedy.sel(decoder=2) - unmasked.greedy.sel(decoder=depth)


@number
def beam_gain(grid: Dataset) -> DataArray:
    """What four beams add to the BLEU of greedy translations, averaged over the nine models."""
    return (grid.beam - grid.greedy).mean(("depth", "heads"))


@number
def times_best(grid: Dataset, *, depth: int, heads: int) -> int:
    """How many tables have this model first."""
    return int((places(grid.accuracy, depth, heads) == 1).sum())


@number
def winners(grid: Dataset) -> int:
    """How many of the nine models are the best of at least one table."""
    best = grid.accuracy.stack(model=("depth", "heads")).argmax("model")
    return len(np.unique(best))


def variance_shares(values: Float[ndarray, "seed depth head"]) -> dict[str, float]:
    """Shares of the variance (eta squared) of depth, heads, the two together, seeds, and the rest.

    >>> effects = np.array([0.0, 1.0])[None, :, None] + np.zeros((3, 2, 2))
    >>> round(variance_shares(effects)["depth"], 6)
    1.0
    """
    total = values - values.mean()
    depth = values.mean((0, 2)) - values.mean()
    heads = values.mean((0, 1)) - values.mean()
    seed = values.mean((1, 2)) - values.mean()
    both = values.mean(0) - values.mean() - depth[:, None] - heads[None]
    parts = {
        "depth": np.square(depth).mean(),
        "heads": np.square(heads).mean(),
        "both": np.square(both).mean(),
        "seed": np.square(seed).mean(),
    }
    whole = float(np.square(total).mean())
    shares = {name: float(part) / whole for name, part in parts.items()}
    return {**shares, "rest": 1 - math.fsum(shares.values())}


@number
def share(grid: Dataset, *, of: str) -> float:
    """A share of the variance of the accuracy among all models and seeds."""
    return variance_shares(grid.accuracy.transpose("seed", "depth", "heads").values)[of]


@number
def seed_deviation(grid: Dataset) -> float:
    """Standard deviation of the accuracy over seeds: root mean square over the nine models."""
    return float(np.sqrt(grid.accuracy.var("seed", ddof=1).mean()))


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
