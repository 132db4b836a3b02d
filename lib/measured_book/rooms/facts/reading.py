"""How the results of the chapter on facts are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

from scipy.stats import spearmanr
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.facts.measure import (
    INSIDE,
    JUDGED,
    NUMBERS,
    PLACED,
    SITES,
    world_of,
)

# What the claims are judged by ---------------------------------------------------------------------


@evidence("CS-5.6")
def _(stored: Dataset, inside_one_block: Dataset) -> dict[str, Any]:
    recalled_share = stored.recalled.sel(size=512)
    four = recalled_share.sel(arm="four")

    def fall(of: DataArray) -> DataArray:
        return of.sel(silenced=0) - of.sel(silenced=JUDGED)

    return {
        "specific": {
            "treatment": fall(inside_one_block.own),
            "baseline": fall(inside_one_block.others),
        },
        "width": {"treatment": four, "baseline": recalled_share.sel(arm="once")},
        "stores": {"treatment": four, "baseline": recalled_share.sel(arm="neither")},
    }


@evidence("CS-6.5")
def _(algebra: Dataset, inside_one_block: Dataset) -> dict[str, Any]:
    return {
        "algebra": {"error": algebra.error, "control": algebra.control},
        "content": {"treatment": inside_one_block.known, "baseline": inside_one_block.mean_write},
    }


@evidence("LT-4.1")
def _(traced: Dataset) -> dict[str, Any]:
    networks = traced.effect.sel(value="network").max("block")
    return {
        "treatment": networks.sel(position="last name"),
        "baseline": networks.sel(position="relation"),
    }


@evidence("LT-4.2")
def _(traced: Dataset, places: Dataset) -> dict[str, Any]:
    effect = traced.effect.sel(value="network", position="last name", block=1)
    return {
        "traced": {"value": effect},
        "edited": {"value": places.done.sel(site="last name", block=1)},
    }


@evidence("LT-4.3")
def _(many: Dataset) -> dict[str, Any]:
    most = many.sel(number=max(NUMBERS))
    return {
        name: {
            "treatment": most[name].sel({"method": "at once"}),
            "baseline": most[name].sel({"method": "one by one"}),
        }
        for name in ("done", "kept")
    }


def _new(ripples: Dataset, route: str) -> DataArray:
    """Share of the answers that are the new ones, by place, in the last block at the relation."""
    return ripples.follows.sel(answer="new", route=route, place=PLACED[-1])


@evidence("LT-4.4")
def _(ripples: Dataset) -> dict[str, Any]:
    return {route: {"value": _new(ripples, route)} for route in ("chain", "country")}


@evidence("LT-4.5")
def _(traced: Dataset) -> dict[str, Any]:
    return {
        "forwards": {"value": traced.known.sel(question="badge")},
        "seen": {"value": traced.seen.sel(derived="holder")},
        "backwards": {"value": traced.held_out.sel(derived="holder")},
    }


# Numbers that the prose names ----------------------------------------------------------------------


@number
def bits_each(stored: Dataset, *, arm: str, size: int) -> DataArray:
    """Bits of a table that an arm keeps, for each of its parameters."""
    one = stored.sel(arm=arm)
    return one.bits.sel(size=size) / one.parameters


@number
def follows_as_tracing(traced: Dataset, places: Dataset) -> DataArray:
    """Rank correlation, over the eight places, of a network's traced effect with the share of edits done."""
    effect = traced.effect.sel(value="network", position=list(SITES))
    effect = effect.transpose("seed", "position", "block").values.reshape(effect.sizes["seed"], -1)
    done = places.done.transpose("seed", "site", "block").values.reshape(len(effect), -1)
    found = [float(spearmanr(a, b).statistic) for a, b in zip(effect, done, strict=True)]
    return DataArray(found, dims="seed")


@number
def others_lost(inside_one_block: Dataset) -> DataArray:
    """How many other facts are lost with a fact's four strongest neurons, mean over facts."""
    return (1 - inside_one_block.others.sel(silenced=JUDGED)) * (INSIDE.count - 1)


@number
def questions(traced: Dataset) -> int:
    """How many different questions training asks about a world of people."""
    return len(world_of(int(traced.seed[0])).training().inputs)


@number
def known_worst(traced: Dataset) -> float:
    """Smallest share of any kind of question that training asked which any model answers."""
    return float(min(traced.known.min(), traced.seen.min()))


@number
def broken(many: Dataset) -> DataArray:
    """Share of all other facts that have another answer when 64 were rewritten at once."""
    return 1 - many.kept.sel({"number": max(NUMBERS), "method": "at once"})
