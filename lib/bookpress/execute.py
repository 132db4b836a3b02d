"""Executing what is stale: find it, run it side by side, keep each chapter the moment it passed."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from bookpress import chapters
from bookpress.cache import Cache
from bookpress.chapters import Book, Chapter
from bookpress.jobs import ChapterFailedError, Job, open_cache, prepare
from bookpress.kernel import Cells, Failure, Run, has_cuda, kernel_environment
from bookpress.kernel_server import Shared, environment
from bookpress.memo import memo_of
from bookpress.progress import Progress
from bookpress.survey import State, state_of

INTERRUPTED = 130


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


def execute(
    root: Path,
    *,
    jobs: int | None = None,
    force: bool = False,
    only: list[Path] | None = None,
) -> Result:
    """Run the chapters that are stale and keep each one that passes.

    Args:
        root: the book's root folder.
        jobs: how many chapters run side by side; where it is None, one on a GPU, else one more than
            there are cores, four at most.
        force: run every chapter, also those that are up to date.
        only: the chapters' files to look at; all where it is None.

    A chapter that fails leaves what an earlier run of it left.
    """
    book = _restricted(chapters.load_book(root), only)
    kernels = Shared(lambda: kernel_environment(book.root), has_cuda)
    with contextlib.closing(kernels):
        states, store = [], open_cache(book.root)
        for chapter in book.chapters:
            states.append(state_of(book.root, store, chapter, force=force))
            if states[-1].entry is None:
                kernels.expect()
        memo_of(book.root).save()
        return _execute(book, states, kernels, jobs or _jobs(), store)


def _execute(book: Book, states: list[State], kernels: Shared, jobs: int, store: Cache) -> Result:
    stale = [state for state in states if state.entry is None]
    progress, result = Progress(len(stale)), Result()
    progress.plan([(s.chapter.source, s.reason) for s in stale], len(states) - len(stale))
    with contextlib.closing(progress):
        for state in (s for s in stale if s.broken):
            progress.failed(Failure(state.chapter.source, state.reason))
            result.failed.append(state.chapter.source)
        ordered = _longest_first([s.chapter for s in stale if not s.broken], store)
        if ordered:
            with environment(kernel_environment(book.root)):
                _Running(book.root, kernels).run(ordered, jobs, progress, result)
    return result


@dataclass
class _Running:
    """Runs chapters side by side, each in a kernel that a thread waits for."""

    root: Path
    kernels: Shared

    def run(self, chapters: list[Chapter], jobs: int, progress: Progress, result: Result) -> None:
        """Run chapters in this order, keep each the moment it has ended, and say so."""
        waiting, running = deque(chapters), dict[Future[Run], tuple[Job, Cells]]()
        with ThreadPoolExecutor(jobs) as threads:
            try:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        chapter = waiting.popleft()
                        progress.start(chapter.source)
                        with _told(chapter, progress, result):
                            job = prepare(self.root, chapter)
                            cells = job.cells(manager=self.kernels.manager)
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


def _longest_first(stale: list[Chapter], store: Cache) -> list[Chapter]:
    """Order chapters by the time they took before; unknown ones lead."""

    def seconds(chapter: Chapter) -> float:
        return float((store.latest(chapter.source) or {}).get("execution_seconds", "inf"))

    return sorted(stale, key=seconds, reverse=True)


def _jobs() -> int:
    """One more than there are cores: a chapter now and then waits for its kernel, or to be kept."""
    return 1 if has_cuda() else min(4, (os.cpu_count() or 1) + 1)
