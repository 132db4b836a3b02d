"""Numbers of the chapter on layer norm that no expression says: times of a committed benchmark."""

from __future__ import annotations

import numpy as np

from measured_book.measuring import number
from measured_book.rooms.layer_norm.measure import NORMS, clocked


def time_ratio(end: str) -> float:
    """Time of RMSNorm over that of LayerNorm, medians over the rounds; `end` as in `clocked`."""
    rms, layer = (np.median(clocked(f"{name}{end}")) for name in NORMS[::-1])
    return float(rms / layer)


@number
def kernel_ratio() -> float:
    """Time of RMSNorm over that of LayerNorm, as PyTorch's functions, forward and backward."""
    return time_ratio("")


@number
def written_out_ratio() -> float:
    """The same with both formulas in single operations."""
    return time_ratio(", written out")


@number
def rounds() -> int:
    """Rounds of the benchmark that the times are medians of."""
    return int(clocked("LayerNorm").size)
