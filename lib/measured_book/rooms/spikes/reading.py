"""What no expression says of the results of the chapter on loss spikes."""

from __future__ import annotations

from xarray import Dataset

from measured_book.measuring import number
from measured_book.rooms.spikes.measure import BETA, NEAR


@number
def chance(betas: Dataset) -> float:
    """The probability that a spike falls into so many steps by chance, at the rate of spikes of this model."""
    here = betas.sel(beta=BETA)
    rate = float(here.spikes.sum()) / float(here.ready.sum())
    return float(1 - (1 - rate) ** (2 * NEAR + 1))


@number
def came_again(rewound: Dataset, *, arm: str) -> int:
    """How many spikes came again in an arm."""
    return int(rewound.again.sel(arm=arm).sum())
