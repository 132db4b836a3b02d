"""How the results of the chapter *A real model on the bench* are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from measured_transformer.analysis.bench import MAP
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.real_model.measure import ACTIVE_LATENTS, HOW

# What the claims are judged by --------------------------------------------------------------------

LATER = slice(2, 6)
"""All blocks but the first."""


def share(parameters: Dataset, model: str, parts: Sequence[str]) -> float:
    """The share of the feed-forward networks in these parts of a model."""
    count = parameters["count"].sel(model=model).isel(seed=0)
    return float(count.sel(part="feed-forward") / count.sel(part=list(parts)).sum())


@evidence("LT-18.1")
def _(parameters: Dataset) -> dict[str, Any]:
    blocks = ("attention", "feed-forward")
    return {
        "whole": {"value": [share(parameters, "MiniLM", MAP)]},
        "blocks": {"value": [share(parameters, "MiniLM", blocks)]},
        "own": {"value": [share(parameters, "book", blocks)]},
    }


@evidence("LT-18.2")
def _(attention: Dataset) -> dict[str, Any]:
    seen = attention.atlas.sel(arm="trained", statistic="separator", block=slice(3, 5))
    return {"value": seen.mean(("block", "head"))}


@evidence("LT-18.3")
def _(attention: Dataset, book_model: Dataset) -> dict[str, Any]:
    ours = attention.atlas.sel(statistic="first", block=LATER).mean(("block", "head"))
    theirs = book_model.atlas.sel(statistic="first", block=2).mean("head")
    return {
        "minilm": {"treatment": ours.sel(arm="trained"), "baseline": ours.sel(arm="shuffled")},
        "own": {
            "treatment": theirs.sel(model="trained"),
            "baseline": theirs.sel(model="untrained"),
        },
    }


@evidence("LT-18.4")
def _(attention: Dataset) -> dict[str, Any]:
    here = attention.sel(arm="trained", target="first", block=LATER).mean(("block", "head"))
    return {"length": {"value": here.length}, "share": {"value": here.part}}


@evidence("LT-18.5")
def _(stream: Dataset) -> dict[str, Any]:
    return {"value": stream.extreme.sel(arm="trained").max("state")}


@evidence("LT-18.6")
def _(stream: Dataset) -> dict[str, Any]:
    moved = stream.moved
    return {
        "zero": {
            "treatment": moved.sel(change="largest to zero"),
            "baseline": moved.sel(change="others to zero"),
        },
        "mean": {"value": moved.sel(change="largest to its mean")},
    }


@evidence("LT-18.7")
def _(stream: Dataset) -> dict[str, Any]:
    here = stream.cosine.sel(arm="trained")
    fifth, start = here.sel(state=5), here.sel(state=0)
    return {
        "fifth": {"treatment": fifth, "baseline": start},
        "last": {"treatment": here.sel(state=6), "baseline": start},
        "untrained": {
            "treatment": fifth,
            "baseline": stream.cosine.sel(arm="untrained", state=5),
        },
    }


NEAR = 0.05
"""A head is not missed where a text moves by at most this share of the way to another text."""


@evidence("LT-18.8")
def _(heads: Dataset) -> dict[str, Any]:
    still = heads.moved.mean("seed") <= NEAR
    return {
        how: {"successes": [int(still.sel(how=how).sum())], "trials": [still.sel(how=how).size]}
        for how in HOW
    }


@evidence("LT-18.9")
def _(stream: Dataset) -> dict[str, Any]:
    falls = stream.retrieval.sel(arm="trained", state=6) - stream.skipped
    names = {"fourth": 4, "fifth": 5, "sixth": 6}
    return {name: {"value": falls.sel(block=block)} for name, block in names.items()}


@evidence("LT-18.10")
def _(attention: Dataset) -> dict[str, Any]:
    by_block = attention.atlas.mean("head")
    late = by_block.sel(block=slice(5, 6)).mean("block")
    early = by_block.sel(block=slice(1, 2)).mean("block")
    climb = (late - early).sel(statistic="within")

    def ends(statistic: str) -> dict[str, DataArray]:
        chosen = {"arm": "trained", "statistic": statistic}
        return {"treatment": late.sel(chosen), "baseline": early.sel(chosen)}

    return {
        "all": ends("distance"),
        "within": ends("within"),
        "control": {"treatment": climb.sel(arm="trained"), "baseline": climb.sel(arm="shuffled")},
    }


@evidence("LT-18.11")
def _(stream: Dataset) -> dict[str, Any]:
    firing = stream.firing.mean("block")
    return {"treatment": firing.sel(arm="trained"), "baseline": firing.sel(arm="untrained")}


@evidence("LT-18.12")
def _(features: Dataset) -> dict[str, Any]:
    kept = features.explained.sel(speaking=ACTIVE_LATENTS[1])
    ours = kept.sel(source="trained")
    return {
        control: {"treatment": ours, "baseline": kept.sel(source=control)}
        for control in ("noise", "untrained")
    }


@evidence("LT-18.13")
def _(features: Dataset) -> dict[str, Any]:
    own = features.own.sel(basis="latents")
    return {"treatment": own.sel(model="trained"), "baseline": own.sel(model="untrained")}


# Numbers that the prose names ---------------------------------------------------------------------


@number
def all_parameters(parameters: Dataset, *, model: str) -> float:
    """Millions of parameters of a model."""
    return float(parameters["count"].sel(model=model).isel(seed=0).sum()) / 1e6


@number
def share_of(parameters: Dataset, *, model: str, part: str) -> float:
    """The share of a part in all parameters of a model."""
    count = parameters["count"].sel(model=model).isel(seed=0)
    return float(count.sel(part=part) / count.sum())


@number
def share_of_blocks(parameters: Dataset, *, model: str) -> float:
    """The share of the feed-forward networks in attention and feed-forward networks together."""
    return share(parameters, model, ("attention", "feed-forward"))


@number
def weight_on(attention: Dataset, *, statistic: str, arm: str) -> DataArray:
    """A statistic of attention, mean over the heads of all blocks but the first."""
    return attention.atlas.sel(statistic=statistic, arm=arm, block=LATER).mean(("block", "head"))


@number
def in_block(attention: Dataset, *, statistic: str, block: int) -> DataArray:
    """A statistic of the trained attention, mean over the heads of one block."""
    return attention.atlas.sel(statistic=statistic, arm="trained", block=block).mean("head")


@number
def handed_over(attention: Dataset, *, arm: str) -> DataArray:
    """Length of what heads get from [CLS] over that from ordinary tokens; all blocks but the first."""
    here = attention.length.sel(arm=arm, target="first", block=LATER)
    return here.mean(("block", "head"))


@number
def arriving(attention: Dataset) -> DataArray:
    """The share of [CLS] in the lengths of all that heads gather; all blocks but the first."""
    here = attention.part.sel(arm="trained", target="first", block=LATER)
    return here.mean(("block", "head"))


@number
def kin(stream: Dataset, *, arm: str, what: str, state: int) -> DataArray:
    """How alike two words are that share one thing."""
    return stream.kinship.sel(arm=arm, kin=what, state=state)


@number
def fall_without(stream: Dataset, *, block: int) -> DataArray:
    """By how much the reciprocal rank falls without a block."""
    return stream.retrieval.sel(arm="trained", state=6) - stream.skipped.sel(block=block)


@number
def retrieved(stream: Dataset, *, change: str) -> DataArray:
    """Reciprocal rank with one entry of [CLS] overwritten: to zero, to its mean, or others."""
    names = {"zero": "largest to zero", "mean": "largest to its mean", "others": "others to zero"}
    return stream.tampered.sel(change=names[change])


@number
def moved_by(stream: Dataset, *, change: str) -> DataArray:
    """How far texts move with one entry of [CLS] overwritten."""
    names = {"zero": "largest to zero", "mean": "largest to its mean", "others": "others to zero"}
    return stream.moved.sel(change=names[change])


@number
def heads_not_missed(heads: Dataset, *, how: str) -> int:
    """Heads without which a text moves by at most a twentieth of the way to another."""
    return int((heads.moved.sel(how=how).mean("seed") <= NEAR).sum())


@number
def block_of_heads(heads: Dataset, *, how: str, block: int) -> DataArray:
    """How far a text moves without a head of a block, mean over its heads."""
    return heads.moved.sel(how=how, block=block).mean("head")


@number
def firing_in(stream: Dataset, *, arm: str) -> DataArray:
    """Share of neurons that fire, mean over blocks."""
    return stream.firing.sel(arm=arm).mean("block")


@number
def own_first(book_model: Dataset, *, model: str, block: int) -> DataArray:
    """Weight of the book's model on its start token, mean over the heads of a block."""
    return book_model.atlas.sel(model=model, statistic="first", block=block).mean("head")


@number
def smallest_step(stream: Dataset, *, arm: str) -> float:
    """The smallest alignment between the states before and after one of the first five blocks."""
    alike = stream.alike.sel(arm=arm).mean("seed")
    return min(float(alike.sel(state=i, other=i + 1)) for i in range(5))
