"""Readings of the chapter on regularisation that no expression says, and early stopping, which is drawn too."""

from __future__ import annotations

import numpy as np
from xarray import DataArray, Dataset, apply_ufunc

from measured_book.evidence.functions import best
from measured_book.measuring import number
from measured_book.rooms.regularisation.measure import (
    NOISY,
    TURNING_RATE,
    equilibrium_turn,
    remedy,
    smoothed_ideal,
)


@number
def stopped(remedies: Dataset) -> DataArray:
    """Loss without a remedy after early stopping, at the step that is best for the other seeds.

    That at the end, less what the looks on the way save.
    """
    curve = remedies.curve.sel(arm="none", drop=True)
    saved = curve.isel(step=-1, drop=True) - best(curve, "step")
    return remedies.held.sel(arm="none", drop=True) - saved


@number
def tuned_rate(*, passes: str, arm: str) -> float:
    """The learning rate that suits an arm best."""
    rate: float = remedy(passes, arm, 0).settings["learning_rate"]
    return rate


@number
def expected_turn(*, momentum: float) -> float:
    """How far a step turns the query matrix by the formula, in radians."""
    return equilibrium_turn(TURNING_RATE, 1.0, momentum)


@number
def turn_degrees(turning: Dataset, *, start: str) -> DataArray:
    """How far one of the last steps turns the query matrix."""
    found: DataArray = apply_ufunc(np.degrees, turning.turn.sel(start=start))
    return found


@number
def ideal_cost() -> float:
    """What a tenth of smoothing adds to the loss of a model that has learnt everything."""
    return smoothed_ideal(NOISY, 0.1)[0] - NOISY.bayes_loss()


@number
def ideal_gap() -> float:
    """How much less than it keeps such a model promises."""
    return smoothed_ideal(NOISY, 0.1)[1]
