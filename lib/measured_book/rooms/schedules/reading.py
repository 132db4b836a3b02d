"""How the results of the chapter on schedules are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from measured_transformer.analysis.curves import area_under_curve
from measured_transformer.training.loop import make_model
from measured_transformer.training.schedules import (
    Constant,
    ExponentialDecay,
    InverseSquareRoot,
    Schedule,
)
from numpy import ndarray
from xarray import DataArray, Dataset, concat

from measured_book.measuring import evidence, number
from measured_book.rooms.schedules.measure import (
    CUSTOMARY,
    FAILED,
    FROM,
    HELD_OUT,
    KINDS,
    LENGTHS,
    LINES,
    RATES,
    SHAPES,
    SPEAKER,
    STEPS,
    TASK,
    at_equal_training_loss,
    summed_rate,
    valley_height,
    valley_path,
)

# A valley -----------------------------------------------------------------------------------------


@number
def stands(*, walker: str, step: int) -> float:
    """The height at which a walker of the hand example stands after so many steps."""
    along, across = valley_path(walker).T
    return float(valley_height(along, across)[step])


@number
def total(*, schedule: str) -> float:
    """The sum of the rates of three walkers of a thousand steps with a peak of 0.001."""
    made: dict[str, Schedule] = {
        "constant": Constant(),
        "root": InverseSquareRoot(100),
        "exponential": ExponentialDecay.lasting(50.0),
    }
    return summed_rate(made[schedule], 1e-3, 1000)


# What the claims are judged by --------------------------------------------------------------------


def shapes_of(schedule: str) -> list[str]:
    """The shapes of the race that belong to a schedule.

    >>> shapes_of("exponential")
    ['exponential, 5', 'exponential, 20', 'exponential, 100']
    """
    return [shape for shape in SHAPES if shape.partition(",")[0] == schedule]


def best_of(race: Dataset, schedule: str) -> tuple[str, float]:
    """The shape and the peak rate of a schedule that end lowest on average over the seeds of the race."""
    mean = race.loss.sel(shape=shapes_of(schedule)).mean("seed")
    at = mean.argmin(("shape", "rate"))
    shape = mean["shape"].values[int(at["shape"])]
    return str(shape), float(mean["rate"].values[int(at["rate"])])


def best_other_text(text: Dataset, schedule: str) -> DataArray:
    """The final loss on text of every seed with the schedule that is best for the other seeds, one left out."""
    others = text.loss.drop_sel(schedule=schedule)
    found = []
    for seed in text.seed.values:
        best = int(others.drop_sel(seed=seed).mean("seed").argmin("schedule"))
        found.append(others.sel(seed=seed).isel(schedule=best).drop_vars("schedule"))
    return concat(found, "seed")


def _less(treatment: DataArray, baseline: DataArray) -> dict[str, DataArray]:
    return {"treatment": treatment, "baseline": baseline}


def _root_against(
    final: Dataset, what: str, rival: str, *, logarithm: bool = False
) -> dict[str, DataArray]:
    values: Any = np.log(final[what]) if logarithm else final[what]
    return _less(values.sel(schedule="root"), values.sel(schedule=rival))


def _text_against(text: Dataset, schedule: str, rival: str) -> Any:
    return _less(text.loss.sel(schedule=schedule), text.loss.sel(schedule=rival))


@evidence("DD-10.12")
def _(formula: Dataset) -> dict[str, Any]:
    drawn = formula.isel(seed=0)
    return {
        "formula": {"error": drawn.rates, "control": drawn.rates_longer},
        "peak": {"error": drawn.peak, "control": drawn.peak_longer},
    }


@evidence("DA-4.21")
def _(constants: Dataset) -> dict[str, Any]:
    ratios = {
        name: constants[name].max("schedule") / constants[name].min("schedule")
        for name in ("peak", "total")
    }
    return {
        f"{name}_{filled.replace(' ', '_')}": {"value": ratios[name].sel(filled=filled)}
        for filled in CUSTOMARY
        for name in ratios
    }


@evidence("DA-4.17")
def _(final: Dataset, text: Dataset) -> dict[str, Any]:
    rivals = ("constant", "exponential")
    return {
        **{f"translation_{rival}": _root_against(final, "loss", rival) for rival in rivals},
        **{f"text_{rival}": _text_against(text, "root", rival) for rival in rivals},
    }


@evidence("DA-4.18")
def _(final: Dataset, text: Dataset) -> dict[str, Any]:
    return {
        "translation": _root_against(final, "loss", "constant"),
        "text": _text_against(text, "root", "constant"),
    }


@evidence("DA-4.19a")
def _(final: Dataset, text: Dataset) -> dict[str, Any]:
    found = final.loss.sel(schedule="exponential")
    behind = text.loss.sel(schedule="exponential") - best_other_text(text, "exponential")
    return {
        "translation": {"value": found - final.loss.sel(schedule="cooldown")},
        "text": {"value": behind},
        "fails": {"successes": [int((found > FAILED).sum())], "trials": [int(found.size)]},
    }


@number
def too_high(race: Dataset) -> list[float]:
    """The peaks above the constant rate's best at which it fails from at least half of the seeds."""
    constant = race.loss.sel(shape="constant")
    best = float(constant["rate"].values[int(constant.mean("seed").argmin("rate"))])
    fails = (constant > FAILED).mean("seed") >= 0.5
    return [rate for rate in RATES if rate > best and bool(fails.sel(rate=rate))]


