"""A judged room: its results as pages show them, its claims, and its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from measured_book.evidence.expressions import Scope
from measured_book.evidence.results import Result
from measured_book.measuring.measurement import Reading
from measured_book.measuring.state import VALID


@dataclass(frozen=True)
class Shown:
    """A result as pages show it: the result, its dataset, and whether it is valid.

    Attributes:
        name: of the measurement.
        what: what was measured, in one line.
        state, why: see `state.Status`.
        result: None where it is missing or damaged.
    """

    name: str
    what: str
    state: str
    why: str
    result: Result | None

    @property
    def holds(self) -> bool:
        """True if the page shows it without a mark."""
        return self.state in VALID

    @property
    def dataset(self) -> Any:
        """The values as an `xarray.Dataset`.

        Raises:
            ValueError: the result is missing or damaged; the message says which.
        """
        if self.result is None:
            raise ValueError(self.why)
        return self.result.dataset

    @property
    def seeds(self) -> list[int]:
        """The seeds; none where the result is missing."""
        return [] if self.result is None else self.result.seeds

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where and when it was measured."""
        return {} if self.result is None else self.result.provenance

    @property
    def path(self) -> Any:
        """Its file."""
        return None if self.result is None else self.result.path


@dataclass(frozen=True)
class Judged:
    """A room's claims and numbers, as its results give them now.

    Attributes:
        room: the room.
        records: claim -> its record: rule, values, statistics and verdict, after Holm's correction over the
        chapter. values: the numbers that the prose names.
        results: all measurements of the room, also those whose results do not hold.
        reads: claim or number -> the measurements it stands on.
        problems: claim or number -> why it could not be judged, in one sentence.
        asked: numbers that take arguments from the prose, by name, with the datasets that they read.
        scope: what expressions of the room may name.
    """

    room: str
    records: Mapping[str, Any]
    values: Mapping[str, Any]
    results: Mapping[str, Shown]
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, tuple[Reading, Mapping[str, Any]]] = field(default_factory=dict)
    scope: Scope = field(default_factory=lambda: Scope({}))
