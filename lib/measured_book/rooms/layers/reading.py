"""Readings of the chapter on layers in order that no expression says, and those that a figure shows too."""

from __future__ import annotations

import numpy as np
import torch
from measured_transformer.analysis.layers import centre_of_gravity, slope, states_by_depth
from measured_transformer.analysis.probing import probe
from measured_transformer.tasks.task import Batch
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.layers.measure import GRAMMAR, carrying_model


@number
def climb(looking: Dataset, *, of: str) -> DataArray:
    """By how much a statistic climbs from the first layer to the last, along the line of least squares."""
    rows = looking[of].transpose(..., "layer")
    rise = np.apply_along_axis(lambda row: slope(row) * (len(row) - 1), -1, rows.values)
    return rows.isel(layer=0, drop=True).copy(data=rise)


@number
def centres(knowing: Dataset) -> DataArray:
    """Centres of gravity of what probes gain, over their controls, as shares of the depth."""
    found = (knowing.accuracy - knowing.control).transpose(..., "state")
    rows = np.apply_along_axis(centre_of_gravity, -1, found.values)
    return found.isel(state=0, drop=True).copy(data=rows)


@number
def lags(knowing: Dataset) -> DataArray:
    """How far the centre of gravity of pronouns lies behind that of agreement."""
    found = centres(knowing)
    return found.sel(what="pronouns", drop=True) - found.sel(what="agreement", drop=True)


@number
def falls(looking: Dataset) -> DataArray:
    """By how much the normalised entropy falls from the middle to the last third."""
    middle, last = (looking.entropy.sel(layer=one) for one in (slice(5, 8), slice(9, 12)))
    return middle.mean("layer") - last.mean("layer")


@number
def even_first() -> float:
    """Weight of even attention on the first token."""
    n = GRAMMAR.length
    return float(np.mean([1 / (i + 1) for i in range(1, n)]))


@number
def by_hand(*, copied: str, score: str) -> float:
    """'accuracy' or 'control' of a probe for the class of the word one place back, in a `carrying_model`."""
    words = torch.randint(16, (600, 6), generator=torch.Generator().manual_seed(0))
    reading = Batch(words, words, torch.ones_like(words, dtype=torch.bool))
    before, first_half = words[:, 2], torch.arange(600) < 300
    states = states_by_depth(carrying_model(copied, vocab=16, length=6), reading)[:, :, 3]
    random = torch.Generator().manual_seed(1)
    found = probe(states, before % 2, before, first_half, random, n_labels=2)
    return float(getattr(found, score)[-1])
