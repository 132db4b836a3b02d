"""Numbers of the chapter on neurons that no expression says: what is searched, and who has detectors."""

from __future__ import annotations

from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.neurons.measure import SMALL
from measured_book.rooms.neurons.patterns import CLASSES, patterns


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
def zero_ablation_cost(asked: Dataset, *, what: str, who: str, where: str) -> DataArray:
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
