"""How the results of the chapter on many heads are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.heads.measure import (
    COUNTS,
    DEPTHS,
    LATER_STEPS,
    PLACE_STEPS,
    TASKS,
)

# What the claims are judged by ------------------------------------------------------------------------


def _checked(drawn: Dataset, check: str) -> dict[str, Any]:
    of = drawn.isel(seed=0).sel(check=check)
    return {"error": of.error, "control": of.control}


@evidence("DA-2.11")
def _(drawn: Dataset) -> dict[str, Any]:
    return {"module": _checked(drawn, "torch"), "parameters": _checked(drawn, "parameters")}


@evidence("DD-6.1")
def _(drawn: Dataset) -> dict[str, Any]:
    return {"value": drawn.head_width.isel(seed=0)}


@evidence("DA-2.10")
def _(places: Dataset, later: Dataset) -> dict[str, Any]:
    def two_against_one(accuracy: DataArray) -> dict[str, Any]:
        return {"treatment": accuracy.sel(heads=2), "baseline": accuracy.sel(heads=1)}

    return {
        "early": two_against_one(places.accuracy.sel(step=PLACE_STEPS)),
        "late": two_against_one(later.accuracy.sel(step=LATER_STEPS)),
    }


@evidence("DA-2.13")
def _(drawn: Dataset) -> dict[str, Any]:
    of = drawn.isel(seed=0)
    return {
        "form": {"value": of.form, "control": of.free_form},
        "sum": {"value": of.two_patterns, "control": of.one_pattern},
        "target": _checked(drawn, "two maps"),
    }


@evidence("DD-12.2a")
def _(counts: Dataset, shorter: Dataset) -> dict[str, Any]:
    def falls(loss: DataArray) -> dict[str, Any]:
        one, eight, sixteen = (loss.sel(heads=heads) for heads in (1, 8, 16))
        return {"treatment": eight - sixteen, "baseline": (one - eight) / math.log2(8)}

    return {
        "translation": falls(counts.loss.sel(task="translation")),
        "recall": falls(shorter.loss),
    }


@evidence("DD-12.2b")
def _(counts: Dataset) -> dict[str, Any]:
    return {name: {"value": np.log2(best_count(counts, name))} for name in TASKS}


def best_count(counts: Dataset, name: str) -> Float[np.ndarray, "seed"]:
    """The number of heads with the lowest loss on a task, for each seed."""
    loss = counts.loss.sel(task=name).transpose("seed", "heads").values
    best: Float[np.ndarray, "seed"] = np.array(COUNTS, dtype=float)[loss.argmin(1)]
    return best


@evidence("EX-2.1")
def _(drawn: Dataset) -> dict[str, Any]:
    return _checked(drawn, "joined")


@evidence("EX-2.2")
def _(drawn: Dataset) -> dict[str, Any]:
    return _checked(drawn, "sizes")


@evidence("EX-2.3")
def _(drawn: Dataset) -> dict[str, Any]:
    return _checked(drawn, "split")


@evidence("EX-2.4")
def _(drawn: Dataset) -> dict[str, Any]:
    return _checked(drawn, "printed")


@evidence("EX-2.5")
def _(drawn: Dataset) -> dict[str, Any]:
    return _checked(drawn, "sum")


@evidence("EX-2.6")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        "matrices": _checked(drawn, "matrices"),
        "numbers": {"value": drawn.numbers.isel(seed=0)},
    }


@evidence("EX-2.7a")
def _(drawn: Dataset) -> dict[str, Any]:
    return _checked(drawn, "removed")


@evidence("EX-2.7b")
def _(pairs: Dataset) -> dict[str, Any]:
    same = {f"same_{depth}": {"value": pairs.one_layer.sel(depth=depth)} for depth in DEPTHS[1:]}
    other = {f"other_{depth}": {"value": pairs.two_layers.sel(deep=depth)} for depth in DEPTHS[1:]}
    return {**same, **other}


@evidence("IW-4.2")
def _(drawn: Dataset) -> dict[str, Any]:
    of = drawn.isel(seed=0)
    return {
        "causal": _checked(drawn, "causal"),
        "rank": {"value": of.writes, "control": of.all_writes},
    }


@evidence("IW-4.3")
def _(drawn: Dataset) -> dict[str, Any]:
    return {"plain": _checked(drawn, "ov"), "bias": _checked(drawn, "ov with bias")}


@evidence("IW-4.4")
def _(drawn: Dataset) -> dict[str, Any]:
    return {"value": drawn.shapes.isel(seed=0)}


@evidence("IW-4.5")
def _(drawn: Dataset) -> dict[str, Any]:
    return _checked(drawn, "qk")


@evidence("IW-4.6")
def _(drawn: Dataset) -> dict[str, Any]:
    return {"value": drawn.printed_exists.isel(seed=0)}


@evidence("IW-4.8")
def _(drawn: Dataset) -> dict[str, Any]:
    return _checked(drawn, "stream")


# Numbers that the prose names -------------------------------------------------------------------------


@number
def sum_off(drawn: Dataset) -> float:
    """The largest error of attention as a sum of its heads."""
    return float(drawn.error.sel(check="sum").max())


@number
def one_early(places: Dataset) -> DataArray:
    """Accuracy of one head where the arms are compared."""
    return places.accuracy.sel(heads=1, step=PLACE_STEPS)


@number
def two_early(places: Dataset) -> DataArray:
    """Accuracy of two heads there."""
    return places.accuracy.sel(heads=2, step=PLACE_STEPS)


@number
def four_early(places: Dataset) -> DataArray:
    """Accuracy of four heads there."""
    return places.accuracy.sel(heads=4, step=PLACE_STEPS)


@number
def eight_early(places: Dataset) -> DataArray:
    """Accuracy of eight heads there."""
    return places.accuracy.sel(heads=8, step=PLACE_STEPS)


@number
def one_late(places: Dataset) -> DataArray:
    """Accuracy of one head after twice the steps."""
    return places.one_later.sel(late=2 * PLACE_STEPS)


@number
def one_there(places: Dataset) -> float:
    """Seeds in which one head is then right in more than 98 per cent of the cases."""
    return float((one_late(places) > 0.98).sum())


def _best_heads(induction: Dataset, name: str, layer: int, arm: str, state: str) -> DataArray:
    return induction[name].sel(deep=arm, state=state, layer=layer).max("head")


@number
def best_heads(induction: Dataset, *, score: str, layer: int, arm: str, state: str) -> DataArray:
    """The largest score of a layer's heads: of the previous token or of the match, by arm, trained or not."""
    return _best_heads(induction, score, layer, arm, state)


