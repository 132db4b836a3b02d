"""What no expression says of the results of the chapter on facts: a rank correlation, and a count."""

from __future__ import annotations

from scipy.stats import spearmanr
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.facts.measure import SITES, world_of


@number
def follows_as_tracing(traced: Dataset, places: Dataset) -> DataArray:
    """Rank correlation, over the eight places, of a network's traced effect with the share of edits done."""
    effect = traced.effect.sel(value="network", position=list(SITES))
    effect = effect.transpose("seed", "position", "block").values.reshape(effect.sizes["seed"], -1)
    done = places.done.transpose("seed", "site", "block").values.reshape(len(effect), -1)
    found = [float(spearmanr(a, b).statistic) for a, b in zip(effect, done, strict=True)]
    return DataArray(found, dims="seed")


@number
def questions(traced: Dataset) -> int:
    """How many different questions training asks about a world of people."""
    return len(world_of(int(traced.seed[0])).training().inputs)
