"""Print what the table of tuned rates is asked by all rooms, a digest a line; nothing is trained.

A program of its own: with type checks at every call, which the tests have, it takes a minute and a half.
"""

from __future__ import annotations

from typing import Any

from measured_book.evidence.seeds import seeds_of
from measured_book.measuring.jobs import wanted_searches
from measured_book.measuring.measurement import measurements_of, rooms
from measured_book.rooms.allocation import measure as allocation
from measured_transformer.provenance import unchanging
from measured_transformer.tasks.corpora import missing_files
from measured_transformer.training import tuning


class RecordedError(Exception):
    """Ends what would train where the table has no answer."""


def asked_by_searches() -> set[str]:
    """What the searches of all measurements ask."""
    asked: set[str] = set()
    find = tuning.find_lines

    def record(question: str, tables: Any) -> Any:
        asked.add(question)
        return find(question, tables)

    tuning.find_lines = record
    with unchanging(), wanted_searches():
        for one in (m for room in rooms() for m in measurements_of(room).values()):
            (first, *_) = seeds_of(one.seeds)
            try:
                one.jobs(first, **one.settings())
            except OSError:
                if not missing_files(
                    one.corpora
                ):  # else it ended where it reads, behind its search
                    raise
    return asked


def asked_by_allocation() -> set[str]:
    """What the room asks that trains with a loop of its own."""
    asked: set[str] = set()

    def record(question: str, _tables: object) -> None:
        asked.add(question)
        raise RecordedError

    tuning.find_lines = record
    for arm in allocation.ARMS:
        try:
            allocation.tried_rates(arm)
        except RecordedError:
            continue
    return asked


if __name__ == "__main__":
    print("\n".join(sorted(asked_by_searches() | asked_by_allocation())))
