"""How the results of the chapter on shared projections are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.projections.measure import (
    BACKWARDS,
    STEPS,
    TASKS,
    TIES,
    one_side_accuracy,
)

# What the claims are judged by --------------------------------------------------------------------


def _against(four: Dataset, task: str, tie: str) -> dict[str, Any]:
    of = four.accuracy.sel(task=task)
    return {"treatment": of.sel(tie="none"), "baseline": of.sel(tie=tie)}


@evidence("DD-2.2")
def _(four: Dataset) -> dict[str, Any]:
    return {f"{tie}_{task}": _against(four, task, tie) for tie in TIES[1:] for task in TASKS}


@evidence("DD-2.4")
def _(four: Dataset) -> dict[str, Any]:
    return {task: _against(four, task, "kv") for task in TASKS}


@evidence("DD-2.3")
def _(kept: Dataset) -> dict[str, Any]:
    return {
        name: {"error": kept[name].sel(side="undone"), "control": kept[name].sel(side="one side")}
        for name in ("scores", "values", "widths")
    }


@evidence("DD-13.2a")
def _(drawn: Dataset) -> dict[str, Any]:
    def both(name: str) -> dict[str, Any]:
        return {
            "error": drawn[name].sel(projections="shared"),
            "control": drawn[name].sel(projections="separate"),
        }

    return {
        "scores": both("scores"),
        "eigenvalues": {"value": drawn.eigenvalue},
        "weights": both("weights"),
    }


@evidence("DD-13.2b")
def _(drawn: Dataset, one_head: Dataset) -> dict[str, Any]:
    def last(layer: str) -> dict[str, Any]:
        final = one_head.accuracy.sel(layer=layer, step=STEPS)
        return {"treatment": final.sel(tie="qk"), "baseline": final.sel(tie="none")}

    return {
        "pairs": {
            "value": drawn.pairs.sel(projections="shared"),
            "control": [float(drawn.pairs.sel(projections="separate").sum())],  # in all draws
        },
        "alone": last("without"),
        "layer": last("with"),
    }


# Numbers that the prose names ---------------------------------------------------------------------


def _mean(values: DataArray) -> float:
    return float(values.mean("seed"))


@number
def predicted() -> float:
    """Best accuracy of a reader of the most attended token under a shared projection."""
    return one_side_accuracy(BACKWARDS.vocab)


def _gap(four: Dataset, task: str, tie: str) -> float:
    of = four.accuracy.sel(task=task)
    return _mean(of.sel(tie="none") - of.sel(tie=tie))


@number
def gap(four: Dataset, *, task: str, tie: str) -> float:
    """What sharing costs on a task, in accuracy."""
    return _gap(four, task, tie)


@number
def quarter(sharing: Dataset) -> float:
    """Loss at recall with a quarter of the cache above that of MHA, mean of MQA and MLA."""
    loss = sharing.loss.sel(arm=["MQA", "MLA"]).mean("arm") - sharing.loss.sel(arm="MHA")
    return float(loss.mean())
