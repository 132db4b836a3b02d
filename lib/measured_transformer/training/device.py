"""The device is found, not configured; on a CPU the number of threads is fixed: rounding hangs on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def find_device() -> torch.device:
    """The accelerator when there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def cpu_threads(number: int | None) -> Iterator[None]:
    """Run the block with this many threads inside PyTorch's operations; None leaves their number alone.

    Sums that are split among threads round differently, so that the last bits of a result depend on it.

    Raises:
        ValueError: when the number is not a positive whole number or None.
    """
    if number is not None and (
        isinstance(number, bool) or not isinstance(number, int) or number < 1
    ):
        raise ValueError(f"threads must be a positive whole number or None, got {number!r}")
    before = torch.get_num_threads()
    try:
        if number is not None:
            torch.set_num_threads(number)
        yield
    finally:
        torch.set_num_threads(before)
