"""Readings of the chapter on activations and widths that no expression says, or that a figure shows too."""

from __future__ import annotations

import math

import numpy as np
from xarray import DataArray, Dataset

from measured_book.evidence.functions import best_rate
from measured_book.measuring import number


@number
def log_errors(multiplied: Dataset) -> DataArray:
    """Natural logarithm of the error of each seed, at the rate that is best for the *other* seeds."""
    bounded = multiplied.error.clip(max=1e6)
    return DataArray(best_rate(bounded.copy(data=np.log(bounded.values))))


@number
def fitted_loss(widths: Dataset, *, held: str, ratio: float) -> DataArray:
    """Of each seed: a straight line through the loss over the logarithm of the width, read at one width."""
    losses = widths.loss.sel(held=held)
    doublings = np.log2(losses.ratio.values.astype(float))
    lines = np.polyfit(doublings, losses.transpose("ratio", "seed").values, 1)
    return DataArray(np.polyval(lines, math.log2(ratio)), {"seed": losses.seed.values})


@number
def seeds_apart(text: Dataset) -> float:
    """How far two seeds of ReLU are apart on text, on average, in nats."""
    values = text.loss.sel(kind="relu").values
    return float(np.mean([abs(a - b) for i, a in enumerate(values) for b in values[:i]]))
