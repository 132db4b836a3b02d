"""The table of tuned learning rates, packaged with the library: one line for each arm of a comparison.

A line says what was asked for and with which code (as digests), the loss of every rate and seed, and the best
rate. A book's own choices lie in `_build/tuned.jsonl`; measuring takes its own into the library's table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from measured_transformer.training.folders import build_folder, write_whole

PACKAGED = Path(__file__).parent / "tuned.jsonl"
Line = dict[str, Any]


def build_table() -> Path | None:
    """The table of the book around the working directory; None outside a book."""
    build = build_folder()
    return None if build is None else build / "tuned.jsonl"


def lines_of(table: Path) -> list[Line]:
    """The lines of a table; lines that are not JSON, such as a partial line, are skipped."""
    try:
        at = table.stat()
    except OSError:
        return []
    return _lines(table, at.st_mtime_ns, at.st_size)


@lru_cache(maxsize=8)
def _lines(table: Path, _mtime: int, _size: int) -> list[Line]:
    found = []
    for text in table.read_text("utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and {"asked", "code", "losses"} <= set(line):
            found.append(line)
    return found


def find_lines(asked: str, tables: Iterable[Path | None]) -> list[Line]:
    """All lines that answer a question, for any code, in the order of the tables."""
    named = [table for table in tables if table is not None]
    return [line for table in named for line in lines_of(table) if line["asked"] == asked]


def add_lines(new: Iterable[Line], table: Path) -> None:
    """Add lines to a table, replacing those on the same question; other lines stay.

    The table is written in one piece; two processes that add at once wait for one another.

    Raises:
        OSError: the folder cannot be written to; the table is as it was.
    """
    table.parent.mkdir(parents=True, exist_ok=True)
    build = build_folder()
    lock = nullcontext() if build is None else FileLock(build / f"{table.parent.name}-tuned.lock")
    if build is not None:
        build.mkdir(parents=True, exist_ok=True)
    with lock:
        known = {(line["name"], line["asked"]): line for line in _unread(table)}
        known |= {(line["name"], line["asked"]): line for line in new}
        texts = [json.dumps(known[key], sort_keys=True) for key in sorted(known)]
        write_whole(table, "\n".join(texts) + "\n")


def _unread(table: Path) -> list[Line]:
    _lines.cache_clear()
    return lines_of(table)


def losses_of(line: Mapping[str, Any]) -> dict[str, dict[float, list[float]]]:
    """The losses of a line: arm -> rate -> one a seed; infinite for a training that diverged."""
    return {
        arm: {rate: [float("inf") if x is None else x for x in each] for rate, each in rows}
        for arm, rows in line["losses"].items()
    }
