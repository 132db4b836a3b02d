"""Readings of the chapter on the residual stream that no expression says."""

from __future__ import annotations

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import number


@number
def written(twelve: Dataset) -> DataArray:
    """Lengths of a block's two writes, each relative to the stream it is added to, summed."""
    found = twelve.ratio.coarsen(sublayer=2).sum().rename(sublayer="block")
    return found.assign_coords(block=np.arange(found.sizes["block"]) + 1)


@number
def grown_by(twelve: Dataset, fetched: Dataset, *, fetching: int, block: int) -> DataArray:
    """By which factor a block lengthens the stream, in the models in which block `fetching` fetches."""
    stream = twelve.stream.sel(stage="trained", seed=fetched.mirrored.idxmax("block") == fetching)
    return stream.sel(state=block, drop=True) / stream.sel(state=block - 1, drop=True)
