"""How the results of the chapter on the size of a step are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.step_size.measure import (
    CONNECTIONS,
    DEEP,
    DEEPEST,
    DEPTHS,
    DIMENSION_STARTS,
    GATED,
    GRID,
    STATED_TOWERS,
    TASK,
    TRAINED,
)

FOLLOWED = 0.75
"""The share of right answers from which on a model counts as following a move; a guess is right in a third."""
STARTS = ("none", "scaled", "gate")


# What the claims are judged by --------------------------------------------------------------------


def follows(right_answers: DataArray, moves: int) -> DataArray:
    """Which runs follow so many moves: the answer after the last is right in three of four sequences."""
    return right_answers.sel(move=moves) >= FOLLOWED


def _share(runs: DataArray) -> dict[str, list[int]]:
    return {"successes": [int(runs.sum())], "trials": [int(runs.size)]}


def fifth(right_answers: DataArray) -> DataArray:
    """The share of right answers after the fifth move."""
    return right_answers.sel(move=5)


def _following(right_answers: DataArray) -> dict[str, list[int]]:
    return _share(follows(right_answers, 5))


@evidence("DD-3.9")
def _(towers: Dataset, deepest: Dataset) -> dict[str, Any]:
    return {
        "twelve": _following(towers.right.sel(arm="pre")),
        "deepest": _following(deepest.right.sel(arm="pre")),
        "post": {
            "treatment": fifth(deepest.right.sel(arm="pre")),
            "baseline": fifth(deepest.right.sel(arm="post")),
        },
    }


@evidence("DD-13.4")
def _(towers: Dataset, deepest: Dataset) -> dict[str, Any]:
    return {
        "beyond": _following(deepest.right.sel(arm="post")),
        "within": _following(towers.right.sel(arm="post")),
    }


@evidence("DD-12.5")
def _(towers: Dataset) -> dict[str, Any]:
    return {arm: _following(towers.right.sel(arm=arm)) for arm in STARTS}


@evidence("DD-4.8")
def _(towers: Dataset, rates: Dataset) -> dict[str, Any]:
    def arms(small: DataArray, large: DataArray) -> dict[str, DataArray]:
        return {"treatment": fifth(small), "baseline": fifth(large), "headroom": 1 - fifth(large)}

    twelve = {arm: towers.right.sel(arm=arm) for arm in STARTS}
    six = {arm: at_best_rate(rates, f"{arm}, 6") for arm in ("none", "gate", "pre", "pre gate")}
    return {
        "divided": arms(twelve["scaled"], twelve["none"]),
        "gate": arms(six["gate"], six["none"]),
        "pre": arms(six["pre gate"], six["pre"]),
    }


@evidence("CS-4.3")
def _(stated: Dataset) -> dict[str, Any]:
    worse = stated.loss > TASK.blind_loss()
    return {name.replace(", ", "_"): _share(worse.sel(tower=name)) for name in STATED_TOWERS}


def works(rates: Dataset, arm: str) -> DataArray:
    """At how many learning rates of the grid each seed's run follows four moves."""
    return follows(rates.right.sel(arm=arm), 4).sum("rate").astype(float)


def _for_the_others(scores: DataArray) -> list[int]:
    """For each seed, the place of the learning rate whose mean score is lowest over the *other* seeds."""
    return [
        int(scores.drop_sel(seed=seed).mean("seed").argmin("rate")) for seed in scores.seed.values
    ]


def _at(values: DataArray, places: Sequence[int]) -> DataArray:
    chosen = [values.isel(seed=i, rate=place).drop_vars("rate") for i, place in enumerate(places)]
    found: DataArray = xarray.concat(chosen, "seed")
    return found


def log_steps(rates: Dataset, arm: str) -> DataArray:
    """Logarithm of the steps to half the loss of a guess, at the rate that is best for the *other* seeds."""
    logs: DataArray = xarray.apply_ufunc(np.log, rates.steps.sel(arm=arm))
    return _at(logs, _for_the_others(logs))


def at_best_rate(rates: Dataset, arm: str, what: str = "right") -> DataArray:
    """What a tower has reached at the learning rate whose loss is lowest for the *other* seeds."""
    axis = "gated" if what == "second" else "arm"
    return _at(rates[what].sel({axis: arm}), _for_the_others(rates.loss.sel(arm=arm)))


def _against(rates: Dataset, look: Any, treatment: str, baseline: str) -> dict[str, DataArray]:
    return {"treatment": look(rates, treatment), "baseline": look(rates, baseline)}


@evidence("DA-2.16")
def _(rates: Dataset) -> dict[str, Any]:
    return {
        f"{name}_{depth}": _against(rates, look, f"post, {depth}", f"none, {depth}")
        for depth in (2, 6)
        for name, look in (("stable", works), ("steps", log_steps))
    }


@evidence("DD-3.4")
def _(rates: Dataset, untrained: Dataset) -> dict[str, Any]:
    gradients = untrained.gradients
    found: dict[str, Any] = {
        f"gradients_{depth}": {
            "treatment": gradients.sel(arm="none", depth=depth),
            "baseline": gradients.sel(arm="pre", depth=depth),
        }
        for depth in DEPTHS
    }
    for depth in (2, 6):
        found[f"rates_{depth}"] = _against(rates, works, f"none, {depth}", f"pre, {depth}")
        found[f"steps_{depth}"] = _against(rates, log_steps, f"none, {depth}", f"pre, {depth}")
    return found


