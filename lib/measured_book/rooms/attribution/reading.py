"""How the results of the chapter on attribution are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.attribution.measure import CAUSAL, NAMES, POINTS, RAW, TASKS

KNOWS = 0.99
"""The accuracy from which a model counts as one that depends on what it must depend on."""


# What the claims are judged by ----------------------------------------------------------------------


def _value(values: DataArray) -> dict[str, Any]:
    return {"value": values}


def _pair(treatment: DataArray, baseline: DataArray) -> dict[str, Any]:
    return {"treatment": treatment, "baseline": baseline}


def known(values: DataArray, found: Dataset, models: Sequence[str]) -> DataArray:
    """The mean over those of some models that answer right in at least `KNOWS` of the cases."""
    return values.where(found.accuracy >= KNOWS).sel(model=list(models)).mean("model")


def of_task(task: str) -> list[str]:
    """The models of a task."""
    return [name for name in NAMES if name.startswith(task)]


def of_depth(depth: int) -> list[str]:
    """The models of a depth."""
    return [name for name in NAMES if name.endswith(f" {depth}")]


def chosen_elsewhere(values: DataArray, among: Sequence[str]) -> DataArray:
    """Of each seed the value of the method that is best on the other seeds."""
    rows = values.sel(by=list(among)).transpose("seed", "by").values
    others = rows.sum(0) - rows
    best = others.argmax(1)
    kept = values.sel(by=among[0], drop=True)
    return kept.copy(data=rows[np.arange(len(rows)), best])


def area_of(found: Dataset, models: Sequence[str], method: str | Sequence[str]) -> DataArray:
    """The area of a method, or of that of several which is best on other seeds, mean over some models."""
    values = known(found.area, found, models)
    if isinstance(method, str):
        return values.sel(by=method)
    return chosen_elsewhere(values, method)


@evidence("DD-11.1a")
def _(worthless: Dataset) -> dict[str, Any]:
    return {"error": worthless.error, "control": worthless.control}


@evidence("DD-11.1b")
def _(found: Dataset) -> dict[str, Any]:
    ranks = known(found.agreement.sel(effect="delete"), found, NAMES)
    return {
        **{
            name.replace(" ", "_").replace("two_hops", "two_hop"): _pair(
                area_of(found, of_task(name), RAW), area_of(found, of_task(name), CAUSAL)
            )
            for name in TASKS
        },
        "norms": _pair(chosen_elsewhere(ranks, RAW), ranks.sel(by="weighted norms")),
    }


@evidence("DD-11.2")
def _(found: Dataset) -> dict[str, Any]:
    deep = of_depth(6)
    return {
        **{f"layers_{d}": _value(area_of(found, of_depth(d), "rollout")) for d in (1, 2, 4, 6)},
        "raw": _pair(area_of(found, deep, "rollout"), area_of(found, deep, RAW)),
    }


@evidence("DD-14.8")
def _(found: Dataset) -> dict[str, Any]:
    return {
        f"layers_{d}": _pair(
            area_of(found, of_depth(d), "rollout"), area_of(found, of_depth(d), RAW)
        )
        for d in (2, 4, 6)
    }


@evidence("DD-11.3")
def _(found: Dataset, complete: Dataset) -> dict[str, Any]:
    gap = complete.gap.sel(baseline="mean", points=POINTS[-1]).max("task")
    return {
        "gradient": _value(area_of(found, NAMES, "gradient")),
        "input": _value(area_of(found, NAMES, "gradient times input")),
        "integrated": _value(area_of(found, NAMES, "integrated from mean")),
        "complete": {"error": gap, "control": complete["product"].min("task")},
    }


@evidence("DD-11.5")
def _(parts: Dataset) -> dict[str, Any]:
    agree = known(parts.agreement.sel(what="heads"), parts, NAMES)
    return {
        "zero_mean": _value(agree.sel(pair="zero and mean")),
        "zero_resample": _value(agree.sel(pair="zero and resample")),
        "mean_resample": _value(agree.sel(pair="mean and resample")),
        "recovery": _value(parts.recovery.mean("recovered")),
    }


@evidence("DD-14.11")
def _(parts: Dataset) -> dict[str, Any]:
    agree = known(parts.agreement.sel(pair="mean and resample"), parts, NAMES)
    return {what: _value(agree.sel(what=what)) for what in ("heads", "layers")}


@evidence("IW-2.7")
def _(sums: Dataset) -> dict[str, Any]:
    return {"error": sums.error, "control": sums.control}


@evidence("IW-1.1")
def _(found: Dataset, decoded: Dataset) -> dict[str, Any]:
    ways = {
        "ablation": "resample",
        "patching": "restore",
        "gradients": "gradient",
        "rollout": "rollout",
    }
    bridge = decoded.bridge
    return {
        **{part: _value(area_of(found, NAMES, method)) for part, method in ways.items()},
        "probe": _pair(bridge.sel(by="probe"), bridge.sel(by="control")),
        "lens": _pair(decoded.lens.mean("task"), decoded.frequent.mean("task")),
    }


@evidence("LT-16.1")
def _(found: Dataset) -> dict[str, Any]:
    ranks = known(found.agreement.sel(effect="mean"), found, of_depth(4) + of_depth(6))
    raw = ranks.sel(by="attention last")
    return {name: _pair(ranks.sel(by=name), raw) for name in ("rollout", "flow")}


@evidence("LT-16.2")
def _(found: Dataset, copies: Dataset) -> dict[str, Any]:
    both, either = known(found.area, found, of_task("two hops")), copies.area.mean("depth")
    return {
        "both": _pair(both.sel(by="resample"), both.sel(by="restore")),
        "either": _pair(either.sel(by="restore"), either.sel(by="resample")),
    }


# Numbers of the prose -------------------------------------------------------------------------------


@number
def area(found: Dataset, *, by: str, model: str) -> float:
    """Area under the curve of a method in one of `NAMES`, mean over the models that know their task."""
    return float(area_of(found, [model], by).mean())


@number
def area_at(found: Dataset, *, by: str, depth: int) -> float:
    """The same, mean over the tasks, by depth."""
    return float(area_of(found, of_depth(depth), by).mean())


@number
def area_over(found: Dataset, *, by: str, task: str) -> float:
    """The same, mean over the depths, by task."""
    return float(area_of(found, of_task(task), by).mean())


@number
def area_in_all(found: Dataset, *, by: str) -> float:
    """The same, mean over all models."""
    return float(area_of(found, NAMES, by).mean())


@number
def first(found: Dataset, *, by: str, model: str) -> float:
    """How often a method puts a token first that matters."""
    return float(known(found["first"], found, [model]).sel(by=by).mean())


@number
def first_at(found: Dataset, *, by: str, depth: int) -> float:
    """The same, mean over the tasks, by depth."""
    return float(known(found["first"], found, of_depth(depth)).sel(by=by).mean())


@number
def agreement(found: Dataset, *, by: str, effect: str) -> float:
    """Rank correlation of a method with an intervention, mean over all models that know their task."""
    return float(known(found.agreement, found, NAMES).sel(by=by, effect=effect).mean())


@number
def agreement_deep(found: Dataset, *, by: str) -> float:
    """Rank correlation of a method with mean ablation of a token, mean over models of four and six blocks."""
    deep = known(found.agreement, found, of_depth(4) + of_depth(6))
    return float(deep.sel(by=by, effect="mean").mean())


@number
def knowing(found: Dataset, *, model: str) -> float:
    """In how many seeds a model answers right in at least `KNOWS` of the cases."""
    return float((found.accuracy.sel(model=model) >= KNOWS).sum())


@number
def heads_agree(parts: Dataset, *, pair: str, what: str) -> float:
    """Rank correlation of two ways to take heads or sublayers away, mean over models that know."""
    return float(known(parts.agreement, parts, NAMES).sel(pair=pair, what=what).mean())


@number
def with_copies(copies: Dataset, *, by: str) -> float:
    """Area under the curve of a method where the pair stands twice, mean over depths and seeds."""
    return float(copies.area.sel(by=by).mean())


@number
def nothing_to_find(controls: Dataset, *, by: str) -> float:
    """Area under the curve of a method in models trained on permuted answers, mean over tasks and seeds."""
    return float(controls.area.sel(state="permuted", by=by).mean())


@number
def farthest(controls: Dataset, *, state: str) -> float:
    """How far from one half the mean area of any method in any task is, in one of `STATES`."""
    return float(np.abs(controls.area.sel(state=state).mean("seed") - 0.5).max())
