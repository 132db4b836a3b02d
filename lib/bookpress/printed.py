"""Knowing that the printed book is what would be printed now, without starting Sphinx.

After a strict print that succeeded, a note beside the pages says what they were made of (a hash of the book's
files, its library's, the packages and the settings), which executed chapters they show, and what was left: size
and time of each file. Where all that is as it was, there is nothing to print.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measured_book.evidence.seeds import seed_offset

from bookpress.disk import write
from bookpress.edition import COMMIT, EDITION

PAGES = "_build/html"
NOTE = "_build/printed.json"
PRINTING = "_build/printing"
"""Is there while pages are printed, and stays where that was cut short."""
_READ = "_build/.doctrees/environment.pickle"
_BUILT = ("_build/.jupyter_cache", "_build/measuring")
"""What was built and is shown: executed chapters, and which results do not hold."""
_NO_SOURCES = {"_build", "tests", "benchmarks", "tools", "dist", "build", "node_modules"}


def is_current(root: Path) -> bool:
    """Return whether the pages are those of the book as it is now, and all there, untouched."""
    note = _note(root)
    return (
        note.get("pages") == pages(root)
        and note.get("built") == built(root)
        and note.get("sources") == sources(root)
    )


def remember(root: Path, before: str) -> None:
    """Write down that the pages were printed of the book as it is now.

    Args:
        root: the book's root folder.
        before: its `sources` before the print; where they changed meanwhile, nothing is written down.
    """
    if sources(root) != before:
        return
    note = {"sources": before, "built": built(root), "pages": pages(root)}
    write(root / NOTE, json.dumps(note | {"read": _stamp(root / _READ)}))


def mend(root: Path) -> list[str]:
    """Make Sphinx print again what was altered or deleted since it printed; returns the files.

    Sphinx prints a page whose file is missing, and writes everything else when it reads all pages anew. What
    a print by other means than the press has left is not looked at: nobody can tell what is altered in it.
    After a print that was cut short, any page may be an old one or half of one, so all are read anew.
    """
    if is_cut_short(root):
        (root / _READ).unlink(missing_ok=True)
        return []
    note, now = _note(root), pages(root)
    if note.get("read") != _stamp(root / _READ):
        return []
    altered = sorted(name for name, stamp in note["pages"].items() if now.get(name) != stamp)
    for name in altered:
        (root / PAGES / name).unlink(missing_ok=True)
    if any(not name.endswith(".html") for name in altered):
        (root / _READ).unlink(missing_ok=True)
    return altered


def is_cut_short(root: Path) -> bool:
    """Return whether the last print was killed or ended in an error, with what Sphinx had read still there."""
    return (root / PRINTING).exists() and (root / _READ).exists()


def begin(root: Path) -> None:
    """Have a print that begins now count as cut short until `end` is called."""
    (root / PRINTING).write_text("", "utf-8")


def end(root: Path) -> None:
    """Say that the print which began has come to its end."""
    (root / PRINTING).unlink(missing_ok=True)


def sources(root: Path) -> str:
    """A hash of what the pages are made of, but for executed chapters."""
    told = hashlib.sha256()
    for path in _files(root):
        told.update(f"{path.relative_to(root)}\0".encode())
        told.update(hashlib.sha256(path.read_bytes()).digest())
    packages = Path(sysconfig.get_path("purelib")).glob("*.dist-info")
    told.update("\0".join(sorted(path.name for path in packages)).encode())
    named = [os.environ.get(EDITION, ""), os.environ.get(COMMIT, "")]
    told.update(json.dumps([sys.version, seed_offset(), *named]).encode())
    return told.hexdigest()


def built(root: Path) -> dict[str, dict[str, list[int]]]:
    """Size and time of each file of executed chapters."""
    return {folder: _stamps(root / folder) for folder in _BUILT}


def pages(root: Path) -> dict[str, list[int]]:
    """Size and time of each printed file."""
    return _stamps(root / PAGES)


def _files(root: Path) -> Iterator[Path]:
    for entry in sorted(root.iterdir()):
        if entry.name.startswith(".") or entry.name in _NO_SOURCES:
            continue
        if entry.is_file():
            yield entry
        elif not (entry / "pyvenv.cfg").exists():
            yield from (path for path in sorted(entry.rglob("*")) if _counts(path))


def _counts(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc"


def _stamps(folder: Path) -> dict[str, list[int]]:
    return {
        path.relative_to(folder).as_posix(): _stamp(path)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".db"
    }


def _stamp(path: Path) -> list[int]:
    if not path.is_file():
        return []
    at = path.stat()
    return [at.st_size, at.st_mtime_ns]


def _note(root: Path) -> dict[str, Any]:
    try:
        note = json.loads((root / NOTE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
