"""How the results of the chapter on induction and learning in context are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.induction.measure import (
    DEEP,
    EVERY,
    INPUTS,
    LOOKS,
    POINTS,
    ROUNDS,
    STRINGS,
    SWAPS,
    TEXTS,
)

# What the claims are judged by --------------------------------------------------------------------


def _induction_heads(formed: Dataset, arm: str = DEEP[0]) -> DataArray:
    """Which heads are induction heads: in layer 1 those with a prefix-matching score of at least one half."""
    prefix = formed.prefix.sel(deep=arm, state="trained")
    strongest = prefix == prefix.max(("layer", "head"))
    return ((prefix >= 0.5) & (formed.layer == 1)) | strongest


def _copying(formed: Dataset, state: str, which: str) -> DataArray:
    """Mean copying score of the induction heads, or of all other heads, of attention alone."""
    chosen = _induction_heads(formed)
    chosen = chosen if which == "induction" else ~chosen
    values = formed.copying.sel(deep=DEEP[0], state=state)
    return values.where(chosen).mean(("layer", "head"))


def _composed(formed: Dataset, state: str = "trained") -> tuple[DataArray, DataArray]:
    """K-composition of the strongest pair, and the mean over all other pairs and ways."""
    trained = formed.sel(deep=DEEP[0], state="trained")
    back = trained.previous.sel(layer=0).argmax("head")
    match = trained.prefix.sel(layer=1).argmax("head")
    table = formed.composition.sel(state=state)
    pair = table.sel(by="k").isel(head=back, later=match)
    count = int(np.prod([table.sizes[axis] for axis in ("head", "later", "by")]))
    return pair, (table.sum(("head", "later", "by")) - pair) / (count - 1)


@evidence("IW-4.7")
def _(formed: Dataset) -> dict[str, Any]:
    own = _copying(formed, "trained", "induction")
    pair, others = _composed(formed)
    return {
        "copying": {"treatment": own, "baseline": _copying(formed, "trained", "others")},
        "untrained": {
            "treatment": own,
            "baseline": _copying(formed, "untrained", "induction"),
        },
        "composition": {"treatment": pair, "baseline": others},
    }


@evidence("IW-4.9")
def _(needed: Dataset) -> dict[str, Any]:
    def exchange(arm: str) -> dict[str, Any]:
        of = needed.swapped.sel(deep=arm)
        return {"treatment": of.sel(swap=SWAPS[1]), "baseline": of.sel(swap=SWAPS[2])}

    return {
        "attention_only": {"value": _not_added_up(needed, DEEP[0])},
        "whole": {"value": _not_added_up(needed, DEEP[1])},
        "exchange": exchange(DEEP[0]),
        "exchange_whole": exchange(DEEP[1]),
    }


def _not_added_up(needed: Dataset, arm: str) -> DataArray:
    of = needed.patched.sel(deep=arm)
    apart = of.sel(patch="pattern") + of.sel(patch="values")
    both = of.sel(patch="both")
    return np.abs(both - apart) / np.abs(both)


def _first(values: DataArray, level: DataArray | float, *, falls: bool) -> DataArray:
    """The step at which each seed's curve first crosses a level, between two looks by a straight line."""
    found = []
    for seed in values.seed:
        row = values.sel(seed=seed).values
        at = float(level.sel(seed=seed)) if isinstance(level, DataArray) else level
        row, at = (-row, -at) if falls else (row, at)
        k = int(np.argmax(row >= at))
        if row[k] < at:
            found.append(float(LOOKS[-1]))
        elif k == 0:
            found.append(float(LOOKS[0]))
        else:
            share = (at - row[k - 1]) / (row[k] - row[k - 1])
            found.append(float(LOOKS[k - 1] + EVERY * share))
    return DataArray(found, dims="seed", coords={"seed": values.seed})


def _half_fallen(cliff: Dataset) -> DataArray:
    return _first(cliff.loss, STRINGS.bag_loss() / 2, falls=True)


def _half_up(cliff: Dataset, what: str) -> DataArray:
    rows = cliff[what]
    middle = (rows.isel(look=0) + rows.isel(look=-1)) / 2
    return _first(rows, middle, falls=False)


@evidence("LT-15.1")
def _(cliff: Dataset) -> dict[str, Any]:
    return {"value": np.abs(_half_fallen(cliff) - _half_up(cliff, "prefix"))}


@evidence("LT-15.2")
def _(formed: Dataset) -> dict[str, Any]:
    deep = formed.prefix.sel(deep=DEEP[0], state="trained").max(("layer", "head"))
    return {
        "prefix": {"treatment": deep, "baseline": formed.one_layer_prefix},
        "accuracy": {
            "treatment": formed.accuracy.sel(arm=DEEP[0]),
            "baseline": formed.accuracy.sel(arm="one layer"),
        },
    }


@evidence("LT-15.3")
def _(mixed: Dataset) -> dict[str, Any]:
    return {
        "strings": {
            "treatment": mixed.strings.sel(share=1.0),
            "baseline": mixed.strings.sel(share=0.0),
        },
        "circle": {"value": mixed.circle.sel(share=0.0)},
    }