def sums_of(rates: Sequence[float] = RATES) -> Float[ndarray, "shape rate"]:
    """The sum of the rates of every shape at every peak."""
    return np.array(
        [[summed_rate(made, rate, STEPS) for rate in rates] for made in SHAPES.values()]
    )


def told_by_the_sum(race: Dataset, rates: Sequence[float]) -> list[float]:
    """How well a small sum tells the runs that fail, of every seed: area under the curve, peaks as given."""
    failed: Bool[ndarray, "seed shape rate"] = (
        race.loss.sel(rate=list(rates)).transpose("seed", "shape", "rate").values > FAILED
    )
    sums = sums_of(rates).ravel()
    return [area_under_curve(-sums, one.ravel()) for one in failed]


@evidence("DA-4.19b")
def _(race: Dataset) -> dict[str, Any]:
    high = too_high(race)
    kept = [rate for rate in RATES if rate not in high]
    return {
        "stable": {"value": told_by_the_sum(race, kept)},
        "all": {"value": told_by_the_sum(race, RATES)},
    }


@evidence("DA-4.20")
def _(final: Dataset) -> dict[str, Any]:
    found = {}
    for rival in ("constant", "exponential"):
        found[f"area_{rival}"] = _root_against(final, "area", rival)
        found[f"steps_{rival}"] = _root_against(final, "steps", rival, logarithm=True)
    return found


LEVELS = tuple(float(level) for level in np.linspace(0.7, 1.2, 11).round(2))
"""Training losses, in nats, which all runs on few sequences pass, and at which gaps are read."""


@number
def gap(repeated: Dataset, *, schedule: str) -> DataArray:
    """Validation minus training loss of every seed, where training loss first falls to a level, on average."""
    here = repeated.sel(schedule=schedule)
    found = []
    for seed in repeated.seed.values:
        training, validation = (
            here[what].sel(seed=seed).values for what in ("training", "validation")
        )
        found.append(np.mean([at_equal_training_loss(training, validation, one) for one in LEVELS]))
    return DataArray(found, dims="seed", coords={"seed": repeated.seed.values})


@evidence("DA-4.22")
def _(final: Dataset, repeated: Dataset) -> dict[str, Any]:
    found = {}
    for rival in ("constant", "exponential"):
        found[f"loss_{rival}"] = _root_against(final, "last", rival)
        found[f"gap_{rival}"] = _less(gap(repeated, schedule="root"), gap(repeated, schedule=rival))
    return found


@evidence("DA-5.3")
def _(final: Dataset, text: Dataset) -> dict[str, Any]:
    found = {}
    for rival in ("constant", "exponential"):
        for what in ("loss", "accuracy"):
            found[f"{what}_{rival}"] = _root_against(final, what, rival)
        found[f"text_{rival}"] = _text_against(text, "root", rival)
    return found


@number
def law_error(annealing: Dataset, *, law: str, schedule: str) -> DataArray:
    """Mean distance of a law's losses from the measured ones, on all held-out schedules or on one, in nats."""
    names = list(HELD_OUT) if schedule == "held out" else [schedule]
    here = annealing.isel(at=slice(FROM, None)).sel(schedule=names)
    found: DataArray = abs(here[law] - here.loss).mean(("schedule", "at"))
    return found


