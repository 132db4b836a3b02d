"""How the results of the chapter on the learning rate are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.learning_rate.measure import (
    BATCH_RATES,
    CAPS,
    CURVE,
    DESCENT_STEPS,
    DESCENTS,
    FACTORS,
    RATES,
    RIVALS,
    SPACES,
    TRANSLATION,
    adam_steps,
    at_best,
    best_for_others,
    hyperbola,
)

# What the claims are judged by --------------------------------------------------------------------


@evidence("EX-3.26")
def _(searches: Dataset) -> dict[str, Any]:
    others = searches.share.sel(factor=list(FACTORS[1:])).max("factor")
    rate = searches.share.sel(factor="rate")
    return {
        space: {"treatment": rate.sel(space=space), "baseline": others.sel(space=space)}
        for space in SPACES
    }


@evidence("DA-3.1")
def _(settings: Dataset) -> dict[str, Any]:
    loss = {arm: settings.loss.sel(arm=arm) for arm in RIVALS}
    return {
        rival: {
            "treatment": loss["report"],
            "baseline": loss[rival],
            "control": loss["lower rate"],
        }
        for rival in ("default", "AdamW")
    }


@evidence("LT-5.1")
def _(batches: Dataset) -> dict[str, Any]:
    sizes = [float(size) for size in CAPS]
    fits = [hyperbola(sizes, steps) for steps in np.exp(log_steps(batches).values).tolist()]
    scales = np.log(batches.noise_scale).mean("look").values
    return {
        "law": {"value": [float(np.abs(residuals).max()) for _, _, residuals in fits]},
        "noise": {"value": np.abs(scales - np.log([critical for _, critical, _ in fits]))},
    }


@evidence("LT-5.2")
def _(batches: Dataset) -> dict[str, Any]:
    sizes = [4, 16, 64]
    rates = np.log(best_rates(batches).sel(batch=sizes).transpose("batch", "seed").values)
    return {"value": np.polyfit(np.log(sizes), rates, 1)[0]}


@evidence("LT-5.3")
def _(clipping: Dataset) -> dict[str, Any]:
    return {
        kind: {
            "treatment": at_best(clipping.loss.sel(kind=kind, clip="clipped")),
            "baseline": at_best(clipping.loss.sel(kind=kind, clip="none")),
        }
        for kind in RATES
    }


@evidence("LT-5.4")
def _(decays: Dataset) -> dict[str, Any]:
    apart = decays.kept.sel(tenth=10) - decays.kept.sel(tenth=1)
    return {
        "l2": {"value": apart.sel(kind="L2 in Adam")},
        "adamw": {"value": np.abs(apart.sel(kind="AdamW"))},
    }


@evidence("LT-5.5")
def _(muon: Dataset) -> dict[str, Any]:
    return {
        "treatment": at_best(muon.loss.sel(optimiser="Muon")),
        "baseline": at_best(muon.loss.sel(optimiser="Adam")),
    }


@evidence("LT-5.6")
def _(descents: Dataset) -> dict[str, Any]:
    ratios = np.log(late_curvature(descents).transpose("rate", "seed").values)
    slopes = np.polyfit(np.log(DESCENTS), ratios, 1)[0] - 1
    return {"hovers": {"value": ratios.mean(0)}, "follows": {"value": slopes}}


# Numbers that the prose names ---------------------------------------------------------------------


def log_steps(batches: Dataset) -> DataArray:
    """Logarithm of the steps of each seed and batch size, at the rate that is best for the other seeds."""
    found = [at_best(np.log(batches.steps.sel(batch=size, drop=True))) for size in CAPS]
    sizes = DataArray(list(CAPS), dims="batch", name="batch")
    joined: DataArray = xarray.concat(found, sizes).transpose("seed", "batch")
    return joined


def best_rates(batches: Dataset) -> DataArray:
    """The best rate of each seed and batch size: the vertex of a parabola in logarithms.

    It goes through the rate with the fewest steps and its two neighbours.
    """
    logs, x = np.log(batches.steps.transpose("seed", "batch", "rate").values), np.log(BATCH_RATES)
    found = np.empty(logs.shape[:2])
    for at in np.ndindex(*found.shape):
        low = int(np.clip(logs[at].argmin(), 1, len(x) - 2))
        a, b, _ = np.polyfit(x[low - 1 : low + 2], logs[at][low - 1 : low + 2], 2)
        vertex = -b / (2 * a) if a > 0 else x[low]
        found[at] = np.exp(np.clip(vertex, x[low - 1], x[low + 1]))
    return DataArray(
        found, dims=("seed", "batch"), coords={"seed": batches.seed, "batch": batches.batch}
    )


def late_curvature(descents: Dataset) -> DataArray:
    """Mean curvature over the last 100 steps, in units of two over the rate."""
    late = descents.curvature.sel(step=slice(DESCENT_STEPS - 100, None)).mean("step")
    found: DataArray = late * descents.rate / 2
    return found


@number
def curve_floor(curve: Dataset) -> float:
    """The lowest mean loss of the curve."""
    return float(curve.loss.mean("seed").min())


@number
def curve_best(curve: Dataset) -> float:
    """The rate with the lowest mean loss."""
    return float(CURVE[int(curve.loss.mean("seed").argmin("rate"))])


@number
def curve_good(curve: Dataset, *, end: str) -> float:
    """The lowest or highest rate whose mean loss is within a tenth of a nat of the lowest."""
    loss = curve.loss.mean("seed")
    good = loss.rate.values[(loss < loss.min() + 0.1).values]
    return float(good[0] if end == "low" else good[-1])


@number
def late(descents: Dataset, *, rate: float) -> DataArray:
    """Mean curvature of the last 100 steps at a rate, in units of two over that rate."""
    found: DataArray = late_curvature(descents).sel(rate=rate)
    return found


@number
def jump(*, beta2: float) -> float:
    """Adam's largest step, in units of the rate, after a constant gradient has become ten times as large."""
    return float(adam_steps([1.0] * 4000 + [10.0] * 400, betas=(0.9, beta2)).max())


