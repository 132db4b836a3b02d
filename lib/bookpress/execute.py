"""Executing what is stale: find it, run it side by side, keep each chapter the moment it passed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from measured_transformer.evidence.profile import profile

from bookpress import chapters, records
from bookpress.again import Repeated, compare, turn_of
from bookpress.cache import Cache, Entry
from bookpress.chapters import Book, Chapter
from bookpress.jobs import ChapterFailedError, Job, open_cache, prepare
from bookpress.kept import Kept
from bookpress.kernel import Cells, Failure, Run, has_cuda, kernel_environment
from bookpress.kernel_server import Shared, environment
from bookpress.memo import memo_of
from bookpress.progress import Progress
from bookpress.survey import State, restore_records, state_of

INTERRUPTED = 130


@dataclass
class Result:
    """What `execute` did; `passed` and `failed` name chapters by their source file."""

    ran: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    interrupted: bool = False

    @property
    def status(self) -> int:
        """The exit status that says it."""
        return INTERRUPTED if self.interrupted else int(bool(self.failed))


def execute(
    root: Path,
    *,
    jobs: int | None = None,
    force: bool = False,
    only: list[Path] | None = None,
    again: int = 0,
) -> Result:
    """Run the chapters that are stale and keep each one that passes.

    Args:
        root: the book's root folder.
        jobs: how many chapters run side by side; two on a CPU, one on a GPU where it is None.
        force: run every chapter, also those that are up to date.
        only: the chapters' files to look at; all where it is None.
        again: into how many shares the chapters are divided whose outputs the repository keeps, one of
            which runs again to be compared; with it, chapters that have a room always run. None where it is 0.

    Chapters that are up to date have their records written again where these are missing or belong
    to another run.  A chapter that fails leaves what an earlier run of it left.
    """
    book = _restricted(chapters.load_book(root), only)
    kernels = Shared(lambda: kernel_environment(book.root), has_cuda)
    with contextlib.closing(kernels):
        states, turn = [], turn_of(book, again) if again else {}
        store = open_cache(book.root)
        for chapter in book.chapters:
            forced = force or bool(again and chapter.room)
            states.append(state_of(book.root, store, chapter, force=forced))
            if states[-1].entry is None or chapter in turn:
                kernels.expect()
        memo_of(book.root).save()
        restore_records(book.root, states)
        return _execute(book, states, turn, kernels, jobs or _jobs(), store)


def _execute(
    book: Book,
    states: list[State],
    turn: dict[Chapter, Kept],
    kernels: Shared,
    jobs: int,
    store: Cache,
) -> Result:
    stale = [state for state in states if state.entry is None]
    again = [s.chapter for s in states if s.entry and _is_kept(s.entry, turn.get(s.chapter))]
    told = [(s.chapter.source, s.reason) for s in stale]
    told += [(chapter.source, "its turn to be compared") for chapter in again]
    progress, result = Progress(len(told)), Result()
    progress.plan(told, len(states) - len(told))
    with contextlib.closing(progress), tempfile.TemporaryDirectory() as runs:
        for state in (s for s in stale if s.broken):
            progress.failed(Failure(state.chapter.source, state.reason))
            result.failed.append(state.chapter.source)
        ordered = _longest_first(
            book.root, [*(s.chapter for s in stale if not s.broken), *again], store
        )
        if ordered:
            with environment(kernel_environment(book.root)):
                running = _Running(book.root, {c: turn[c] for c in again}, kernels, runs)
                running.run(ordered, jobs, progress, result)
    return result


def _is_kept(entry: Entry, kept: Kept | None) -> bool:
    return kept is not None and kept.told["key"] == entry.key


@dataclass
class _Running:
    """Runs chapters side by side, each in a kernel that a thread waits for.

    What is run to be compared trains from nothing: it finds no trained model in `runs`, a folder of its own.
    """

    root: Path
    turn: dict[Chapter, Kept]
    kernels: Shared
    runs: str

    def run(self, chapters: list[Chapter], jobs: int, progress: Progress, result: Result) -> None:
        """Run chapters in this order, keep or compare each the moment it has ended, and say so."""
        waiting, running = deque(chapters), dict[Future[Run], tuple[Job, Cells]]()
        with ThreadPoolExecutor(jobs) as threads:
            try:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        chapter = waiting.popleft()
                        progress.start(chapter.source)
                        with _told(chapter, progress, result):
                            job = prepare(self.root, chapter)
                            cells = self._cells(job)
                            running[threads.submit(cells.execute)] = job, cells
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        job, _ = running.pop(future)
                        with _told(job.chapter, progress, result):
                            self._finish(job, future.result(), progress, result)
            except KeyboardInterrupt:
                result.interrupted = True
                progress.say("interrupted; the chapters that had finished are kept")
            finally:
                for _, cells in running.values():
                    cells.stop()

    def _cells(self, job: Job) -> Cells:
        own = {"MEASURED_RUNS_DIR": self.runs} if job.chapter in self.turn else {}
        return job.cells(manager=self.kernels.manager, variables=own)

    def _finish(self, job: Job, run: Run, progress: Progress, result: Result) -> None:
        if (before := self.turn.get(job.chapter)) is None:
            job.finish(run)
        else:
            repeated = compare(job, run, before)
            result.repeated.append(repeated)
            progress.say(repeated.line)
            if repeated.problem:
                raise ChapterFailedError(Failure(job.chapter.source, repeated.problem))
        result.ran.append(job.chapter.source)
        progress.passed(job.chapter.source, run.seconds)


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
