"""How the results of the chapter on neurons are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.neurons.measure import CLASSES, MIDDLE, RATES, SMALL, patterns

# What the claims are judged by ---------------------------------------------------------------------


def _errors(identities: Dataset, name: str) -> dict[str, DataArray]:
    return {"error": identities[name], "control": identities[f"{name}_control"]}


@evidence("CS-5.1")
def _(identities: Dataset) -> dict[str, Any]:
    return {name: _errors(identities, name) for name in ("plain", "biases")}


@evidence("CS-5.2")
def _(identities: Dataset) -> dict[str, Any]:
    return _errors(identities, "columns")


@evidence("IW-5.3")
def _(identities: Dataset) -> dict[str, Any]:
    return _errors(identities, "rows")


@evidence("CS-5.3")
def _(digits: Dataset) -> dict[str, Any]:
    return {
        part: _against_untrained(digits, label, MIDDLE)
        for part, label in (
            ("above_five", "digit above five"), ("digit", "one digit"), ("answer", "one answer"),
        )
    }  # fmt: skip


@evidence("CS-5.4")
def _(digits: Dataset) -> dict[str, Any]:
    names = ("slow", "middle", "fast")
    return {
        name: _against_untrained(digits, "one position", rate)
        for name, rate in zip(names, RATES, strict=True)
    }


def _against_untrained(digits: Dataset, label: str, rate: float) -> dict[str, DataArray]:
    """Shares of detectors after 1000 steps; the baseline is the larger of untrained and permuted labels."""
    one = digits.sel(label=label, rate=rate)
    baseline = np.maximum(one.share.sel(steps=0), one.permuted.sel(steps=1000))
    return {"treatment": one.share.sel(steps=1000), "baseline": baseline}


@evidence("CS-5.5")
def _(activity: Dataset, language: Dataset) -> dict[str, Any]:
    relu = activity.busy.sel(activation="relu", above=0.0)
    names = ("slow", "middle", "fast")
    return {
        **{name: {"value": relu.sel(rate=rate)} for name, rate in zip(names, RATES, strict=True)},
        "gelu": {"value": activity.busy.sel(activation="gelu", above=0.1, rate=MIDDLE)},
        "text": {"value": language.busy.sel(model="trained", keys="own").mean("block")},
    }


@evidence("IW-5.4")
def _(language: Dataset) -> dict[str, Any]:
    def of(values: DataArray, model: str, keys: str = "own") -> DataArray:
        return values.sel(model=model, keys=keys).mean("block")

    own = of(language.f1, "trained")
    others = {
        "shuffled": of(language.shuffled, "trained"),
        "untrained": of(language.f1, "untrained"),
        "random": of(language.f1, "trained", "random"),
    }
    return {name: {"treatment": own, "baseline": other} for name, other in others.items()}


@evidence("IW-5.5")
def _(writing: Dataset) -> dict[str, Any]:
    trained = writing.promise.sel(model="trained")
    return {"last": {"value": trained.sel(block=1)}, "first": {"value": trained.sel(block=0)}}


@evidence("LT-3.1")
def _(language: Dataset) -> dict[str, Any]:
    return {"value": language.named.sel(model="trained", keys="own", level=1.0)}


@evidence("LT-3.2")
def _(language: Dataset) -> dict[str, Any]:
    one = language.known.sel(keys="own", characters=1)
    gap = one.sel(block=0) - one.sel(block=1)
    return {"treatment": gap.sel(model="trained"), "baseline": gap.sel(model="untrained")}


@evidence("LT-3.3")
def _(writing: Dataset) -> dict[str, Any]:
    last_block = writing.agreement.sel(model="trained", block=1)
    return {
        "treatment": last_block.sel(value="own"),
        "baseline": last_block.sel(value="another's"),
    }


@evidence("LT-3.4")
def _(writing: Dataset) -> dict[str, Any]:
    return {"value": writing.important.mean("block")}


# Numbers that the prose names ----------------------------------------------------------------------


@number
def places() -> int:
    """Places of the text that is searched; as many judge."""
    return patterns()[2].shape[1]


@number
def listed() -> int:
    """Patterns that every neuron is tried against."""
    return len(patterns()[0])


@number
def classes() -> int:
    """Regular expressions among them."""
    return len(CLASSES)


@number
def known(language: Dataset, *, model: str, block: int, characters: int) -> DataArray:
    """Share of the variance of a block's neurons that the last characters tell."""
    return language.known.sel(model=model, keys="own", block=block, characters=characters)


@number
def gap(language: Dataset, *, model: str) -> DataArray:
    """The first block's lead over the second in what the current character tells."""
    one = language.known.sel(model=model, keys="own", characters=1)
    return one.sel(block=0) - one.sel(block=1)


@number
def other_value(writing: Dataset, *, block: int) -> DataArray:
    """Agreement of a neuron's key with the value of another neuron, trained models."""
    return writing.agreement.sel(model="trained", block=block, value="another's")


@number
def thousandths(writing: Dataset) -> DataArray:
    """Rise of the loss, in thousandths of a nat, when one neuron is held at its mean: mean over neurons."""
    return 1000 * writing["rise"].mean(("block", "neuron"))


@number
def rise_at(writing: Dataset, *, where: str) -> DataArray:
    """That rise at a neuron's strongest contexts, or elsewhere."""
    return 1000 * writing.rise_where.sel(where=where).mean("block")


@number
def silenced_cost(asked: Dataset, *, what: str, who: str, where: str) -> DataArray:
    """Rise of the loss, in nats, without the detectors of one answer or position, in models that have any."""
    rows = asked["rise"].sel(what=what)
    return rows.sel(who=who, where=where)[(rows != 0).any(("who", "where"))]


@number
def with_detectors(asked: Dataset, *, what: str) -> int:
    """Models that have detectors of one answer or position."""
    return int((asked["rise"].sel(what=what) != 0).any(("who", "where")).sum())


@number
def above_five(digits: Dataset) -> int:
    """Neurons that detect digits above five, in all models of reversal together."""
    shares = digits.share.sel(label="digit above five")
    first = shares.isel(rate=0, steps=0).sum() + shares.isel(steps=slice(1, None)).sum()
    return round(float(first) * SMALL.n_layers * SMALL.neurons)
