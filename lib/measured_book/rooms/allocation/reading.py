"""How the results of the chapter on attention as a budget are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.allocation.measure import SHARING_RATES

# What the claims are judged by --------------------------------------------------------------------


@evidence("DD-9.5")
def _(budget: Dataset) -> dict[str, Any]:
    return {"value": budget.each.isel(seed=0)}


@evidence("DD-9.6")
def _(budget: Dataset) -> dict[str, Any]:
    return {
        "weight": {"value": budget.alone},
        "lead": {"error": budget.error.isel(seed=0), "control": budget.control.isel(seed=0)},
    }


@evidence("DD-9.7")
def _(reading: Dataset) -> dict[str, Any]:
    short = reading.own_length.sel(trained_at=32)
    return {
        "split": {
            "treatment": reading.alone.sel(split=10),
            "baseline": reading.alone.sel(split=1),
        },
        "leakage": {"treatment": reading.own_length.sel(trained_at=512), "baseline": short},
        "longer": {"treatment": reading.read.sel(needed=10, tokens=512), "baseline": short},
    }


@evidence("DD-9.8b")
def _(sharing: Dataset) -> dict[str, Any]:
    far = sharing.read.sel(tokens=4096)
    return {
        name: {
            "treatment": far.sel(kind="shared", rate=rate),
            "baseline": far.sel(kind="own", rate=rate),
            "headroom": 1 - far.sel(kind="own", rate=rate),
        }
        for name, rate in zip(("small", "middle", "large"), SHARING_RATES, strict=True)
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def control_least(budget: Dataset) -> float:
    """The smallest error of the total weight where the margin is smaller by one."""
    return float(np.abs(budget.control.values).min())


@number
def formula_error(reading: Dataset) -> float:
    """The largest difference between the mean over seeds and what the margins predict."""
    return float(np.abs((reading.read - reading.predicted).mean("seed")).max())


@number
def reach(reading: Dataset) -> DataArray:
    """The length at which a single needed token is down to half of the weight."""
    return 1 + np.exp(reading.margin.sel(trained_at=32))


def _half_at(reading: Dataset, n: int) -> DataArray:
    curves = reading.learning.sel(trained_at=n)
    return reading.step[(curves > 0.5).argmax("step")]


@number
def half_32(reading: Dataset) -> DataArray:
    """The first step, of those looked at, with an R2 above one half, for training at 32 tokens."""
    return _half_at(reading, 32)


@number
def half_512(reading: Dataset) -> DataArray:
    """The same at 512 tokens."""
    return _half_at(reading, 512)
