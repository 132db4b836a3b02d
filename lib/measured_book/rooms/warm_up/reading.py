"""How the results of the chapter on warm-up are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from xarray import DataArray, Dataset

from measured_book.evidence.statistics import proportion
from measured_book.measuring import evidence, number
from measured_book.rooms.warm_up.measure import PLACEMENTS, SAME_RATE, TASK, TUNED

# What the claims are judged by --------------------------------------------------------------------


def best_for_others(remedies: Dataset, arm: str) -> DataArray:
    """For each seed the learning rate at which the *other* seeds take the fewest steps (mean logarithm)."""
    logs = np.log(remedies.steps.sel(arm=arm))
    rates = [
        remedies.rate.values[int(logs.drop_sel(seed=seed).mean("seed").argmin("rate"))]
        for seed in logs.seed.values
    ]
    return DataArray(rates, dims="seed", coords={"seed": logs.seed.values})


@number
def at_best(remedies: Dataset, *, arm: str, what: str) -> DataArray:
    """Steps, or a mean gradient norm, of every seed at the learning rate that is best for the others."""
    found: DataArray = remedies[what].sel(arm=arm, rate=best_for_others(remedies, arm))
    return found.drop_vars("rate")


@number
def rates_that_work(remedies: Dataset, *, arm: str) -> DataArray:
    """How many of the learning rates each seed learns at."""
    found: DataArray = remedies.solved.sel(arm=arm).sum("rate").astype(float)
    return found


LOOKED_AT = 4
"""Seeds of the tuned arms that had been looked at before their test was redesigned: they decide nothing."""


@evidence("DD-3.10")
def _(remedies: Dataset, tuned_arms: Dataset) -> dict[str, Any]:
    judged = tuned_arms.loss.isel(seed=slice(LOOKED_AT, None))
    loss = {arm: judged.sel(arm=arm) for arm in TUNED}
    return {
        "short": {"value": loss["none"] - loss["short"]},
        "long": {"value": loss["none"] - loss["long"]},
        "control": {"value": loss["post-norm"] - loss["long"]},
        "rates": {
            "treatment": rates_that_work(remedies, arm="pre-norm"),
            "baseline": rates_that_work(remedies, arm="at once"),
        },
    }


LOOKED_AT_FIRST = 2
"""Seeds of the line-up that had been looked at before the test of clipping was redesigned."""


@evidence("DD-10.13")
def _(remedies: Dataset) -> dict[str, Any]:
    unseen = remedies.solved.isel(seed=slice(LOOKED_AT_FIRST, None))
    clipped = unseen.sel(arm="clipped", rate=SAME_RATE)
    logs = {
        name: np.log10(at_best(remedies, arm="at once", what=f"{name}_gradient"))
        for name in ("early", "later")
    }
    return {
        "needed": {
            "treatment": np.log(at_best(remedies, arm="at once", what="steps")),
            "baseline": np.log(at_best(remedies, arm="warm-up", what="steps")),
        },
        "large": {"treatment": logs["early"], "baseline": logs["later"]},
        "clipped": {"successes": [int(clipped.sum())], "trials": [int(clipped.size)]},
    }


@evidence("EX-3.23")
def _(text: Dataset) -> dict[str, Any]:
    return {
        where: {
            "treatment": text.loss.sel(placement=where, warmup="with"),
            "baseline": text.loss.sel(placement=where, warmup="without"),
        }
        for where in PLACEMENTS
    }


BUDGET = 5.0
"""False alarms that are allowed in a thousand calm steps."""


def operating(spikes: Dataset, signal: str) -> dict[str, DataArray]:
    """What an alarm on a signal does in each seed, at the lowest threshold that other seeds' calm steps allow.

    Returns:
        `warned` and `lead` (summed) of the spikes at the high rate, `false_alarms` of both runs together.
    """
    here = spikes.sel(signal=signal)
    found: dict[str, list[DataArray]] = {"warned": [], "lead": [], "false_alarms": []}
    for seed in spikes.seed.values:
        others = here.drop_sel(seed=seed)
        false = others.false_alarms.sum(("seed", "run")) / float(others.calm.sum())
        allowed = np.flatnonzero(1000 * false.values <= BUDGET)
        own = here.sel(seed=seed).isel(threshold=int(allowed[0]) if len(allowed) else -1)
        found["warned"].append(own.warned.sel(run="high"))
        found["lead"].append(own.lead.sel(run="high"))
        found["false_alarms"].append(own.false_alarms.sum("run"))
    return {
        name: xarray.concat([one.drop_vars("threshold") for one in values], "seed")
        for name, values in found.items()
    }


def share_warned(spikes: Dataset, signal: str) -> DataArray:
    """The share of its spikes that each seed is warned of; seeds without a spike are left out."""
    spiking = spikes.spikes.sel(run="high")
    share: DataArray = operating(spikes, signal)["warned"] / spiking
    return share[spiking.values > 0]


@evidence("DD-14.9")
def _(explosion: Dataset, spikes: Dataset) -> dict[str, Any]:
    first = np.log10(explosion.gradient.sel(block=1))
    return {
        "explodes": {
            "treatment": first.sel(norm="no norm"),
            "baseline": first.sel(norm="pre-norm"),
        },
        "sounds": {"value": spikes.gradient_jump.dropna("seed")},
        "warns": {"value": share_warned(spikes, "gradient")},
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def bag_loss() -> float:
    """What a model can reach that knows which tokens there are, and nothing of their order."""
    return TASK.bag_loss()


@number
def per_cell(remedies: Dataset) -> int:
    """Runs of an arm at one rate in the line-up."""
    return int(remedies.sizes["seed"])


@number
def learned(remedies: Dataset, *, arm: str) -> int:
    """Runs of an arm that learn at the rate that all share."""
    return int(remedies.solved.sel(arm=arm, rate=SAME_RATE).sum())


@number
def learned_anywhere(remedies: Dataset, *, arm: str) -> int:
    """Runs of an arm that learn, all rates together."""
    return int(remedies.solved.sel(arm=arm).sum())


@number
def share_learned(remedies: Dataset, *, arm: str) -> list[float]:
    """The Clopper-Pearson interval of the share of runs that learn at the rate that all share."""
    learn = remedies.solved.sel(arm=arm, rate=SAME_RATE)
    return list(proportion(int(learn.sum()), int(learn.size)).interval)


@number
def clipped_steps(first_steps: Dataset) -> float:
    """In how many of the first twenty steps clipping to norm 1 acts, on average."""
    long = first_steps.gradient.sel(arm="clipped").isel(step=slice(20)) > 1
    return float(long.sum("step").mean())


@number
def spikes_of(spikes: Dataset, *, run: str) -> int:
    """Spikes of all recorded runs at one of the two rates."""
    return int(spikes.spikes.sel(run=run).sum())


@number
def untreated(spikes: Dataset, cures: Dataset) -> DataArray:
    """Spikes at the high rate, with nothing changed, of those seeds that have cures as well."""
    found: DataArray = spikes.spikes.sel(run="high", seed=cures.seed).astype(float)
    return found


@number
def fewer_spikes(spikes: Dataset, cures: Dataset, *, cure: str) -> DataArray:
    """How many spikes fewer each seed has with one thing changed."""
    return untreated(spikes, cures) - cures.spikes.sel(cure=cure)


@number
def gradient_factor(spikes: Dataset) -> float:
    """By how much the gradient norm jumps with the loss: geometric mean over runs."""
    return float(10 ** spikes.gradient_jump.mean())


@number
def chance_warned() -> float:
    """The share of spikes that an alarm which knows nothing would warn of at the budget, in ten steps."""
    return 1 - (1 - BUDGET / 1000) ** 10


@number
def warned(spikes: Dataset, *, signal: str) -> float:
    """Share of all spikes warned of when the budget of false alarms is used up, between two thresholds."""
    here = spikes.sel(signal=signal)
    false = 1000 * here.false_alarms.sum(("seed", "run")) / float(spikes.calm.sum())
    share = here.warned.sel(run="high").sum("seed") / float(spikes.spikes.sel(run="high").sum())
    return float(np.interp(BUDGET, false.values[::-1], share.values[::-1]))


@number
def lead(spikes: Dataset, *, signal: str) -> float:
    """Mean lead of the first alarm before a spike, in steps."""
    found = operating(spikes, signal)
    return float(found["lead"].sum() / max(float(found["warned"].sum()), 1.0))
