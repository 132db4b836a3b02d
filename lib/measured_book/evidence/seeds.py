"""The seeds of measurements: for evaluation, for tuning, and alternative sets of both.

The variable ``MEASURED_SEED_OFFSET`` names a set: a whole number, 0 by default. Sets are wholly apart when
their numbers differ by at least the number of seeds asked for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

LARGEST_OFFSET = 100_000_000


def seed_offset() -> int:
    """Return the seed offset that the environment sets; 0 when `MEASURED_SEED_OFFSET` is not set.

    Raises:
        ValueError: no whole number from 0 to one hundred million.
    """
    return _profile().seed_offset


def seeds_of(count: int, stream: str = "evaluation", offset: int | None = None) -> list[int]:
    """Return the first seeds of a stream; evaluation and tuning seeds never overlap.

    The last digit of a seed names its stream (0 evaluation, 1 tuning), and the offset moves the other digits.
    So no seed used for tuning is ever used for evaluation, at any offset, and the seeds of a smaller count are
    the first ones of a larger count.

    Args:
        count: how many.
        stream: 'evaluation' or 'tuning'.
        offset: which set of seeds; that of `MEASURED_SEED_OFFSET` when not given.

    Raises:
        ValueError: an unknown stream, a count below one, or an offset out of range.
    """
    chosen = _profile().seed_offset if offset is None else offset
    return _Profile("full", chosen).seeds(quick=count, full=count, stream=stream)


# Every kept result carries a digest of what stands below. It once chose between two sizes of each measurement;
# nobody asks for that now, but without it all results would have to be attested anew. Whoever changes anything
# here for another reason may cut it down to the offset and the streams.

_PROFILES = ("quick", "full")
_STREAMS = ("evaluation", "tuning")
_STRIDE = 10


@dataclass(frozen=True)
class _Profile:
    """A set of seeds with an arbitrary name."""

    name: str = "quick"
    seed_offset: int = 0

    def __post_init__(self) -> None:
        if self.name not in _PROFILES:
            raise ValueError(f"expected no MEASURED_PROFILE, got {self.name!r}; unset it")
        if not 0 <= self.seed_offset <= LARGEST_OFFSET:
            raise ValueError(
                f"expected a seed offset from 0 to {LARGEST_OFFSET}, got {self.seed_offset}; "
                "set MEASURED_SEED_OFFSET to such a whole number, or unset it for 0"
            )

    @property
    def is_full(self) -> bool:
        return self.name == "full"

    def choose(self, *, quick: T, full: T) -> T:
        return full if self.is_full else quick

    def seeds(self, *, quick: int = 5, full: int = 10, stream: str = "evaluation") -> list[int]:
        if stream not in _STREAMS:
            raise ValueError(f"expected stream {' or '.join(map(repr, _STREAMS))}, got {stream!r}")
        count = self.choose(quick=quick, full=full)
        if count < 1:
            raise ValueError(f"expected at least one seed, got {count}")
        index = _STREAMS.index(stream)
        return [_STRIDE * (self.seed_offset + i) + index for i in range(count)]


def _profile() -> _Profile:
    name = os.environ.get("MEASURED_PROFILE", "").strip() or "quick"
    offset = os.environ.get("MEASURED_SEED_OFFSET", "").strip() or "0"
    try:
        seed_offset = int(offset)
    except ValueError:
        raise ValueError(
            f"expected a whole number such as 1000 in MEASURED_SEED_OFFSET, got {offset!r}; "
            "unset it for 0"
        ) from None
    return _Profile(name, seed_offset)
