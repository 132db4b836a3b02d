"""A number of the chapter on initialisation that no expression says: the interval of a test of equivalence."""

from __future__ import annotations

import numpy as np
from xarray import Dataset

from measured_book.evidence import statistics
from measured_book.measuring import number

MARGIN = 0.25
"""The largest slope, in doublings of the best learning rate per doubling of the width, that counts as none."""


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
