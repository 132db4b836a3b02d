"""One chapter to be run: what it was when it started, and what becomes of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from measured_transformer.evidence.profile import profile
from nbformat import NotebookNode

from bookpress import cache, chapters, fingerprint, machine, records
from bookpress.cache import Cache, Entry
from bookpress.chapters import Chapter
from bookpress.fingerprint import Stamp
from bookpress.kernel import Cells, Failure, Run, write_notebook, write_timings
from bookpress.progress import warn

CELL_TIMEOUT = {"quick": 1800, "full": 12 * 3600}
"""What a cell may take at each profile, in seconds."""
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

    def cells(
        self,
        timeout: int | None = None,
        manager: type | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Cells:
        """Its cells, to be executed; see `kernel.Cells`. Without `timeout` the profile's limit holds."""
        limit = CELL_TIMEOUT[profile().name] if timeout is None else timeout
        return Cells(self.chapter, self.notebook, limit, manager, variables)

    def finish(self, run: Run, warn: Callable[[str], None] = warn) -> Entry | None:
        """Put what a run gave into the cache, write its records, and lay the notebook where it can be read.

        A chapter whose library, data or cells changed while it ran is not kept, which `warn` is told:
        nobody can say which of both it ran with.

        Raises:
            ChapterFailedError: the run failed, or recorded what does not fit together.
        """
        path = self.root / EXECUTED / profile().name / f"{self.chapter.docname}.ipynb"
        write_notebook(run.notebook, path)
        write_timings(run.timings, path.with_suffix(".seconds.json"))
        if run.failure is not None:
            raise ChapterFailedError(run.failure)
        try:
            records.payloads(run.notebook)
        except ValueError as error:
            raise _failed(self.chapter, f"its records are unsound: {error}") from error
        if fingerprint.stamp(self.root, self.chapter.path).digest != self.stamp.digest:
            warn(f"what {self.chapter.source} depends on changed while it ran; it has to run again")
            return None
        store = open_cache(self.root)
        details = details_of(self.stamp, machine.here())
        entry = store.add(run.notebook, self.chapter.source, run.seconds, details)
        records.save(self.root, self.chapter, entry)
        return entry


def prepare(root: Path, chapter: Chapter) -> Job:
    """Look at a chapter as it is now.

    Raises:
        ChapterFailedError: it cannot be run as it is.
    """
    try:
        stamp = fingerprint.stamp(root, chapter.path)
        return Job(root, chapter, stamp, chapters.notebook(chapter, stamp.digest))
    except Exception as error:
        raise _failed(chapter, f"{type(error).__name__}: {error}") from error


def open_cache(root: Path) -> Cache:
    """The store of a book's executed chapters."""
    return Cache(root / cache.FOLDER, warn)


def details_of(stamp: Stamp, made_on: Mapping[str, str]) -> dict[str, object]:
    """What the cache keeps with a notebook that was executed on some machine, beside what it took."""
    parts = stamp.parts
    told = {"profile": parts["profile"], "seed_offset": int(parts["seed offset"])}
    return {"stamp": stamp.digest, "parts": parts, "machine": dict(made_on), **told}


def _failed(chapter: Chapter, error: str) -> ChapterFailedError:
    return ChapterFailedError(Failure(chapter.source, error))
