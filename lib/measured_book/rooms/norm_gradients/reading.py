"""How the results of the chapter on gradients are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from measured_transformer.analysis.solving import LEVEL
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.evidence.statistics import mean_interval
from measured_book.measuring import evidence, number
from measured_book.rooms.norm_gradients.measure import (
    DEEP,
    DEPTHS,
    FOLLOWED,
    JUDGED,
    MOMENTS,
    WIDTHS,
)

# What the claims are judged by --------------------------------------------------------------------


def _log(values: DataArray) -> DataArray:
    """The natural logarithm, with axes kept."""
    found: DataArray = xarray.apply_ufunc(np.log, values)
    return found


@evidence("DD-3.8")
def _(algebra: Dataset, untrained: Dataset) -> dict[str, Any]:
    left, cosine = algebra.left_over, untrained.cosine.sel(state=0)
    return {
        "jacobian": {"error": left.sel(placement="pre"), "control": left.sel(placement="post")},
        "cosine": {
            "treatment": cosine.sel(placement="pre"),
            "baseline": cosine.sel(placement="post"),
        },
    }


@evidence("CS-4.4")
def _(followed: Dataset, untrained: Dataset) -> dict[str, Any]:
    largest = _log(followed.spread.max("moment"))
    arms = [name for name, (placement, _, _) in FOLLOWED.items() if placement == "pre"]
    return {
        **{name.replace(" ", "_"): {"value": largest.sel(arm=name)} for name in arms},
        "untrained_24": {"value": _log(untrained.spread.sel(start="xavier", depth=24))},
    }


@evidence("CS-4.5")
def _(untrained: Dataset, followed: Dataset) -> dict[str, Any]:
    post = untrained.sel(placement="post")
    kinds = _log(post.kinds)
    found = {f"all_{depth}": _log(post.ratio.sel(depth=depth)) for depth in JUDGED}
    found |= {
        name: kinds.sel(kind=kind, block=1) - kinds.sel(kind=kind, block=DEEP)
        for name, kind in (("query", "query"), ("ffn", "up"))
    }
    found |= {
        f"trained_{depth}_{moment}": _log(followed.ratio.sel(arm=f"post {depth}", moment=moment))
        for depth in (6, 12)
        for moment in MOMENTS[1:]
    }
    return {name: {"value": values} for name, values in found.items()}


@evidence("CS-4.6")
def _(remedies: Dataset) -> dict[str, Any]:
    logs = _log(remedies.steps)

    def halfway(optimiser: str) -> DataArray:
        return (logs.sel(arm=f"{optimiser} pre") + logs.sel(arm=f"{optimiser} post")) / 2

    return {
        remedy: {"treatment": logs.sel(arm=f"{kind} {remedy}"), "baseline": halfway(kind)}
        for kind, remedy in (("SGD", "blocks"), ("SGD", "kinds"), ("AdamW", "rates"))
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def level() -> float:
    """The loss at which the task counts as solved."""
    return LEVEL


def geometric(values: DataArray) -> float:
    """The geometric mean over seeds."""
    return float(np.exp(_log(values).mean("seed")))


@number
def draws(depths: Dataset) -> int:
    """How many models of each depth are drawn."""
    return int(depths.sizes["seed"])


@number
def slope(depths: Dataset, *, what: str, placement: str, end: str) -> DataArray:
    """Slope of a logarithm over that of the number of blocks, a straight line through all depths; one per seed.

    Args:
        depths: the result.
        what: 'size', 'gradient' or 'matrix'.
        placement: 'pre' or 'post'.
        end: 'first' or 'last' block.
    """
    values = _log(depths[what].sel(placement=placement))
    ends = [values.sel(depth=d, after=1 if end == "first" else d) for d in DEPTHS]
    return _slope(
        np.array(DEPTHS), xarray.concat([one.drop_vars(("depth", "after")) for one in ends], "x")
    )


@number
def slope_edge(depths: Dataset, *, what: str, placement: str, end: str, side: str) -> float:
    """The 'lower' or 'upper' edge of the 95 % interval of the mean of such slopes."""
    found = slope(depths, what=what, placement=placement, end=end)
    low, high = mean_interval(found.values).interval
    return low if side == "lower" else high


@number
def width_slope(depths: Dataset, *, placement: str) -> DataArray:
    """The same over the width of the stream, for the last writing matrix of six blocks."""
    return _slope(
        np.array(WIDTHS), _log(depths.by_width.sel(placement=placement)).rename(width="x")
    )


def _slope(x: ndarray, logs: DataArray) -> DataArray:
    """Least squares, seed by seed."""
    across = np.log(x) - np.log(x).mean()
    rows = logs.transpose("seed", "x").values
    return DataArray(rows @ across / (across @ across), dims="seed")


@number
def product(depths: Dataset, *, edge: str) -> float:
    """Gradient times size, a geometric mean over seeds: its smallest or largest over all pre-norm states."""
    here = depths.sel(placement="pre")
    means = np.exp(_log(here.gradient * here["size"]).mean("seed"))
    return float(means.min() if edge == "smallest" else means.max())


@number
def at(depths: Dataset, *, what: str, placement: str, depth: int, after: int) -> float:
    """A geometric mean over seeds, in models of this depth after so many blocks."""
    return geometric(depths[what].sel(placement=placement, depth=depth, after=after))


@number
def first_to_last(untrained: Dataset, *, placement: str, depth: int) -> float:
    """The first block's gradient over the last one's before training, a geometric mean."""
    return geometric(untrained.ratio.sel(placement=placement, depth=depth))


@number
def within(untrained: Dataset) -> int:
    """Untrained post-norm models whose first block's gradient is a third to a fifth of the last one's."""
    ratio = untrained.ratio.sel(placement="post")
    return int(((ratio >= 1 / 5) & (ratio <= 1 / 3)).sum())


@number
def models(untrained: Dataset) -> int:
    """How many of these there are."""
    return int(untrained.ratio.sel(placement="post").size)


@number
def kind_ratio(untrained: Dataset, *, placement: str, kind: str) -> float:
    """The first of twelve blocks over the last, for one kind of parameters, a geometric mean."""
    values = untrained.kinds.sel(placement=placement, kind=kind)
    return geometric(values.sel(block=1) / values.sel(block=DEEP))


@number
def largest_spread(followed: Dataset, *, start: str, depth: int) -> DataArray:
    """The longest block's gradient over the shortest one's, the largest of all moments; one per seed."""
    return followed.spread.sel(arm=f"{start} {depth}").max("moment")


@number
def many_blocks(followed: Dataset) -> int:
    """Trained pre-norm models with Xavier weights and six or twelve blocks."""
    return 2 * int(followed.sizes["seed"])


@number
def moment_ratio(followed: Dataset, *, arm: str, depth: int, moment: int) -> float:
    """The first block's gradient over the last one's after so many steps, a geometric mean."""
    return geometric(followed.ratio.sel(arm=f"{arm} {depth}", moment=moment))


@number
def query_ratio(followed: Dataset, *, arm: str, depth: int, moment: int) -> float:
    """The same for the query weights alone."""
    return geometric(followed.queries.sel(arm=f"{arm} {depth}", moment=moment))


@number
def mean_steps(remedies: Dataset, *, optimiser: str, arm: str) -> float:
    """Steps to solve the task, a geometric mean."""
    return geometric(remedies.steps.sel(arm=f"{optimiser} {arm}"))


@number
def closed(remedies: Dataset, *, optimiser: str, arm: str) -> float:
    """The share of the gap from post-norm to pre-norm, in mean logarithms of steps, that an arm closes."""
    logs = _log(remedies.steps).mean("seed")
    post = logs.sel(arm=f"{optimiser} post")
    gap = post - logs.sel(arm=f"{optimiser} pre")
    return float((post - logs.sel(arm=f"{optimiser} {arm}")) / gap)
