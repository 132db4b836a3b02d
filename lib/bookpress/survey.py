"""Where each chapter stands: executed as it is now, or stale, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from myst_nb.core.read import MystMetadataParsingError
from nbformat import NotebookNode

from bookpress import chapters, fingerprint, kept, records
from bookpress.cache import Cache, Entry
from bookpress.chapters import Book, Chapter
from bookpress.fingerprint import Stamp
from bookpress.jobs import details_of
from bookpress.progress import warn


@dataclass(frozen=True)
class State:
    """Where one chapter stands: executed as it is now (`entry`), or stale for a `reason`."""

    chapter: Chapter
    entry: Entry | None
    reason: str = ""
    broken: bool = False


def survey(book: Book, store: Cache) -> list[State]:
    """Tell for each chapter whether it is up to date, and if not, why."""
    return [state_of(book.root, store, chapter) for chapter in book.chapters]


def state_of(root: Path, store: Cache, chapter: Chapter, *, force: bool = False) -> State:
    """Tell whether a chapter is up to date, perhaps by the outputs that the repository keeps of it.

    With `force` it never is.
    """
    try:
        stamp = fingerprint.stamp(root, chapter.path)
        notebook = chapters.notebook(chapter, stamp.digest)
    except (ValueError, MystMetadataParsingError) as error:
        return State(chapter, None, str(error), broken=True)
    if force:
        return State(chapter, None, "asked for")
    entry = store.find(notebook, chapter.source) or _restored(root, store, chapter, stamp, notebook)
    return State(chapter, entry, "" if entry else _reason(root, store, chapter, stamp.parts))


def restore_records(root: Path, states: list[State]) -> None:
    """Write the records of chapters that are up to date where they are missing or another run's."""
    for state in states:
        if state.entry and not records.is_current(root, state.chapter, state.entry):
            records.save(root, state.chapter, state.entry)


def _restored(
    root: Path, store: Cache, chapter: Chapter, stamp: Stamp, notebook: NotebookNode
) -> Entry | None:
    """Take what the repository keeps of a chapter into the cache, where it is of the chapter as it is."""
    if chapter.room is not None:
        return None
    path = kept.path_of(root, chapter)
    head = kept.head(path)
    if head is not None and not head.fits(notebook):
        return None
    try:
        whole = kept.read(path)
    except FileNotFoundError:
        return None
    except kept.DamagedError as error:
        warn(f"{error}; {chapter.source} will be executed, and python -m bookpress keep mends it")
        return None
    details = details_of(stamp, whole.told["machine"]) | {"kept": True}
    return store.add(whole.fill(notebook), chapter.source, whole.seconds, details)


def _reason(root: Path, store: Cache, chapter: Chapter, parts: dict[str, str]) -> str:
    """Say what changed since the chapter's newest run."""
    before = (store.latest(chapter.source) or {}).get("parts")
    if before is None:
        there = chapter.room is None and kept.path_of(root, chapter).exists()
        return "it is not what its kept outputs were made with" if there else "never executed"
    changed = [name for name in sorted(parts | before) if parts.get(name) != before.get(name)]
    changed = [name for name in changed if not name.startswith("<")]
    if not changed:
        return "its cells changed"
    shown = ", ".join(changed[:3])
    return f"changed: {shown}" + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
