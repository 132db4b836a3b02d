"""What no expression says of the results of the chapter on induction: a pair of heads, and half-way points."""

from __future__ import annotations

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.induction.measure import EVERY, LOOKS, STRINGS


@number
def pair(formed: Dataset) -> DataArray:
    """K-composition of the strongest pair of trained heads of attention alone, before and after training."""
    trained = formed.sel(deep="attention only", state="trained", drop=True)
    back = trained.previous.sel(layer=0, drop=True).argmax("head")
    match = trained.prefix.sel(layer=1, drop=True).argmax("head")
    table = formed.composition.sel(by="k", drop=True)
    return table.isel(head=back, later=match).drop_vars(("head", "later"))


def _first(values: DataArray, level: DataArray | float, *, falls: bool) -> DataArray:
    """The step at which each seed's curve first crosses a level, between two looks by a straight line."""
    found = []
    for seed in values.seed:
        row = values.sel(seed=seed).values
        at = float(level.sel(seed=seed)) if isinstance(level, DataArray) else level
        row, at = (-row, -at) if falls else (row, at)
        k = int(np.argmax(row >= at))
        if row[k] < at:
            found.append(float(LOOKS[-1]))
        elif k == 0:
            found.append(float(LOOKS[0]))
        else:
            share = (at - row[k - 1]) / (row[k] - row[k - 1])
            found.append(float(LOOKS[k - 1] + EVERY * share))
    return DataArray(found, dims="seed", coords={"seed": values.seed})


@number
def half(cliff: Dataset, *, what: str) -> DataArray:
    """The step at which the loss has fallen half way from knowing the letters, or a score is half way up."""
    rows = cliff[what]
    if what == "loss":
        return _first(rows, STRINGS.bag_loss() / 2, falls=True)
    return _first(rows, (rows.isel(look=0) + rows.isel(look=-1)) / 2, falls=False)
