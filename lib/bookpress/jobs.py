"""One chapter to be run: what it was when it started, and what becomes of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from bookpress import cache, chapters, fingerprint
from bookpress.cache import Cache, Entry
from bookpress.chapters import Chapter
from bookpress.fingerprint import Stamp
from bookpress.kernel import Cells, Failure, Run, write_notebook, write_timings
from bookpress.progress import warn

CELL_TIMEOUT = 1800
"""What a cell may take, in seconds."""
EXECUTED = "_build/executed"


class ChapterFailedError(Exception):
    """A chapter did not run to its end."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.summary)
        self.failure = failure


@dataclass(frozen=True)
class Job:
    """A chapter as it was when its run began."""

    root: Path
    chapter: Chapter
    stamp: Stamp
    notebook: NotebookNode

    def cells(self, timeout: int = CELL_TIMEOUT, manager: type | None = None) -> Cells:
        """Its cells, to be executed; see `kernel.Cells`."""
        return Cells(self.chapter, self.notebook, timeout, manager)

    def finish(self, run: Run, warn: Callable[[str], None] = warn) -> Entry | None:
        """Put what a run gave into the cache, and lay the notebook where it can be read.

        A chapter whose library, data or cells changed while it ran is not kept, which `warn` is told:
        nobody can say which of both it ran with.

        Raises:
            ChapterFailedError: the run failed.
        """
        path = self.root / EXECUTED / f"{self.chapter.docname}.ipynb"
        write_notebook(run.notebook, path)
        write_timings(run.timings, path.with_suffix(".seconds.json"))
        if run.failure is not None:
            raise ChapterFailedError(run.failure)
        if fingerprint.stamp(self.root, self.chapter.path).digest != self.stamp.digest:
            warn(f"what {self.chapter.source} depends on changed while it ran; it has to run again")
            return None
        details = {"parts": self.stamp.parts}
        return open_cache(self.root).add(run.notebook, self.chapter.source, run.seconds, details)


def prepare(root: Path, chapter: Chapter) -> Job:
    """Look at a chapter as it is now.

    Raises:
        ChapterFailedError: it cannot be run as it is.
    """
    try:
        stamp = fingerprint.stamp(root, chapter.path)
        return Job(root, chapter, stamp, chapters.notebook(chapter, stamp.digest))
    except Exception as error:
        failure = Failure(chapter.source, f"{type(error).__name__}: {error}")
        raise ChapterFailedError(failure) from error


def open_cache(root: Path) -> Cache:
    """The store of a book's executed chapters."""
    return Cache(root / cache.FOLDER, warn)