@evidence("LT-15.4")
def _(text: Dataset) -> dict[str, Any]:
    return {
        part: {
            "treatment": text.rounds.sel(text=name, round=ROUNDS),
            "baseline": text.rounds.sel(text=name, round=1),
        }
        for part, name in zip(("plain", "repeats"), TEXTS, strict=True)
    }


@evidence("LT-15.5")
def _(regression: Dataset) -> dict[str, Any]:
    return {"value": share_of_fall(regression)}


def share_of_fall(regression: Dataset, guess: str = "model", points: int = POINTS - 1) -> DataArray:
    """Share of the fall of ridge regression's squared error, from no point on, that a guess has."""
    best = regression.error.sel(guess="ridge")
    start = best.sel(points=0)
    own = regression.error.sel(guess=guess, points=points)
    return (start - own) / (start - best.sel(points=points))


@evidence("LT-15.6")
def _(regression: Dataset) -> dict[str, Any]:
    def distances(guess: str) -> dict[str, Any]:
        few = regression.sel(guess=guess, points=slice(INPUTS, None)).mean("points")
        return {"treatment": np.log(few.apart), "baseline": np.log(few.from_step)}

    return {"deep": distances("model"), "shallow": distances("one layer")}


@evidence("LT-15.7")
def _(steps_of_descent: Dataset) -> dict[str, Any]:
    return {
        "error": steps_of_descent.error.isel(seed=0),
        "control": steps_of_descent.second.isel(seed=0),
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def copying_of(formed: Dataset, *, state: str, which: str) -> DataArray:
    """Mean copying score of the induction heads or of others, trained or untrained."""
    return _copying(formed, state, which)


@number
def pair(formed: Dataset, *, state: str) -> DataArray:
    """K-composition score of the strongest pair of heads."""
    return _composed(formed, state)[0]


@number
def other_pairs(formed: Dataset) -> DataArray:
    """Mean composition score over all other pairs and ways."""
    return _composed(formed)[1]


@number
def induction_heads(formed: Dataset, *, arm: str) -> DataArray:
    """How many induction heads a model has."""
    return _induction_heads(formed, arm).sum(("layer", "head"))


@number
def half(cliff: Dataset, *, what: str) -> DataArray:
    """The step at which the loss has fallen half way from knowing the letters, or a score is half way up."""
    return _half_fallen(cliff) if what == "loss" else _half_up(cliff, what)


@number
def not_added_up(needed: Dataset, *, arm: str) -> DataArray:
    """Share of the effect of patching both circuits that patching each does not add up to."""
    return _not_added_up(needed, arm)


@number
def exchanged(needed: Dataset, *, arm: str, swap: str) -> DataArray:
    """Accuracy with other output-value circuits."""
    names = dict(zip(("own", "another", "first"), SWAPS, strict=True))
    return needed.swapped.sel(deep=arm, swap=names[swap])


@number
def best_prefix(formed: Dataset, *, state: str) -> DataArray:
    """Largest prefix-matching score of a head, of attention alone."""
    return formed.prefix.sel(deep=DEEP[0], state=state).max(("layer", "head"))


@number
def bag() -> float:
    """Nats that a model loses that knows the letters of a string but not their order."""
    return STRINGS.bag_loss()


@number
def fall(regression: Dataset, *, guess: str) -> DataArray:
    """Share of the fall of ridge regression's error that a guess has at seven points."""
    return share_of_fall(regression, guess)


@number
def harm_without(formed: Dataset, needed: Dataset, *, which: str) -> DataArray:
    """Rise of the loss without the head that looks back most, or without the one that matches most."""
    layer, score = (0, formed.previous) if which == "back" else (1, formed.prefix)
    looked = score.sel(deep=DEEP[0], state="trained", layer=layer)
    return needed.harm.sel(deep=DEEP[0], layer=layer).isel(head=looked.argmax("head"))


@number
def text_prefix(text: Dataset, *, name: str) -> DataArray:
    """Largest prefix-matching score of a head of a language model, trained or untrained."""
    of = text.untrained if name == "untrained" else text.prefix.sel(text=name)
    return of.max(("layer", "head"))


@number
def text_gain(text: Dataset, *, name: str) -> DataArray:
    """How much lower a language model's loss is in the last round of a piece than in the first."""
    of = text.rounds.sel(text=name)
    return of.sel(round=1) - of.sel(round=ROUNDS)


@number
def distance(regression: Dataset, *, guess: str, to: str) -> DataArray:
    """Mean squared distance of guesses from two points on, to ridge regression's or to one step's."""
    of = regression.apart if to == "ridge" else regression.from_step
    return of.sel(guess=guess, points=slice(INPUTS, None)).mean("points")


@number
def text_formed(text: Dataset) -> int:
    """How many language models that have seen repeats have a head with a prefix-matching score above 0.4."""
    best = text.prefix.sel(text="with repeats").max(("layer", "head"))
    return int((best > 0.4).sum())
