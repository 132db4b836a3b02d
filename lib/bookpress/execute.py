"""Executing what is stale: find it, run it side by side, keep each chapter the moment it passed."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from measured_transformer.evidence.profile import profile
from myst_nb.core.read import MystMetadataParsingError

from bookpress import chapters, fingerprint, records
from bookpress.cache import Cache, Entry
from bookpress.chapters import Book, Chapter
from bookpress.jobs import ChapterFailedError, Job, open_cache, prepare
from bookpress.kernel import Cells, Failure, Run, has_cuda, kernel_environment
from bookpress.kernel_server import Shared, environment
from bookpress.progress import Progress

INTERRUPTED = 130


@dataclass(frozen=True)
class State:
    """Where one chapter stands: executed as it is now (`entry`), or stale for a `reason`."""

    chapter: Chapter
    entry: Entry | None
    reason: str = ""
    broken: bool = False


@dataclass
class Result:
    """What `execute` did; `passed` and `failed` name chapters by their source file."""

    ran: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def status(self) -> int:
        """The exit status that says it."""
        return INTERRUPTED if self.interrupted else int(bool(self.failed))


def survey(book: Book, store: Cache, *, force: bool = False) -> list[State]:
    """Tell for each chapter whether it is up to date, and if not, why."""
    return [_state(book, store, chapter, force) for chapter in book.chapters]


def _state(book: Book, store: Cache, chapter: Chapter, force: bool) -> State:
    try:
        stamp = fingerprint.stamp(book.root, chapter.path)
        notebook = chapters.notebook(chapter, stamp.digest)
    except (ValueError, MystMetadataParsingError) as error:
        return State(chapter, None, str(error), broken=True)
    entry = None if force else store.find(notebook, chapter.source)
    reason = "" if entry else "asked for" if force else _reason(store, chapter, stamp.parts)
    return State(chapter, entry, reason)


def execute(
    root: Path, *, jobs: int | None = None, force: bool = False, only: list[Path] | None = None
) -> Result:
    """Run the chapters that are stale and keep each one that passes.

    Args:
        root: the book's root folder.
        jobs: how many chapters run side by side; two on a CPU, one on a GPU where it is None.
        force: run every chapter, also those that are up to date.
        only: the chapters' files to look at; all where it is None.

    Chapters that are up to date have their records written again where these are missing or belong
    to another run.  A chapter that fails leaves what an earlier run of it left.
    """
    book = _restricted(chapters.load_book(root), only)
    kernels = Shared(lambda: kernel_environment(book.root), has_cuda)
    try:
        return _execute(book, kernels, jobs, force)
    finally:
        kernels.close()


def _execute(book: Book, kernels: Shared, jobs: int | None, force: bool) -> Result:
    store, states = open_cache(book.root), []
    for chapter in book.chapters:
        states.append(_state(book, store, chapter, force))
        if states[-1].entry is None:
            kernels.expect()
    stale = [state for state in states if state.entry is None]
    restore_records(book.root, states)
    progress = Progress(len(stale))
    progress.plan(((s.chapter.source, s.reason) for s in stale), len(states) - len(stale))
    result = Result()
    try:
        for state in (s for s in stale if s.broken):
            progress.failed(Failure(state.chapter.source, state.reason))
            result.failed.append(state.chapter.source)
        runnable = [state.chapter for state in stale if not state.broken]
        if runnable:
            ordered = _longest_first(book.root, runnable, store)
            with environment(kernel_environment(book.root)):
                _run(book.root, ordered, jobs or _jobs(), kernels, progress, result)
    finally:
        progress.close()
    return result


def restore_records(root: Path, states: list[State]) -> None:
    """Write the records of chapters that are up to date where they are missing or another run's."""
    for state in states:
        if state.entry and not records.is_current(root, state.chapter, state.entry):
            records.save(root, state.chapter, state.entry)


def _run(
    root: Path, stale: list[Chapter], jobs: int, kernels: Shared, progress: Progress, result: Result
) -> None:
    """Run chapters in this order, some side by side, each in a kernel that a thread waits for."""
    waiting, running = deque(stale), dict[Future[Run], tuple[Job, Cells]]()
    with ThreadPoolExecutor(jobs) as threads:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    chapter = waiting.popleft()
                    progress.start(chapter.source)
                    with _told(chapter, progress, result):
                        job = prepare(root, chapter)
                        cells = job.cells(manager=kernels.manager)
                        running[threads.submit(cells.execute)] = job, cells
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, _ = running.pop(future)
                    with _told(job.chapter, progress, result):
                        run = future.result()
                        job.finish(run)
                        result.ran.append(job.chapter.source)
                        progress.passed(job.chapter.source, run.seconds)
        except KeyboardInterrupt:
            result.interrupted = True
            progress.say("interrupted; the chapters that had finished are kept")
        finally:
            for _, cells in running.values():
                cells.stop()


@contextlib.contextmanager
def _told(chapter: Chapter, progress: Progress, result: Result) -> Iterator[None]:
    """Write down and show a failure of the block."""
    try:
        yield
    except ChapterFailedError as error:
        result.failed.append(chapter.source)
        progress.failed(error.failure)


def _restricted(book: Book, only: list[Path] | None) -> Book:
    if only is None:
        return book
    wanted = {path.resolve() for path in only}
    strange = wanted - {chapter.path for chapter in book.chapters}
    if strange:
        raise ValueError(f"expected chapters of {book.root}, got {', '.join(map(str, strange))}")
    return Book(book.root, tuple(c for c in book.chapters if c.path in wanted))


def _longest_first(root: Path, stale: list[Chapter], store: Cache) -> list[Chapter]:
    """Order chapters by the time they took before, here or when they were committed; unknown ones lead."""
    name = profile().name

    def seconds(chapter: Chapter) -> float:
        details = store.latest(chapter.source) or {}
        known = details.get("execution_seconds", records.committed_seconds(root, chapter, name))
        return float("inf") if known is None else float(known)

    return sorted(stale, key=seconds, reverse=True)


def _jobs() -> int:
    return 1 if has_cuda() else min(2, os.cpu_count() or 1)


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
