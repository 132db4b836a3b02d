"""How the results of the chapter on the scale are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.scale.measure import HEAD_WIDTHS

# What the claims are judged by --------------------------------------------------------------------


@evidence("DD-13.7")
def _(exact: Dataset) -> dict[str, Any]:
    return {"value": exact.beyond.sel(bound=50)}


@evidence("DD-13.8")
def _(exact: Dataset, drawn: Dataset) -> dict[str, Any]:
    wide = drawn.sel(width=512)
    return {
        "stated": {"value": exact.stated},
        "typical": {"value": wide.passing_median.mean("seed")},
        "average": {"value": wide.passing_mean.mean("seed")},
    }


@evidence("DD-13.9")
def _(exact: Dataset, drawn: Dataset) -> dict[str, Any]:
    return {
        "exact": {
            "error": exact.any_key.isel(seed=0) - 1,
            "control": exact.own_key.isel(seed=0) - 1,
        },
        "sampled": {"value": drawn.variance.mean("seed").sel(width=[16, 64, 512])},
    }


@evidence("DD-13.10")
def _(rates: Dataset) -> dict[str, Any]:
    return {
        f"width_{width}": {
            "treatment": at_own_rate(rates.accuracy.sel(width=width, arm="root")),
            "baseline": at_own_rate(rates.accuracy.sel(width=width, arm="none")),
        }
        for width in HEAD_WIDTHS
    }


@evidence("EX-1.2")
def _(arriving: Dataset, rounding: Dataset) -> dict[str, Any]:
    moved = rounding["mean"].sel(rounded="scores").mean("seed")
    return {
        "float16": {"value": arriving.beyond_float16.sum()},
        "float32": {"value": arriving.not_finite.sum()},
        "rounding": {"value": moved.sel(arm="none") - moved.sel(arm="root")},
        "saturation": {"value": arriving.saturation.mean()},
    }


@evidence("EX-1.3")
def _(divisor: Dataset) -> dict[str, Any]:
    def of(values: DataArray) -> dict[str, Any]:
        names = {"treatment": "stream", "baseline": "head", "control": "width"}
        return {role: values.sel(divisor=name) for role, name in names.items()}

    return {"loss": of(np.log(divisor.curve.mean("step"))), "steps": of(np.log(divisor.steps))}


def at_own_rate(values: DataArray) -> Float[ndarray, "seed"]:
    """Each seed's value at the learning rate that is best for the other seeds: chosen and judged apart.

    Args:
        values: over (seed, rate), larger is better.
    """
    table = values.transpose("seed", "rate").values
    others = table.sum(0) - table
    chosen: ndarray = table[np.arange(len(table)), others.argmax(1)]
    return chosen


# Numbers that the prose names ---------------------------------------------------------------------


@number
def one_in(exact: Dataset) -> float:
    """One of so many scores of width 512 lies beyond 50."""
    return 1 / float(exact.beyond.sel(bound=50).mean())


def _own(rates: Dataset, width: int, arm: str) -> DataArray:
    return DataArray(at_own_rate(rates.accuracy.sel(width=width, arm=arm)), dims="seed")


@number
def none_16(rates: Dataset) -> DataArray:
    """Accuracy without the scale at its own learning rate, heads of 16."""
    return _own(rates, 16, "none")


@number
def none_64(rates: Dataset) -> DataArray:
    """The same, heads of 64."""
    return _own(rates, 64, "none")


@number
def none_128(rates: Dataset) -> DataArray:
    """The same, a head of 128."""
    return _own(rates, 128, "none")


@number
def root_16(rates: Dataset) -> DataArray:
    """Accuracy with the scale, heads of 16."""
    return _own(rates, 16, "root")


@number
def root_64(rates: Dataset) -> DataArray:
    """The same, heads of 64."""
    return _own(rates, 64, "root")


@number
def root_128(rates: Dataset) -> DataArray:
    """The same, a head of 128."""
    return _own(rates, 128, "root")


@number
def norm_128(rates: Dataset) -> DataArray:
    """Accuracy with QK-norm, a head of 128."""
    return _own(rates, 128, "norm")


@number
def start_128(apart: Dataset) -> DataArray:
    """Accuracy with a soft start and long steps, at its own learning rate."""
    return DataArray(at_own_rate(apart.accuracy.sel(arm="start")), dims="seed")


@number
def steps_128(apart: Dataset) -> DataArray:
    """Accuracy with a hard start and short steps."""
    return DataArray(at_own_rate(apart.accuracy.sel(arm="steps")), dims="seed")
