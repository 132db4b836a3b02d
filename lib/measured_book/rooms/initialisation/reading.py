"""How the results of the chapter on initialisation are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from xarray import DataArray, Dataset

from measured_book.evidence import statistics
from measured_book.measuring import evidence, number
from measured_book.rooms.initialisation.measure import (
    BASE,
    DEEP_TASKS,
    DESIGNS,
    FACTORS,
    LOOKED,
    READINGS,
    STATES,
    TWELVE,
    WIDTHS,
    slope,
)


def at_best_rate(losses: DataArray) -> DataArray:
    """Each seed's loss at the learning rate whose mean loss over the *other* seeds is smallest.

    Args:
        losses: with the axes ``seed``, ``arm`` and ``rate``.
    """
    others = losses.sum("seed") - losses
    chosen: DataArray = losses.isel(rate=others.argmin("rate")).drop_vars("rate")
    return chosen


MARGIN = 0.25
"""The largest slope, in doublings of the best learning rate per doubling of the width, that counts as none."""


# What the claims are judged by --------------------------------------------------------------------


@evidence("DD-10.9")
def _(formulas: Dataset) -> dict[str, Any]:
    return {
        reading: {"value": float(formulas.gain.sel(reading=reading).mean())} for reading in READINGS
    }


@evidence("DD-10.10")
def _(passages: Dataset) -> dict[str, Any]:
    last = passages.stream.sel(scaled="rest", state=STATES[-1])
    return {
        f"{design}_{name}": {"value": last.sel(design=design, factor=factor)}
        for design in DESIGNS
        for name, factor in (("small", FACTORS[0]), ("large", FACTORS[-1]))
    }


@evidence("DD-10.11a")
def _(formulas: Dataset) -> dict[str, Any]:
    first, last = (formulas.deviation.sel(rule="gpt2", block=b) for b in (1, TWELVE.n_layers))
    return {"value": float(last.mean() / first.mean())}


@evidence("DD-10.11b")
def _(rules: Dataset) -> dict[str, Any]:
    found = {}
    for task in DEEP_TASKS:
        treatment, baseline = (rules.loss.sel(task=task, rule=r) for r in ("depth-index", "gpt2"))
        found[task] = {"treatment": treatment, "baseline": baseline, "headroom": baseline}
    return found


# Numbers that the prose names ---------------------------------------------------------------------


@number
def last(passages: Dataset, *, quantity: str, scaled: str, design: str, factor: float) -> DataArray:
    """Powers of ten of the stream at the top, or of the gradient at the embedding, of an untrained model."""
    state = STATES[-1] if quantity == "stream" else STATES[0]
    found: DataArray = passages[quantity].sel(
        scaled=scaled, design=design, factor=factor, state=state
    )
    return found


@number
def default_gain(defaults: Dataset, *, weight: str) -> float:
    """Width times variance of the weights whose name begins so, as PyTorch draws them: a mean over seeds."""
    names = [str(name) for name in defaults.weight.values]
    (index,) = (i for i, name in enumerate(names) if name.startswith(weight))
    return float(defaults.gain.isel(weight=index).mean())


@number
def slope_end(transfer: Dataset, *, rule: str, end: str) -> float:
    """An end of the interval of a rule's slope with which equivalence is tested, of a confidence of 90 %."""
    found = statistics.equivalence(
        transfer.slope.sel(rule=rule).values,
        np.zeros(transfer.sizes["seed"]),
        margin=MARGIN,
        paired=True,
        confidence=0.95,
    )
    return float(found.interval[("low", "high").index(end)])


@number
def best_rate(transfer: Dataset, *, rule: str, width: int) -> float:
    """The best learning rate at a width: a geometric mean over seeds."""
    return float(2 ** transfer.best.sel(rule=rule, width=width).mean())


@number
def carried(transfer: Dataset, *, rule: str) -> DataArray:
    """What it costs at width 128 to keep the learning rate that is best at width 16, nats a byte."""
    losses = transfer.loss.sel(rule=rule)
    kept = losses.sel(width=BASE).mean("seed").idxmin("rate")
    wide = losses.sel(width=WIDTHS[-1])
    found: DataArray = wide.sel(rate=kept) - at_best_rate(wide.expand_dims("arm", 1)).isel(arm=0)
    return found


@number
def reached(transfer: Dataset, *, rule: str, width: int) -> DataArray:
    """Loss of a width at the learning rate that is best for the other seeds."""
    one = transfer.loss.sel(rule=rule, width=width)
    return at_best_rate(one.expand_dims("arm", 1)).isel(arm=0)


@number
def growth(coordinates: Dataset, *, rule: str, value: str, updates: int) -> DataArray:
    """The power of the width with which the change of a value after so many updates grows."""
    changes = np.log2(coordinates.change.sel(rule=rule, value=value, update=updates))
    slopes = [slope(LOOKED, row.tolist()) for row in changes.transpose("seed", "width").values]
    return xarray.DataArray(slopes, dims=("seed",))
