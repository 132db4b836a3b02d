"""Walks that were made before, kept in a folder: many processes read the same sources, and one of them walks.

A walk is kept for the sources as they are, all of them: the bytes of each module of the project's packages
count, so that after any change nothing kept is found. What reaches other modules is not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from measured_transformer.provenance.modules import PACKAGES, file_of, is_looking_elsewhere

Stamp = tuple[int, int]
"""When a file was changed, in nanoseconds, and its bytes."""


@dataclass(frozen=True)
class _Sources:
    """All sources as they were when this process first asked.

    Attributes:
        name: the digest of their bytes, their folder and the interpreter.
        stamps: of each file.
    """

    name: str
    stamps: dict[str, Stamp]


_folder: Path | None = None


def keep_walks(folder: Path | None) -> None:
    """Keep walks in a folder from now on, and look for them there; None: no longer.

    Args:
        folder: made when something is kept; it can be removed at any time.
    """
    global _folder
    _folder = folder


def stamp_of(path: Path) -> Stamp:
    """The stamp of a file."""
    at = path.stat()
    return at.st_mtime_ns, at.st_size


def kept(key: str, entries: Iterable[str]) -> dict[str, Any] | None:
    """What is kept under a key, if the files of its modules are still those that were read; else None.

    Args:
        key: as for `keep`.
        entries: what it must have beside ``modules``; a file that lacks one is damaged, and as if not there.
    """
    place = _place(key)
    if place is None:
        return None
    try:
        found: dict[str, Any] = json.loads(place.read_text("utf-8"))
        whole = all(name in found for name in entries) and bool(found["modules"])
        return found if whole and _unchanged(found["modules"]) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def keep(key: str, value: dict[str, Any]) -> None:
    """Keep a value under a key; its entry ``modules`` names the modules that it was read from.

    Nothing is kept where one of them is no module of the project, or has changed, or where nothing can be
    written.
    """
    place = _place(key)
    if place is None or not _unchanged(value["modules"]):
        return
    with suppress(OSError):
        if not place.parent.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            _clear(place.parent)
        handle, name = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(name, place)  # whole or not at all: others may be reading


def _clear(but: Path, others: int = 4) -> None:
    """Remove what is kept for earlier sources, except that of a few that were used last."""
    folders = [one for one in but.parent.iterdir() if one.is_dir() and one != but]
    for one in sorted(folders, key=lambda path: -path.stat().st_mtime)[others:]:
        shutil.rmtree(one, ignore_errors=True)


def _place(key: str) -> Path | None:
    if _folder is None or is_looking_elsewhere():
        return None
    return _folder / _sources().name / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"


def _unchanged(modules: Iterable[str]) -> bool:
    known = _sources().stamps
    paths = [file_of(module) for module in modules]
    return all(path is not None and known.get(str(path)) == stamp_of(path) for path in paths)


@cache
def _sources() -> _Sources:
    told, stamps = hashlib.sha256(), {}
    here = Path(__file__).parents[2]
    told.update(json.dumps([sys.version, sys.prefix, str(here)]).encode())
    for package in PACKAGES:
        root = file_of(package)
        for path in sorted(root.parent.rglob("*.py")) if root is not None else ():
            stamps[str(path)] = stamp_of(path)
            told.update(f"\0{path}\0".encode() + path.read_bytes())
    return _Sources(told.hexdigest()[:24], stamps)
