"""How the results of the chapter on mixtures of experts are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.mixture_of_experts.measure import FAST_RATES

# Numbers that the prose names ---------------------------------------------------------------------


@number
def difference(bought: Dataset, *, arm: str, other: str) -> DataArray:
    """Loss of an arm minus that of another one from the same seed, in nats."""
    return bought.loss.sel(arm=arm) - bought.loss.sel(arm=other)


@number
def busier(loads: Dataset, *, arm: str, other: str) -> DataArray:
    """Load of the busiest expert of an arm minus that of another, in even shares."""
    return loads.busiest.sel(arm=arm) - loads.busiest.sel(arm=other)


@number
def by_skill(loads: Dataset, *, arm: str, other: str) -> DataArray:
    """How much more of the choice the skill explains in one arm than in another."""
    return loads.skill.sel(arm=arm) - loads.skill.sel(arm=other)


@number
def collapsed(hurried: Dataset) -> DataArray:
    """Load of the busiest expert without a balancing loss minus that with one, at the largest rate."""
    busiest = hurried.busiest.sel(rate=FAST_RATES[-1])
    return busiest.sel(arm="none") - busiest.sel(arm="one")
