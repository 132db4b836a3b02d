"""How the results of the chapter on superposition are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.superposition.measure import (
    BASES,
    DIMENSIONS,
    FEATURES,
    LADDER,
    PROSE,
    alphabet,
    labels,
    welch_bound,
)

# What the claims are judged by --------------------------------------------------------------------


@evidence("LT-1.1")
def _(pairs: Dataset) -> dict[str, Any]:
    return {"value": pairs.agrees}


@evidence("LT-1.2")
def _(polygons: Dataset) -> dict[str, Any]:
    sparse = polygons.sel(density=LADDER[-1])
    return {
        "five": {"value": sparse.kept.values.astype(float)},
        "apart": {"value": sparse.nearest},
    }


@evidence("LT-1.3")
def _(dimensions: Dataset) -> dict[str, Any]:
    return {"value": dimensions.halves}


@evidence("LT-1.4")
def _(world: Dataset) -> dict[str, Any]:
    known = world.sel(arm="TopK 96")
    return {"treatment": known.match, "baseline": known.random}


@evidence("LT-1.5")
def _(world: Dataset) -> dict[str, Any]:
    arms = {"treatment": world.amount.sel(arm="L1 96"), "baseline": world.amount.sel(arm="TopK 96")}
    return arms


@evidence("LT-1.6")
def _(world: Dataset) -> dict[str, Any]:
    heard = world.heard.sel(arm="TopK 192")
    return {
        "treatment": heard.sel(company="with its child"),
        "baseline": heard.sel(company="with a stranger"),
    }


@evidence("LT-1.7")
def _(language: Dataset) -> dict[str, Any]:
    own = language.own.sel(basis="latents")
    return {"treatment": own.sel(model="trained"), "baseline": own.sel(model="untrained")}


@evidence("LT-1.8")
def _(language: Dataset) -> dict[str, Any]:
    best = language.best.sel(model="trained")
    latents = best.sel(basis="latents")
    return {
        name.lower(): {"treatment": latents, "baseline": best.sel(basis=name)} for name in BASES[1:]
    }


@evidence("LT-1.9")
def _(language: Dataset) -> dict[str, Any]:
    best = language.best.sel(basis="latents")
    return {"treatment": best.sel(model="trained"), "baseline": best.sel(model="untrained")}


@evidence("LT-1.10")
def _(language: Dataset) -> dict[str, Any]:
    trained = language.sel(model="trained")
    return {"treatment": trained.probe, "baseline": trained.best.sel(basis="latents")}


@evidence("LT-1.11")
def _(language: Dataset) -> dict[str, Any]:
    return {"value": language.readable.sel(model="trained").values.astype(float)}


# Numbers that the prose names ---------------------------------------------------------------------


@number
def pentagon_length(polygons: Dataset) -> DataArray:
    """Length of the columns at the smallest density, mean over features."""
    squares = polygons.weight.sel(density=LADDER[-1]) ** 2
    return (squares.sum("axis") ** 0.5).mean("feature")


@number
def recovered(language: Dataset) -> DataArray:
    """Share of the loss that the mean state costs and that the autoencoder's states do not."""
    one = language.sel(model="trained")
    return (one["mean"] - one.spliced) / (one["mean"] - one.whole)


@number
def listed() -> int:
    """Properties of the text that every basis is asked for."""
    return len(labels()[0])


@number
def at_once() -> float:
    """How many of them hold at a place of the judging text, on average."""
    return float(labels()[1].double().mean(1).sum())


def text_of(tokens: list[int]) -> str:
    """The characters that tokens stand for; the start token is none."""
    return "".join(alphabet()[token] if token < PROSE.vocab - 1 else " " for token in tokens)


@number
def welch() -> float:
    """The smallest possible largest cosine of the toy's features."""
    return welch_bound(DIMENSIONS, FEATURES)
