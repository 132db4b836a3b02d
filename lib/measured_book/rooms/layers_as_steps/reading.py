"""What no expression says of the results of the chapter on refining and rewriting."""

from __future__ import annotations

import numpy as np
from measured_transformer.analysis.layers import centre_of_gravity
from measured_transformer.analysis.lens import rise_chosen_apart
from scipy import stats
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.layers_as_steps.measure import DEPTH, SAMPLES, SMALL, share_of_pairs

KNOWS = 0.99


@number
def rises(readings: Dataset) -> DataArray:
    """The rise of the loss read off the stream at the block where it is largest on other sequences."""
    rows = readings["read"].transpose(..., "sample", "state")
    found = rise_chosen_apart(
        rows.sel(sample=SAMPLES[0]).values, rows.sel(sample=SAMPLES[1]).values
    )
    return rows.isel(sample=0, state=0, drop=True).copy(data=found)


def against(cosines: DataArray) -> DataArray:
    """Share of the pairs of blocks whose writes point against one another."""
    rows = cosines.transpose(..., "block", "other")
    found = [share_of_pairs(one) for one in rows.values.reshape(-1, DEPTH, DEPTH)]
    kept = rows.isel(block=0, other=0, drop=True)
    return kept.copy(data=np.reshape(found, kept.shape))


@number
def opposed(twelve: Dataset, *, which: str) -> DataArray:
    """Share of the pairs of blocks whose writes, `raw` or `centred`, point against one another."""
    return against(twelve[which])


@number
def centres(sentences: Dataset) -> DataArray:
    """Where in the depth probes gain what they gain: the centre of gravity, as a share of the depth."""
    rows = sentences.gained.transpose("seed", "kind", "what", "state")
    found = np.apply_along_axis(centre_of_gravity, -1, rows.values)
    return rows.isel(state=0, drop=True).copy(data=found)


@number
def surplus_ratio(six: Dataset) -> DataArray:
    """Mean length, over that of the stream, of the writes of those blocks that are missed least."""
    needed = DataArray([SMALL[name][2] for name in six.task.values.tolist()], dims="task")
    skip = six.skip.transpose(..., "block")
    ranks = skip.copy(data=stats.rankdata(-skip.values, axis=-1))  # 1: missed most
    return six.ratio.where(ranks > needed).mean("block")


@number
def length_agreement(lookups: Dataset) -> DataArray:
    """Rank correlation with the length by each of `MEASURES`, mean over a seed's models that know the task."""
    return lookups.agreement.where(lookups.accuracy >= KNOWS).mean("model")
