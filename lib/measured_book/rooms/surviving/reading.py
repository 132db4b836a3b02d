"""Numbers of the chapter on the fate of positions that no expression says: its hand examples."""

from __future__ import annotations

from measured_book.measuring import number
from measured_book.rooms.surviving.measure import NETWORKS, diluted_r2, kept


@number
def reader(*, times: float) -> float:
    """R2 of a reader of positions where the rest is so many times as large as the position."""
    return diluted_r2(times)


@number
def left(*, variance: float, placement: str) -> float:
    """Share of the positions left after 24 sums with writes of a variance, in post-norm with norms."""
    return kept(variance, sublayers=24, norms=placement == "post-norm")


@number
def blind(*, network: str) -> float:
    """The accuracy of a network on its task without knowing positions."""
    return NETWORKS[network][1].blind_accuracy()
