"""How the results of the chapter on attention are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.attention.measure import DICE, PRECISIONS

# What the claims are judged by --------------------------------------------------------------------


@evidence("DA-2.1")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        p: {
            "error": drawn.kernel.sel(precision=p),
            "control": drawn.kernel_control.sel(precision=p),
        }
        for p in PRECISIONS
    }


@evidence("EX-1.1")
def _(drawn: Dataset) -> dict[str, Any]:
    return {"error": drawn.sheet, "control": drawn.sheet_control}


@evidence("DA-2.3")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        "rows": {"error": drawn.rows, "control": drawn.rows_control},
        "signs": {"value": drawn.smallest},
        "hull": {"value": drawn.inside, "control": drawn.inside_control},
    }


@evidence("DD-2.1")
def _(stated: Dataset) -> dict[str, Any]:
    return {"value": stated.width}


@evidence("DD-2.5")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        "constant": {"error": drawn.row, "control": drawn.row_control},
        "key_bias": {"error": drawn.key_bias, "control": drawn.key_bias_control},
    }


@evidence("DD-2.6")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        "derivative": {"error": drawn.derivative, "control": drawn.derivative_control},
        "budget": {"error": drawn.rows, "control": drawn.rows_control},
        "sign": {"value": drawn.largest, "control": drawn.largest_control},
    }


@evidence("DD-2.8")
def _(stated: Dataset) -> dict[str, Any]:
    return {"sum": {"value": stated.sat.sum()}, "smallest": {"value": stated.sat.min()}}


@evidence("DD-8.3")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        "weights": {"error": drawn.ahead, "control": drawn.ahead_control},
        "outputs": {"error": drawn.moved, "control": drawn.moved_control},
    }


@evidence("DD-8.4")
def _(stated: Dataset) -> dict[str, Any]:
    return {"value": stated.open.values.ravel()}


@evidence("DD-13.6")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        "library": {"error": drawn.recipe, "control": drawn.recipe_control},
        "outputs": {"error": drawn.recipe_moved, "control": drawn.recipe_moved_control},
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def dice_floor() -> float:
    """The logarithm of six."""
    return DICE.best_loss()


@number
def leaked(dice: Dataset) -> DataArray:
    """How far the loss with a mask that comes too late lies below what is possible, in nats."""
    return DICE.best_loss() - dice.whole.sel(masking="too late")
