"""The number of the chapter *Inside a published sentence model* that no expression says."""

from __future__ import annotations

from xarray import Dataset

from measured_book.measuring import number


@number
def smallest_step(stream: Dataset, *, arm: str) -> float:
    """The smallest alignment between the states before and after one of the first five blocks."""
    alike = stream.alike.sel(arm=arm).mean("seed")
    return min(float(alike.sel(state=i, other=i + 1)) for i in range(5))
