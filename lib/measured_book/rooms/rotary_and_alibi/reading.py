"""How the results of the chapter on relative position are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from typing import Any

from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.rotary_and_alibi.measure import BACK, BACK_TASK, SHIFTS

CONTEXTS = {10_000: 4096, 500_000: 8192}
"""The lengths that Llama 2 (base 10,000) and Llama 3 (base 500,000) were trained at."""


# What the claims are judged by --------------------------------------------------------------------

_PARTS = {
    "float64": "float64",
    "float32": "float32",
    "float32_angles": "float32, angles too",
    "bfloat16": "bfloat16",
    "bfloat16_angles": "bfloat16, angles in float32",
    "rounded": "bfloat16, angles too",
}


def _beside(values: DataArray, control: DataArray) -> dict[str, Any]:
    return {"error": values, "control": control}


@evidence("DA-2.9")
def _(drawn: Dataset) -> dict[str, Any]:
    return _beside(drawn.moved, drawn.moved_control)


@evidence("DD-7.5")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        "added": _beside(drawn.stream, drawn.stream_control),
        "turned": _beside(drawn.turned, drawn.turned_control),
        "lengths": _beside(drawn.lengths, drawn.lengths_control),
        "values": _beside(drawn["values"], drawn.values_control),
    }


@evidence("DD-7.6")
def _(rounding: Dataset) -> dict[str, Any]:
    return {
        part: {
            "error": rounding.error.sel(route=route).values.ravel(),
            "control": rounding.control.sel(route=route).values.ravel(),
        }
        for part, route in _PARTS.items()
    }


@evidence("DD-7.8")
def _(three_back: Dataset) -> dict[str, Any]:
    by = {name: three_back.sel(scheme=name) for name in ("rotary", "sinusoidal", "learned")}
    return {
        **{
            other: {"treatment": by["rotary"].steps, "baseline": by[other].steps}
            for other in ("sinusoidal", "learned")
        },
        "moved": {"treatment": by["rotary"].moved, "baseline": by["sinusoidal"].moved},
    }


@evidence("DD-7.10")
def _(values_probe: Dataset) -> dict[str, Any]:
    return {"value": values_probe.rotary, "control": values_probe.sinusoidal}


# Numbers that the prose names ---------------------------------------------------------------------


@number
def lag_best() -> float:
    """The best possible loss on the rule 'three back', in nats."""
    return BACK.best


@number
def guess_excess() -> float:
    """What guessing at random loses beyond it."""
    return math.log(BACK_TASK.vocab) - BACK.best


@number
def best_accuracy() -> float:
    """The best possible share of right answers on it."""
    return BACK_TASK.fidelity + (1 - BACK_TASK.fidelity) / BACK_TASK.vocab


@number
def complete_10000(turns: Dataset) -> int:
    """Pairs that complete a turn within Llama 2's context."""
    return _complete(turns, 10_000)


@number
def complete_500000(turns: Dataset) -> int:
    """Pairs that complete a turn within Llama 3's context."""
    return _complete(turns, 500_000)


def _complete(turns: Dataset, base: int) -> int:
    return int((turns.period.sel(base=base) <= CONTEXTS[base]).sum())


@number
def smallest_bound(turns: Dataset) -> float:
    """The smallest value of the upper bound, over all distances and both bases."""
    return float(turns.bound.min())


@number
def largest_spread(spread: Dataset) -> float:
    """The largest standard deviation of random scores, over distances and seeds."""
    return float(spread.deviation.max())


@number
def smallest_spread(spread: Dataset) -> float:
    """The smallest."""
    return float(spread.deviation.min())


@number
def lost_in_float32(rounding: Dataset) -> float:
    """The largest change of a score at the largest shift, with angles in float32."""
    return float(rounding.error.sel(route="float32, angles too", shift=SHIFTS[-1]).max())


@number
def lost_at_one(rounding: Dataset) -> float:
    """The largest change of a score at a shift of one, with angles in bfloat16."""
    return float(rounding.error.sel(route="bfloat16, angles too", shift=1).max())
