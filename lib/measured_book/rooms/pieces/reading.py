"""The number of the chapter on pieces that no expression says."""

from __future__ import annotations

from measured_book.measuring import number
from measured_book.rooms.pieces.measure import HELD_OUT, no_attention_floor


@number
def bound(*, task: str) -> float:
    """The best loss on a task without attention, in nats."""
    return no_attention_floor(HELD_OUT[task])
