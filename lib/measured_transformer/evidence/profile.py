"""How large the measurements of this run are, and from which seeds.

Two environment variables decide, so that a chapter never has to:

- ``MEASURED_PROFILE``: ``quick`` (the default: small models, few seeds, any laptop) or ``full``.
- ``MEASURED_SEED_OFFSET``: a whole number, 0 by default. Another number gives another set of seeds;
  sets are wholly apart when the offsets differ by at least the number of seeds asked for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

PROFILES = ("quick", "full")
STREAMS = ("evaluation", "tuning")
LARGEST_OFFSET = 100_000_000
_STRIDE = 10


@dataclass(frozen=True)
class Profile:
    """The profile and seed offset of a run.

    Attributes:
        name: `quick` or `full`.
        seed_offset: what `MEASURED_SEED_OFFSET` says.

    Raises:
        ValueError: another name, or an offset below zero or above one hundred million.
    """

    name: str = "quick"
    seed_offset: int = 0

    def __post_init__(self) -> None:
        if self.name not in PROFILES:
            raise ValueError(
                f"expected profile 'quick' or 'full', got {self.name!r}; "
                "set MEASURED_PROFILE to one of them, or unset it for quick"
            )
        if not 0 <= self.seed_offset <= LARGEST_OFFSET:
            raise ValueError(
                f"expected a seed offset from 0 to {LARGEST_OFFSET}, got {self.seed_offset}; "
                "set MEASURED_SEED_OFFSET to such a whole number, or unset it for 0"
            )

    @property
    def is_full(self) -> bool:
        """Whether this is the large profile."""
        return self.name == "full"

    def choose(self, *, quick: T, full: T) -> T:
        """Return the one of two settings that belongs to this profile."""
        return full if self.is_full else quick

    def seeds(self, *, quick: int = 5, full: int = 10, stream: str = "evaluation") -> list[int]:
        """Return this profile's seeds: ``quick`` or ``full`` many.

        The last digit of a seed names its stream (0 evaluation, 1 tuning), and the offset moves the
        other digits. So no seed used for tuning is ever used for evaluation, at any offset, and the
        seeds of a smaller count are the first ones of a larger count.

        Raises:
            ValueError: an unknown stream, or a count below one.
        """
        if stream not in STREAMS:
            raise ValueError(f"expected stream {' or '.join(map(repr, STREAMS))}, got {stream!r}")
        count = self.choose(quick=quick, full=full)
        if count < 1:
            raise ValueError(f"expected at least one seed for profile {self.name}, got {count}")
        index = STREAMS.index(stream)
        return [_STRIDE * (self.seed_offset + i) + index for i in range(count)]


def profile() -> Profile:
    """Read the profile from the environment. An unset or empty variable means its default.

    Raises:
        ValueError: a profile other than quick and full, or an offset that is no whole number from
            0 to one hundred million.
    """
    name = os.environ.get("MEASURED_PROFILE", "").strip() or "quick"
    offset = os.environ.get("MEASURED_SEED_OFFSET", "").strip() or "0"
    try:
        seed_offset = int(offset)
    except ValueError:
        raise ValueError(
            f"expected a whole number such as 1000 in MEASURED_SEED_OFFSET, got {offset!r}; "
            "unset it for 0"
        ) from None
    return Profile(name, seed_offset)
