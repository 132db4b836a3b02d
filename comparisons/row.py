"""One line of the comparison."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

EQUAL = 1e-6
"""How far two values may lie apart, as a share of the largest, to count as equal.

All models are float64, but Captum takes the points of a quadrature, and some of its sums, in float32.
"""


@dataclass(frozen=True)
class Row:
    """One quantity, computed twice from the same weights and tokens.

    Attributes:
        peer: whose it is compared with.
        model: on which weights.
        quantity: what is computed.
        ours, theirs: by which functions.
        same: whether both are defined as the same quantity.
        difference: the largest difference of two entries, divided by the largest entry of theirs.
        after: where they are defined otherwise, what is left of the difference once that is undone.
        why: where they are defined otherwise, how.
    """

    peer: str
    model: str
    quantity: str
    ours: str
    theirs: str
    same: bool
    difference: float
    after: float | None = None
    why: str = ""

    @property
    def holds(self) -> bool:
        """Whether what ought to be equal is."""
        left = self.difference if self.same else self.after
        return left is not None and left < EQUAL

    def told(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "holds": self.holds}


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference of two entries, as a share of the largest entry of theirs.

    Raises:
        ValueError: when they differ in shape, or theirs is zero throughout, so that nothing is compared.
    """
    ours, theirs = ours.detach().double(), theirs.detach().double()
    if ours.shape != theirs.shape:
        raise ValueError(f"ours has shape {tuple(ours.shape)}, theirs {tuple(theirs.shape)}")
    size = float(theirs.abs().max())
    if size == 0:
        raise ValueError("theirs is zero throughout: nothing is compared")
    return float((ours - theirs).abs().max()) / size
