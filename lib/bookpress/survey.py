"""Where each chapter stands: executed as it is now, or stale, and why."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from myst_nb.core.read import MystMetadataParsingError

from bookpress import cache, chapters, fingerprint
from bookpress.cache import Cache, Entry
from bookpress.chapters import Book, Chapter
from bookpress.fingerprint import Stamp
from bookpress.memo import memo_of


@dataclass(frozen=True)
class State:
    """Where one chapter stands: executed as it is now (`entry`), or stale for a `reason`."""

    chapter: Chapter
    entry: Entry | None
    reason: str = ""
    broken: bool = False


def survey(book: Book, store: Cache) -> list[State]:
    """Tell for each chapter whether it is up to date, and if not, why."""
    states = [state_of(book.root, store, chapter) for chapter in book.chapters]
    memo_of(book.root).save()
    return states


def state_of(root: Path, store: Cache, chapter: Chapter, *, force: bool = False) -> State:
    """Tell whether a chapter is up to date; with `force` it never is."""
    try:
        stamp = fingerprint.stamp(root, chapter.path)
        key = _key(root, chapter, stamp)
    except (ValueError, MystMetadataParsingError) as error:
        return State(chapter, None, str(error), broken=True)
    if force:
        return State(chapter, None, "asked for")
    entry = store.find(key, chapter.source)
    return State(chapter, entry, "" if entry else _reason(store, chapter, stamp.parts))


def _key(root: Path, chapter: Chapter, stamp: Stamp) -> str:
    """The key under which jupyter-cache files the executed chapter, as it is now."""
    text = chapter.path.read_text("utf-8")
    find = functools.partial(chapters.notebook, chapter, stamp.digest)
    return memo_of(root).key(chapter.path, text, stamp.digest, lambda: cache.key_of(find()))


def _reason(store: Cache, chapter: Chapter, parts: dict[str, str]) -> str:
    """Say what changed since the chapter's newest run."""
    before = (store.latest(chapter.source) or {}).get("parts")
    if before is None:
        return "never executed"
    changed = [name for name in sorted(parts | before) if parts.get(name) != before.get(name)]
    changed = [name for name in changed if not name.startswith("<")]
    if not changed:
        return "its cells changed"
    shown = ", ".join(changed[:3])
    return f"changed: {shown}" + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