@number
def translation_floor() -> float:
    """The expected loss of a model that knows the rule of the translation."""
    return TRANSLATION.bayes_loss()


@number
def clipped_at(clipping: Dataset, *, clip: str, rate: int) -> float:
    """Mean loss of plain gradient descent at a position of its grid of rates."""
    return float(clipping.loss.sel(kind="SGD", clip=clip, rate=rate).mean())


def _middle(batches: Dataset) -> dict[int, float]:
    """Geometric mean over seeds of the steps to the level, by batch size."""
    logs = log_steps(batches).mean("seed")
    return {size: math.exp(float(logs.sel(batch=size))) for size in CAPS}


@number
def steps_to_level(batches: Dataset, *, batch: int) -> float:
    """Steps to the level, geometric mean over seeds."""
    return _middle(batches)[batch]


@number
def fewer_steps(batches: Dataset) -> float:
    """By what factor batches of 64 take fewer steps than batches of 4."""
    return _middle(batches)[4] / _middle(batches)[64]


@number
def more_examples(batches: Dataset) -> float:
    """By what factor batches of 64 take more examples than batches of 4."""
    return 16 / fewer_steps(batches)


@number
def critical_size(batches: Dataset) -> float:
    """The critical batch size of the hyperbola through the geometric means."""
    return hyperbola([float(size) for size in CAPS], list(_middle(batches).values()))[1]


@number
def noise(batches: Dataset, *, look: str) -> float:
    """The noise scale at a look, geometric mean over seeds."""
    logs: DataArray = np.log(batches.noise_scale.sel(look=look))
    return float(np.exp(logs.mean("seed")))


@number
def muon_reaches(muon: Dataset) -> float:
    """After how many steps Muon at its best rate is where Adam ends at its best, mean over seeds."""
    rates = best_for_others(muon.loss.sel(optimiser="Muon", drop=True))
    return float(muon.reached.sel(rate=rates).mean())
