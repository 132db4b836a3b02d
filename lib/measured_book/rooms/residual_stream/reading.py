"""Readings of the chapter on the residual stream that no expression says."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.residual_stream.measure import STATED_GROWTH


@number
def leaning(*, reading: str) -> float:
    """The cosine that each of the case study's writes has with the stream it is added to, one for all.

    The lengths of the stream before, of its writes and of the stream after decide it; the writes' cosine with
    one another follows. `needed_cosine` averages over all pairs instead.
    """
    before, writes, after = STATED_GROWTH[reading]

    def length(cosine: float) -> float:
        now = before
        for write in writes:
            now = math.sqrt(now**2 + write**2 + 2 * now * write * cosine)
        return now

    return float(brentq(lambda cosine: length(cosine) - after, -1.0, 1.0))


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