@evidence("LT-6.1")
def _(annealing: Dataset) -> dict[str, Any]:
    law, alone = (
        law_error(annealing, law=one, schedule="held out") for one in ("law", "sum_alone")
    )
    return {"error": {"value": law}, "ratio": {"value": np.log(law / alone)}}


@evidence("LT-6.2")
def _(lengths: Dataset) -> dict[str, Any]:
    loss = {kind: lengths.loss.sel(kind=kind) for kind in KINDS}
    behind = loss["cooldown"] - loss["cosine"]
    longest = {kind: one.sel(steps=LENGTHS[-1]) for kind, one in loss.items()}
    return {
        **{f"at_{steps}": {"value": behind.sel(steps=steps)} for steps in LENGTHS},
        "control": _less(longest["cooldown"], longest["constant"]),
    }


@evidence("LT-6.3")
def _(valley: Dataset) -> dict[str, Any]:
    loss = {line: valley.loss.sel(line=line) for line in LINES}
    middle, first, last = (
        {line: one.sel(share=at) for line, one in loss.items()} for at in (0.5, 0.0, 1.0)
    )
    lower = np.minimum(first["walls"], last["walls"])
    return {
        "walls": _less(middle["walls"], lower),
        "drop": _less(first["cooling"], last["cooling"]),
        "river": {
            "value": np.maximum(
                middle["floors"] - first["floors"], last["floors"] - middle["floors"]
            )
        },
    }


@evidence("LT-6.4")
def _(text: Dataset) -> dict[str, Any]:
    loss = {name: text.loss.sel(schedule=name) for name in ("linear", "cosine")}
    return {
        "tenth": _text_against(text, "linear", "cosine to a tenth"),
        "cosine": {"value": loss["linear"] - loss["cosine"]},
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def failures(race: Dataset, *, shape: str, constant: int) -> int:
    """Runs of a shape with this constant that fail, over all peak rates."""
    return int((race.loss.sel(shape=f"{shape}, {constant}") > FAILED).sum())


@number
def failed_at() -> float:
    """The loss above which a run of the race has failed, in nats."""
    return FAILED


@number
def lowest() -> float:
    """The loss that nothing can beat in the race, in nats."""
    return TASK.bayes_loss()


@number
def lowest_of(race: Dataset, *, shape: str, constant: int) -> float:
    """The mean final loss of a shape with this constant at the best of its peak rates."""
    return float(race.loss.sel(shape=f"{shape}, {constant}").mean("seed").min())


@number
def race_runs(race: Dataset) -> int:
    """All runs of the race."""
    return int(race.loss.size)


@number
def ratio(constants: Dataset, *, what: str, filled: str) -> float:
    """Largest over smallest peak, or sum of the rates, of three schedules with their constants filled in."""
    here = constants[what].sel(filled=filled)
    return float(here.max() / here.min())


@number
def auc(race: Dataset, *, which: str) -> list[float]:
    """The share of pairs of a failing and another run in which the failing one has the smaller sum.

    Of the runs whose peak is not too high ('stable'), or of all.
    """
    high = too_high(race) if which == "stable" else []
    return told_by_the_sum(race, [rate for rate in RATES if rate not in high])


@number
def drop(lengths: Dataset, *, steps: int) -> DataArray:
    """By how much a cooldown ends below the constant run that it branched off, in nats."""
    here = lengths.loss.sel(steps=steps)
    return here.sel(kind="constant") - here.sel(kind="cooldown")


@number
def behind(lengths: Dataset, *, steps: int) -> DataArray:
    """By how much a cooldown ends above the cosine that was tuned for this length, in nats."""
    here = lengths.loss.sel(steps=steps)
    return here.sel(kind="cooldown") - here.sel(kind="cosine")


@number
def apart(final: Dataset, *, schedule: str, rival: str, what: str) -> DataArray:
    """By how much a value of a schedule is higher than a rival's in the final."""
    return final[what].sel(schedule=schedule) - final[what].sel(schedule=rival)


@number
def apart_on_text(text: Dataset, *, schedule: str, rival: str) -> DataArray:
    """By how much the final loss of a schedule is higher than a rival's on text, in nats a byte."""
    return text.loss.sel(schedule=schedule) - text.loss.sel(schedule=rival)


@number
def weights() -> int:
    """The number of weights of the language model, in thousands."""
    model = make_model(SPEAKER, causal=True, seed=0)
    return round(sum(weight.numel() for weight in model.parameters()) / 1000)