@evidence("IW-3.1")
def _(rates: Dataset) -> dict[str, Any]:
    return {
        "xavier_2": _against(rates, works, "pre, 2", "none, 2"),
        "xavier_6": _against(rates, works, "pre, 6", "none, 6"),
        "gate_6": _against(rates, works, "pre gate, 6", "gate, 6"),
    }


@evidence("EX-1.8a")
def _(rates: Dataset) -> dict[str, Any]:
    return _against(rates, works, "pre gate, 6", "gate, 6")


@evidence("EX-1.8b")
def _(rates: Dataset) -> dict[str, Any]:
    def arms(what: str) -> dict[str, DataArray]:
        treatment, baseline = (at_best_rate(rates, arm, what) for arm in GATED)
        return {"treatment": treatment, "baseline": baseline}

    return {"loss": arms("loss"), "transfer": arms("second")}


@evidence("DD-3.3")
def _(untrained: Dataset) -> dict[str, Any]:
    return {
        f"{'skip' if c == 'with' else 'plain'}_{s}": {
            "value": untrained.dimensions.sel(connections=c, start=s)
        }
        for c in CONNECTIONS
        for s in DIMENSION_STARTS
    }


@evidence("DD-3.5")
def _(untrained: Dataset, towers: Dataset) -> dict[str, Any]:
    found = {}
    for arm in ("pre", "post"):
        found[f"{arm}_untrained"] = {"value": untrained.range.sel(arm=arm)}
        found[f"{arm}_trained"] = {"value": towers.spread.sel(arm=arm)}
    return found


# Numbers that the prose names ---------------------------------------------------------------------


@number
def a_block(untrained: Dataset) -> float:
    """By what one untrained block without norms multiplies the size of the stream: a geometric mean."""
    size = untrained["size"].sel(arm="none")
    logs = np.log(size.sel(state=DEEPEST) / size.sel(state=0))
    return float(np.exp(logs.mean() / DEEPEST))


@number
def huge(untrained: Dataset) -> int:
    """The size of the stream after 24 untrained blocks without norms, in thousands: a geometric mean."""
    logs = np.log(untrained["size"].sel(arm="none", state=DEEPEST))
    return round(float(np.exp(logs.mean())) / 1000)


@number
def growth_twelve(untrained: Dataset) -> float:
    """How many times as large the stream is after 12 untrained blocks without norms: a geometric mean."""
    size = untrained["size"].sel(arm="none")
    return float(np.exp(np.log(size.sel(state=DEEP) / size.sel(state=0)).mean()))


@number
def dimension_ratio(untrained: Dataset) -> float:
    """The largest dimension over the smallest after 12 such blocks: a geometric mean."""
    return float(10 ** untrained.dimensions.sel(connections="with", start="xavier").mean())


def _count(arm: str) -> None:
    """Declare how many runs of twelve blocks follow five moves, as `following_` and the arm."""

    def following(towers: Dataset) -> int:
        return int(follows(towers.right.sel(arm=arm), 5).sum())

    following.__name__ = f"following_{arm}"
    number(following)


for _arm in TRAINED:
    _count(_arm)


@number
def following_pre_deepest(deepest: Dataset) -> int:
    """How many pre-norm runs of 24 blocks follow five moves."""
    return int(follows(deepest.right.sel(arm="pre"), 5).sum())


@number
def following_post_deepest(deepest: Dataset) -> int:
    """How many post-norm runs of 24 blocks do."""
    return int(follows(deepest.right.sel(arm="post"), 5).sum())


def _reached(arm: str) -> None:
    """Declare the right fifth answers of a shallow tower at its best rate, as `reached_` and the arm."""

    def reached(rates: Dataset) -> DataArray:
        return fifth(at_best_rate(rates, arm))

    reached.__name__ = f"reached_{arm.replace(', ', '_').replace(' ', '_')}"
    number(reached)


for _arm in GRID:
    _reached(_arm)


def _working(arm: str) -> None:
    """Declare the mean number of learning rates at which runs follow four moves, as `working_` and the arm."""

    def mean(rates: Dataset) -> float:
        return float(works(rates, arm).mean())

    mean.__name__ = f"working_{arm.replace(', ', '_').replace(' ', '_')}"
    number(mean)


for _arm in GRID:
    _working(_arm)


@number
def trained_growth(towers: Dataset) -> float:
    """How many times as long as at its shortest the stream of trained pre-norm towers is: geometric mean."""
    return float(10 ** towers.spread.sel(arm="pre").mean())


def _gated_difference(rates: Dataset, what: str) -> DataArray:
    with_norm, without = (at_best_rate(rates, arm, what) for arm in GATED)
    return with_norm - without


@number
def gain_first(rates: Dataset) -> DataArray:
    """By how much the loss on the game is lower with a norm, behind gates, in nats."""
    return -_gated_difference(rates, "loss")


@number
def loss_second(rates: Dataset) -> DataArray:
    """By how much the loss on the second game is higher with a norm, behind gates, in nats."""
    return _gated_difference(rates, "second")
