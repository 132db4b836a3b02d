"""A number of the chapter on shared projections that no expression says: what is within reach of one side."""

from __future__ import annotations

from measured_book.measuring import number
from measured_book.rooms.projections.measure import BACKWARDS, one_side_accuracy


@number
def predicted() -> float:
    """Best accuracy of a reader of the most attended token under a shared projection."""
    return one_side_accuracy(BACKWARDS.vocab)
