"""How the results of the chapter on pieces are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measured_transformer.variants.component_ablation import PIECES
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.pieces.measure import HELD_OUT, TASKS, fitted_slope, lonely_loss

# What the claims are judged by --------------------------------------------------------------------


def _loss(puzzles: Dataset, text: Dataset, task: str, arm: str) -> DataArray:
    found: DataArray = (text if task == "text" else puzzles).loss.sel(task=task, arm=arm)
    return found


@evidence("DD-1.2")
def _(puzzles: Dataset, text: Dataset) -> dict[str, Any]:
    return {
        f"{piece}_{task}": {
            "treatment": _loss(puzzles, text, task, piece),
            "baseline": _loss(puzzles, text, task, "whole"),
        }
        for task in TASKS
        for piece in PIECES
    }


VERBS = {"mixed": "attention", "transformed": "ffn", "refined": "norm", "preserved": "skip"}
"""The source's one verb for each part."""


@evidence("DD-6.5")
def _(puzzles: Dataset) -> dict[str, Any]:
    loss = puzzles.loss.sel(task="reversal")
    return {
        verb: {"treatment": loss.sel(arm=piece), "baseline": loss.sel(arm="whole")}
        for verb, piece in VERBS.items()
    }


def _slopes(writes: Dataset, state: str) -> DataArray:
    """One slope for each seed: logarithm of the writes' ratio on that of the parameters' ratio."""
    rows = writes.ratio.sel(state=state).transpose("seed", "width").values
    parameters = np.log(writes.parameters.transpose("seed", "width").values)
    found = [fitted_slope(x, row) for x, row in zip(parameters, rows, strict=True)]
    return DataArray(found, dims="seed", coords={"seed": writes.seed})


@evidence("CS-3.6")
def _(writes: Dataset) -> dict[str, Any]:
    half = writes.ratio.sel(state="trained", width=0.5)
    return {
        "slope": {"value": _slopes(writes, "trained")},
        "fewer": {"treatment": half, "baseline": half * 0},
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def bound(*, task: str) -> float:
    """The best loss on a task without attention, in nats."""
    return lonely_loss(HELD_OUT[task])


@number
def bag() -> float:
    """The best loss on reversal without positions, in nats."""
    return TASKS["reversal"].bag_loss()  # type: ignore[attr-defined]


@number
def cost(puzzles: Dataset, text: Dataset, *, task: str, piece: str) -> DataArray:
    """By how much the loss is higher when a model is built without a piece, in nats."""
    whole = _loss(puzzles, text, task, "whole")
    return _loss(puzzles, text, task, piece) - whole


@number
def lost(puzzles: Dataset, text: Dataset, *, task: str, piece: str) -> DataArray:
    """By how much the loss of the whole model rises when a piece is taken away, in nats."""
    found: DataArray = (text if task == "text" else puzzles).taken.sel(task=task, piece=piece)
    return found


@number
def gain(puzzles: Dataset, text: Dataset, *, task: str, piece: str) -> DataArray:
    """By how much the loss is *lower* when a model is built without a piece, in nats."""
    whole = _loss(puzzles, text, task, "whole")
    return whole - _loss(puzzles, text, task, piece)


def _write_ratio(writes: Dataset, state: str, width: float) -> DataArray:
    logs = writes.ratio.sel(state=state, width=width)
    return logs.copy(data=np.exp(logs.values))


@number
def write_ratio(writes: Dataset, *, width: float) -> DataArray:
    """Length of a trained network's write over attention's, by the neurons for each entry of the stream."""
    return _write_ratio(writes, "trained", width)


@number
def write_ratio_untrained(writes: Dataset, *, width: float) -> DataArray:
    """The same before training."""
    return _write_ratio(writes, "untrained", width)
