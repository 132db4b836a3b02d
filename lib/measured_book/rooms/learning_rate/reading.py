"""What no expression says of the results of the chapter on the learning rate: parabolas and hyperbolas."""

from __future__ import annotations

import numpy as np
import xarray
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.evidence.functions import best_rate
from measured_book.measuring import number
from measured_book.rooms.learning_rate.measure import (
    BATCH_RATES,
    CAPS,
    adam_steps,
    hyperbola,
)


@number
def log_steps(batches: Dataset) -> DataArray:
    """Logarithm of the steps of each seed and batch size, at the rate that is best for the other seeds."""
    found = [best_rate(np.log(batches.steps.sel(batch=size, drop=True))) for size in CAPS]
    sizes = DataArray(list(CAPS), dims="batch", name="batch")
    joined: DataArray = xarray.concat(found, sizes).transpose("seed", "batch")
    return joined


@number
def best_rates(batches: Dataset) -> DataArray:
    """The best rate of each seed and batch size: the vertex of a parabola in logarithms.

    It goes through the rate with the fewest steps and its two neighbours.
    """
    logs, x = np.log(batches.steps.transpose("seed", "batch", "rate").values), np.log(BATCH_RATES)
    found = np.empty(logs.shape[:2])
    for at in np.ndindex(*found.shape):
        low = int(np.clip(logs[at].argmin(), 1, len(x) - 2))
        a, b, _ = np.polyfit(x[low - 1 : low + 2], logs[at][low - 1 : low + 2], 2)
        vertex = -b / (2 * a) if a > 0 else x[low]
        found[at] = np.exp(np.clip(vertex, x[low - 1], x[low + 1]))
    return DataArray(
        found, dims=("seed", "batch"), coords={"seed": batches.seed, "batch": batches.batch}
    )


@number
def jump(*, beta2: float) -> float:
    """Adam's largest step, in units of the rate, after a constant gradient has become ten times as large."""
    return float(adam_steps([1.0] * 4000 + [10.0] * 400, betas=(0.9, beta2)).max())


@number
def critical_size(batches: Dataset) -> float:
    """The critical batch size of the hyperbola through the geometric means."""
    return _hyperbola(log_steps(batches).mean("seed"))[1]


@number
def fitted(batches: Dataset, *, what: str) -> DataArray:
    """The `critical` batch size of each seed's hyperbola, or the largest `residual` of a logarithm of steps."""
    fits = [_hyperbola(logs) for logs in log_steps(batches)]
    found = [size if what == "critical" else float(np.abs(off).max()) for _, size, off in fits]
    return DataArray(found, dims="seed", coords={"seed": batches.seed})


def _hyperbola(logs: DataArray) -> tuple[float, float, ndarray]:
    return hyperbola([float(size) for size in CAPS], np.exp(logs.values).tolist())
