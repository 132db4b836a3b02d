"""Numbers of the chapter on positional encoding that no expression says: how similarity rises and falls."""

from __future__ import annotations

import numpy as np
import torch
from measured_transformer.analysis.sinusoids import (
    largest_climb,
    offset_deviation,
    rises,
    wrong_order_share,
)
from xarray import Dataset

from measured_book.measuring import number


def _similar(tables: Dataset) -> np.ndarray:
    values: np.ndarray = tables.similarity.isel(seed=0).values
    return values


@number
def rising(tables: Dataset) -> int:
    """Steps at which one farther is more alike."""
    return len(rises(_similar(tables)))


@number
def first_rise(tables: Dataset) -> int:
    """The first of them."""
    return int(rises(_similar(tables))[0])


@number
def climb(tables: Dataset) -> float:
    """The largest climb, as a share of the similarity at distance 0."""
    return largest_climb(_similar(tables))[0] / float(_similar(tables)[0])


@number
def climb_foot(tables: Dataset) -> int:
    """Where it begins."""
    return largest_climb(_similar(tables))[1]


@number
def climb_top(tables: Dataset) -> int:
    """Where it ends."""
    return largest_climb(_similar(tables))[2]


@number
def wrong_order(tables: Dataset) -> float:
    """Share of pairs of distances of which the farther is the more alike."""
    return wrong_order_share(_similar(tables))


@number
def near_above_far(tables: Dataset) -> float:
    """The smallest similarity at distances 1 to 10, less the largest at distances of 20 and more."""
    values = _similar(tables)
    return float(values[1:11].min() - values[20:].max())


@number
def trend(tables: Dataset) -> float:
    """Rank correlation of similarity and distance."""
    values = _similar(tables)
    return float(np.corrcoef(np.arange(len(values)), values.argsort().argsort())[0, 1])


@number
def trained_deviations(reversal: Dataset) -> list[float]:
    """How far similarities of trained tables lie from their mean at the same offset, of every seed."""
    return [offset_deviation(torch.tensor(dots)) for dots in reversal.learned.values]