@number
def out_of_reach(drawn: Dataset) -> float:
    """Share of the draws in which the lower bound asks for a negative weight."""
    return float((drawn.one_head > drawn.bound + 1e-6).mean())


def _recall(counts: Dataset, heads: int) -> DataArray:
    return counts.accuracy.sel(task="recall", heads=heads)


@number
def recall_1(counts: Dataset) -> DataArray:
    """Accuracy at recall with one head of 64."""
    return _recall(counts, 1)


@number
def recall_16(counts: Dataset) -> DataArray:
    """Accuracy at recall with sixteen heads of 4."""
    return _recall(counts, 16)


def _cut(induction: Dataset, arm: str, path: str) -> DataArray:
    return induction.cut.sel(deep=arm, path=path)


@number
def keys_cut(induction: Dataset) -> DataArray:
    """Accuracy with the path to the keys cut, learned positions."""
    return _cut(induction, "learned", "k")


@number
def keys_cut_rotary(induction: Dataset) -> DataArray:
    """The same, rotary positions."""
    return _cut(induction, "rotary", "k")


@number
def others_cut(induction: Dataset) -> float:
    """The lowest accuracy of all models with any other path cut."""
    return float(induction.cut.sel(path=["q", "v", "direct"]).min())


def _fit(induction: Dataset, state: str, by: str) -> DataArray:
    return induction.fit.sel(state=state, by=by).stack(model=("seed", "deep")).reset_index("model")


@number
def composition(induction: Dataset, *, state: str, by: str) -> DataArray:
    """Composition of the two strongest heads over chance, trained or not, by queries, keys or values."""
    return _fit(induction, state, by)


@number
def same_layer(pairs: Dataset) -> DataArray:
    """The share that is interaction, for pairs in one layer of models of two and of six."""
    return pairs.one_layer.sel(depth=list(DEPTHS[1:])).mean("depth")


@number
def positive(pairs: Dataset) -> float:
    """Share of the models whose interactions within a layer are positive in sum."""
    return float((pairs.excess > 0).mean())


@number
def best_recall(counts: Dataset) -> DataArray:
    """The number of heads with the lowest loss at recall."""
    return DataArray(best_count(counts, "recall"), dims="seed")


@number
def best_translation(counts: Dataset) -> DataArray:
    """The number of heads with the lowest loss at translation."""
    return DataArray(best_count(counts, "translation"), dims="seed")


def _four_or_eight(counts: Dataset, task: str) -> float:
    return float(np.isin(best_count(counts, task), (4, 8)).mean())


@number
def sweet_recall(counts: Dataset) -> float:
    """Share of the seeds in which four or eight heads are best at recall."""
    return _four_or_eight(counts, "recall")


@number
def sweet_translation(counts: Dataset) -> float:
    """Share of the seeds in which four or eight heads are best at translation."""
    return _four_or_eight(counts, "translation")
