"""Readings of the chapter on gradients that no expression says."""

from __future__ import annotations

import numpy as np
from measured_transformer.analysis.solving import LEVEL
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.norm_gradients.measure import DEPTHS


@number
def level() -> float:
    """The loss at which the task counts as solved."""
    return LEVEL


@number
def depth_slope(depths: Dataset, *, what: str, placement: str, end: str) -> DataArray:
    """Slope of a logarithm over that of the number of blocks, a straight line through all depths; one per seed.

    Args:
        depths: the result.
        what: 'size', 'gradient' or 'matrix'.
        placement: 'pre' or 'post'.
        end: 'first' or 'last' block.
    """
    values = depths[what].sel(placement=placement)
    after = DataArray([1 if end == "first" else d for d in DEPTHS], {"depth": list(DEPTHS)})
    rows = np.log(values.sel(depth=after.depth, after=after).transpose("seed", "depth").values)
    across = np.log(DEPTHS) - np.log(DEPTHS).mean()
    return DataArray(rows @ across / (across @ across), {"seed": depths.seed.values})
