"""How the results of the chapter on regularisation are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import DataArray, Dataset, apply_ufunc

from measured_book.measuring import evidence, number
from measured_book.rooms.regularisation.measure import (
    MOMENTUM,
    NOISY,
    PLACES,
    TURNING_LAST,
    TURNING_RATE,
    equilibrium_turn,
    remedy,
    smoothed_ideal,
)

# What claims are judged by ------------------------------------------------------------------------


def _log(values: DataArray) -> DataArray:
    found: DataArray = apply_ufunc(np.log, values)
    return found


def against(
    values: DataArray, passes: str, arm: str, baseline: str = "none"
) -> dict[str, DataArray]:
    """Two arms on one kind of data."""
    here = values.sel(passes=passes)
    return {"treatment": here.sel(arm=arm), "baseline": here.sel(arm=baseline)}


def early_stopped(curve: DataArray) -> DataArray:
    """Loss where training ends at the step that is best for the *other* seeds."""
    others = curve.sum("seed") - curve
    return curve.isel(step=others.argmin("step"))


def stopped_loss(remedies: Dataset) -> DataArray:
    """Loss without a remedy after early stopping: that at the end, less what the looks on the way save."""
    curve = remedies.curve.sel(arm="none")
    saved = curve.isel(step=-1, drop=True) - early_stopped(curve)
    return remedies.held.sel(arm="none") - saved


@evidence("DD-10.1")
def _(places: Dataset) -> dict[str, Any]:
    named = list(PLACES[:3])
    return {
        "named": {
            "value": places.change.sel(place=named).values.ravel(),
            "control": places.still.sel(place=named).values.ravel(),
        },
        "count": {"value": places["count"].isel(seed=0)},
    }


@evidence("DD-10.3")
def _(masks: Dataset) -> dict[str, Any]:
    return {
        str(what): {
            "error": masks.error.sel(claimed=what),
            "control": masks.control.sel(claimed=what),
        }
        for what in masks.claimed.values
    }


@evidence("DD-6.4a")
def _(masks: Dataset) -> dict[str, Any]:
    return {
        name: {
            "error": masks.behind.isel(moment=i),
            "control": masks.behind_control.isel(moment=i),
        }
        for i, name in enumerate(("mean", "variance"))
    }


@evidence("DD-6.4b")
def _(remedies: Dataset, behind: Dataset) -> dict[str, Any]:
    before = remedies.held.sel(arm="dropout")
    return {
        part: {
            "treatment": behind.held.sel(passes=passes),
            "baseline": before.sel(passes=passes),
            "headroom": before.sel(passes=passes) - NOISY.bayes_loss(),
        }
        for part, passes in (("repeated", "40"), ("new", "new"))
    }


@evidence("DA-3.3")
def _(remedies: Dataset) -> dict[str, Any]:
    parts = {"passes_40": "40", "passes_10": "10", "passes_4": "4", "new": "new"}
    return {part: against(remedies.held, passes, "dropout") for part, passes in parts.items()}


@evidence("DD-10.2")
def _(remedies: Dataset) -> dict[str, Any]:
    often = remedies.sel(passes=["40"])
    return {
        "lower": against(often.held, "40", "dropout"),
        "prevents": against(_log(often.held - often.trained), "40", "dropout"),
    }


@evidence("DA-3.2")
def _(remedies: Dataset) -> dict[str, Any]:
    metrics = {"likelihood": "held"} | {m: m for m in ("tokens", "sequences", "calibration")}
    return {
        f"{kind}_{metric}": against(remedies[name], passes, "smoothing")
        for kind, passes in (("repeated", "40"), ("fresh", "new"))
        for metric, name in metrics.items()
    }


@evidence("LT-7.1")
def _(remedies: Dataset) -> dict[str, Any]:
    return {"value": cost_share(remedies, passes="4")}


@evidence("LT-7.2")
def _(remedies: Dataset) -> dict[str, Any]:
    return {
        name: against(remedies.held, "40", "dropout", baseline)
        for name, baseline in (("helps", "none"), ("smoothing", "smoothing"), ("decay", "decay"))
    }


@evidence("LT-7.3")
def _(remedies: Dataset) -> dict[str, Any]:
    return {
        "trained": against(remedies.trained, "new", "decay"),
        "held": against(remedies.held, "new", "decay"),
    }


@evidence("LT-7.4")
def _(turning: Dataset) -> dict[str, Any]:
    return {
        "turn": {"value": _log(turn_ratio(turning, start="as drawn"))},
        "bare": {"value": _log(turn_ratio(turning, start="no momentum"))},
        "length": {"value": _log(length_ratio(turning))},
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def cost_share(remedies: Dataset, *, passes: str) -> DataArray:
    """What so many passes cost, beyond new pairs, as a share of what forty cost; no remedy."""
    held = remedies.held.sel(arm="none")
    new = held.sel(passes="new")
    return (held.sel(passes=passes) - new) / (held.sel(passes="40") - new)


@number
def best_rate(*, passes: str, arm: str) -> float:
    """The learning rate that suits an arm best."""
    rate: float = remedy(passes, arm, 0).settings["learning_rate"]
    return rate


@number
def turn_ratio(turning: Dataset, *, start: str) -> DataArray:
    """How far a step turns the query matrix, as a multiple of what the formula says."""
    momentum = 0.0 if start == "no momentum" else MOMENTUM
    return turning.turn.sel(start=start) / equilibrium_turn(TURNING_RATE, 1.0, momentum)


@number
def turn_degrees(turning: Dataset, *, start: str) -> DataArray:
    """How far one of the last steps turns the query matrix."""
    found: DataArray = apply_ufunc(np.degrees, turning.turn.sel(start=start))
    return found


@number
def length_ratio(turning: Dataset) -> DataArray:
    """The largest over the smallest length in the end, of the three starts."""
    last = turning.length.isel(step=slice(-TURNING_LAST, None)).mean("step")
    starts = last.sel(start=["as drawn", "three times", "a third"])
    return starts.max("start") / starts.min("start")


@number
def gap(remedies: Dataset, *, passes: str, arm: str) -> DataArray:
    """Loss on unseen pairs minus loss on seen ones, at the end."""
    found: DataArray = (remedies.held - remedies.trained).sel(passes=passes, arm=arm)
    return found


@number
def gain(remedies: Dataset, *, passes: str, arm: str) -> DataArray:
    """What a remedy takes off the loss on unseen pairs."""
    here = remedies.held.sel(passes=passes)
    return here.sel(arm="none") - here.sel(arm=arm)


@number
def mean_of(remedies: Dataset, *, what: str, passes: str, arm: str) -> float:
    """The mean over seeds of one of the values, for a table, where a bar would end the cell."""
    return float(remedies[what].sel(passes=passes, arm=arm).mean())


@number
def dropout_costs(remedies: Dataset) -> float:
    """The least that dropout adds to the mean loss where pairs come ten times or less."""
    few = remedies.held.sel(passes=["10", "4", "new"]).mean("seed")
    return float((few.sel(arm="dropout") - few.sel(arm="none")).min())


@number
def stopped(remedies: Dataset, *, passes: str) -> DataArray:
    """The loss when training without a remedy ends early, at the step chosen on the other seeds."""
    return stopped_loss(remedies).sel(passes=passes)


@number
def stopped_hastened(hastened: Dataset, *, rate: float) -> DataArray:
    """The same at a higher rate that does not fall, where pairs come 40 times."""
    return early_stopped(hastened.curve.sel(rate=rate))


@number
def bayes() -> float:
    """The smallest expected loss: what the noise costs whoever knows the rule."""
    return NOISY.bayes_loss()


@number
def bayes_tokens() -> float:
    """The largest expected share of right tokens."""
    return NOISY.bayes_accuracy()


@number
def ideal_cost() -> float:
    """What a tenth of smoothing adds to the loss of a model that has learnt everything."""
    return smoothed_ideal(NOISY, 0.1)[0] - NOISY.bayes_loss()


@number
def ideal_gap() -> float:
    """How much less than it keeps such a model promises."""
    return smoothed_ideal(NOISY, 0.1)[1]
