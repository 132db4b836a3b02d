"""What no expression says of the results of the chapter on warm-up: alarms, and the interval of a share."""

from __future__ import annotations

import numpy as np
from xarray import DataArray, Dataset

from measured_book.evidence.statistics import proportion
from measured_book.measuring import number
from measured_book.rooms.warm_up.measure import SAME_RATE

BUDGET = 5.0
"""False alarms that are allowed in a thousand calm steps."""


def thresholds(spikes: Dataset, signal: str) -> DataArray:
    """For each seed the place of the lowest threshold of an alarm that the calm steps of other seeds allow."""
    here = spikes.sel(signal=signal)
    found = []
    for seed in spikes.seed.values:
        others = here.drop_sel(seed=seed)
        false = others.false_alarms.sum(("seed", "run")) / float(others.calm.sum())
        allowed = np.flatnonzero(1000 * false.values <= BUDGET)
        found.append(int(allowed[0]) if len(allowed) else -1)
    return DataArray(found, dims="seed", coords={"seed": spikes.seed})


@number
def share_warned(spikes: Dataset, *, signal: str) -> DataArray:
    """The share of its spikes that each seed is warned of; seeds without a spike are left out."""
    high = spikes.sel(run="high")
    warned = high.warned.sel(signal=signal).isel(threshold=thresholds(spikes, signal))
    share: DataArray = (warned / high.spikes)[high.spikes.values > 0]
    return share


@number
def share_learned(remedies: Dataset, *, arm: str) -> list[float]:
    """The Clopper-Pearson interval of the share of runs that learn at the rate that all share."""
    learn = remedies.solved.sel(arm=arm, rate=SAME_RATE)
    return list(proportion(int(learn.sum()), int(learn.size)).interval)


@number
def warned(spikes: Dataset, *, signal: str) -> float:
    """Share of all spikes warned of when the budget of false alarms is used up, between two thresholds."""
    here = spikes.sel(signal=signal)
    false = 1000 * here.false_alarms.sum(("seed", "run")) / float(spikes.calm.sum())
    share = here.warned.sel(run="high").sum("seed") / float(spikes.spikes.sel(run="high").sum())
    return float(np.interp(BUDGET, false.values[::-1], share.values[::-1]))
