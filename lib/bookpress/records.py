"""What chapters measured, written beside the executed notebooks: `_build/records/<profile>/`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from measured_transformer.evidence.records import payloads, read_records, write_records
from measured_transformer.training.tuned_table import add_lines, lines_of

from bookpress.cache import Entry
from bookpress.chapters import Book, Chapter

FOLDER = "_build/records"
COMMITTED = "lib/measured_transformer/chapters/{room}/results/legacy-{profile}.json"
TUNED = "_build/tuned.jsonl"
PACKAGED = "lib/measured_transformer/training/tuned.jsonl"

__all__ = [
    "all_committed",
    "committed",
    "committed_seconds",
    "is_current",
    "path_of",
    "payloads",
    "publish",
    "save",
]


def path_of(root: Path, chapter: Chapter, profile: str) -> Path:
    """Where the records of a chapter lie."""
    return root / FOLDER / profile / f"{chapter.path.stem}.json"


def committed(root: Path, name: str, profile: str) -> Path:
    """Where the committed records of a chapter lie, in its room of the library."""
    return root / COMMITTED.format(room=name.replace("-", "_"), profile=profile)


def all_committed(root: Path, profile: str) -> list[Path]:
    """The committed records of all chapters."""
    return sorted(root.glob(COMMITTED.format(room="*", profile=profile)))


def is_current(root: Path, chapter: Chapter, entry: Entry) -> bool:
    """Tell whether the records on disk are those of this executed notebook."""
    path = path_of(root, chapter, entry.details["profile"])
    try:
        return bool(read_records(path).get("notebook") == entry.identity)
    except (FileNotFoundError, ValueError):
        return False


def committed_seconds(root: Path, chapter: Chapter, profile: str) -> float | None:
    """How long a chapter ran when its records were committed; None where that is not known."""
    try:
        found = read_records(committed(root, chapter.path.stem, profile)).get("seconds")
    except (FileNotFoundError, ValueError):
        return None
    return float(found) if isinstance(found, int | float) else None


def save(root: Path, chapter: Chapter, entry: Entry) -> Path:
    """Write what an executed notebook measured, whole or not at all; returns the file."""
    details = entry.details
    path = path_of(root, chapter, details["profile"])
    notebook = entry.notebook()
    found = payloads(notebook)
    head = {
        "chapter": chapter.docname,
        "stamp": details["stamp"],
        "parts": details["parts"],
        "notebook": entry.identity,
        "profile": details["profile"],
        "seed_offset": details["seed_offset"],
        "seconds": round(entry.seconds, 1),
    }
    write_records(path, head | found)
    return path


def publish(book: Book, profile: str) -> Iterator[Path]:
    """Copy the records of a profile into the chapters' rooms, to be committed with them.

    Chapters whose page reads results have none: what they measured lies in their room already.
    Records of chapters that the book no longer has, or that read results now, leave their rooms.
    The learning rates that chapters chose go into the library, so that a later run, also of a
    downloaded notebook, need not choose again.

    Raises ValueError when a chapter has no records, naming it.
    """
    chapters = [chapter for chapter in book.chapters if chapter.room is None]
    missing = [c.source for c in chapters if not path_of(book.root, c, profile).is_file()]
    if missing:
        raise ValueError(
            f"expected {profile} records of every chapter, got none for {', '.join(missing)}: "
            f"run them with MEASURED_PROFILE={profile} python -m bookpress execute"
        )
    kept = set()
    for chapter in chapters:
        target = committed(book.root, chapter.path.stem, profile)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path_of(book.root, chapter, profile), target)
        kept.add(target)
        yield target
    for path in all_committed(book.root, profile):
        if path not in kept:
            path.unlink()
    chosen = lines_of(book.root / TUNED)
    if chosen:
        add_lines(chosen, book.root / PACKAGED)
        yield book.root / PACKAGED
