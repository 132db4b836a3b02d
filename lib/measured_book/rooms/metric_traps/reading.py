"""How the results of the chapter on metric traps are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.metric_traps.measure import ARMS, MASKS

BY_WORDS = ("split at blanks", "13a", "13a, lower case")
"""Readings of a text as words."""


# What the claims are judged by ----------------------------------------------------------------------------

PARTS = {
    "loss_masked": ("open", "masked"),
    "loss_whole": tuple(n for n in ARMS if "loss" in n)[::-1],
}
"""Part of a claim -> the arm without a mask in attention, and the same with one."""


def _effect(arms: Dataset, part: str, metric: str = "real", *, headroom: bool) -> dict[str, Any]:
    without, with_mask = (arms[metric].sel(arm=name) for name in PARTS[part])
    best = arms["best_bleu" if metric == "bleu" else "best"]
    room = {"headroom": best - with_mask} if headroom else {}
    return {"treatment": without, "baseline": with_mask, **room}


@evidence("DA-4.11")
def _(arms: Dataset) -> dict[str, Any]:
    return {part: _effect(arms, part, headroom=True) for part in PARTS}


@evidence("DA-5.2")
def _(arms: Dataset) -> dict[str, Any]:
    found = {}
    for part, (without, with_mask) in PARTS.items():
        found[part] = {
            "treatment": arms["real"].sel(arm=with_mask),
            "baseline": arms["real"].sel(arm=without),
        }
    return found


@evidence("DA-5.4")
def _(arms: Dataset) -> dict[str, Any]:
    return {
        "bleu": _effect(arms, "loss_masked", "bleu", headroom=True),
        "accuracy": _effect(arms, "loss_masked", headroom=True),
    }


@evidence("DA-4.12a")
def _(table: Dataset) -> dict[str, Any]:
    return {"value": abs(table.residual).max("pair")}


@evidence("DA-4.12b")
def _(exact: Dataset) -> dict[str, Any]:
    return {"error": exact.formula.squeeze("seed"), "control": exact.no_padding.squeeze("seed")}


@evidence("DA-4.13")
def _(simulated: Dataset, table: Dataset) -> dict[str, Any]:
    mean = simulated.bleu.sel(accuracy="validation").mean("seed")
    names = {"kept": "padding kept", "output": "reference trimmed", "both": "both trimmed"}
    found = {part: {"value": mean.sel(reading=name)} for part, name in names.items()}
    return {**found, "power": {"value": table.power.squeeze("seed")}}


@evidence("DA-4.14")
def _(table: Dataset) -> dict[str, Any]:
    return {"published": {"value": table.ratio}, "fidelity": {"value": table.needed}}


@evidence("DA-4.15")
def _(exact: Dataset) -> dict[str, Any]:
    values = {
        mask: (
            exact.with_mask.sel(mask=mask).squeeze("seed"),
            exact.without.sel(mask=mask).squeeze("seed"),
        )
        for mask in MASKS
    }
    return {
        "encoder": {"error": values["encoder"][0], "control": values["encoder"][1]},
        "cross": {"error": values["cross"][0], "control": values["cross"][1]},
        "decoder": {"value": values["decoder"][0]},
    }


@evidence("DA-3.4")
def _(table: Dataset) -> dict[str, Any]:
    names = ("e05_v1000", "e05_v8000", "e1_v1000", "e1_v8000")
    return {part: {"value": table.room.sel(reading=i)} for i, part in enumerate(names)}


@evidence("LT-10.1")
def _(rivals: Dataset) -> dict[str, Any]:
    told_apart = rivals.p.sel(pair="seed") < 0.05
    return {"successes": [int(told_apart.sum())], "trials": [told_apart.size]}


@evidence("LT-10.2")
def _(ladder: Dataset) -> dict[str, Any]:
    texts = ladder.score.sel(way=[f"BLEU, text, {how}" for how in BY_WORDS])
    return {"value": texts.max("way") - texts.min("way")}


# Numbers that the prose names -----------------------------------------------------------------------------


def _slug(label: str) -> str:
    """A label as the prose can name it, without commas and blanks."""
    return label.replace(", ", "-").replace(" ", "-")


def _named(values: DataArray, axis: str, slug: str) -> DataArray:
    label = {_slug(str(each)): each for each in values[axis].values}[slug]
    found: DataArray = values.sel({axis: label})
    return found


@number
def largest_residual(table: Dataset) -> float:
    """The largest distance of a pair of the report's accuracies from the fitted formula."""
    return float(abs(table.residual).max())


@number
def power_one(table: Dataset) -> float:
    """The validation accuracy of the report's first unmasked row to the power 2.5."""
    return float(table.power.sel(depth=2).item())


@number
def way(ladder: Dataset, *, name: str) -> DataArray:
    """A number of the ladder, of each of its models."""
    return _named(ladder.score, "way", name)


@number
def gained(arms: Dataset, *, part: str) -> DataArray:
    """What leaving the mask out of attention adds to the accuracy on real tokens."""
    without, with_mask = (arms["real"].sel(arm=name) for name in PARTS[part])
    return without - with_mask


@number
def scored(arms: Dataset, *, name: str, metric: str) -> DataArray:
    """A score of an arm's models."""
    return _named(arms[metric], "arm", name)


@number
def told_apart(rivals: Dataset, *, pair: str) -> float:
    """How many pairs the bootstrap calls significantly different."""
    return float((rivals.p.sel(pair=pair) < 0.05).sum())


@number
def mean_bleu(simulated: Dataset, *, of: str, reading: str) -> DataArray:
    """BLEU of the made-up outputs."""
    return _named(simulated.bleu.sel(accuracy=of), "reading", reading)
