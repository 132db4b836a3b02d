"""Chapters as pytest items.

A module of its own because what runs chapters takes a second to import, which tests that run none do
not pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bookpress import chapters, jobs
from bookpress.collect import cell_timeout
from bookpress.kernel import kernel_environment
from bookpress.kernel_server import environment


class ChapterFile(pytest.File):
    """A MyST chapter; it holds one item, the chapter itself."""

    def collect(self) -> Iterator[pytest.Item]:
        """Give the chapter as an item to run."""
        yield ChapterItem.from_parent(self, name=self.path.name)


class ChapterItem(pytest.Item):
    """The run of one chapter."""

    def runtest(self) -> None:
        """Execute the chapter and keep what it gave; raises ChapterFailedError when it does not pass."""
        root = chapters.find_root(self.path)
        if root is None:
            raise ValueError(f"expected a folder with _toc.yml above {self.path}, got none")
        job = jobs.prepare(root, chapters.chapter_at(root, self.path))
        with environment(kernel_environment(root)):
            run = job.cells(cell_timeout(self.config)).execute()
        job.finish(run, lambda said: self.warn(pytest.PytestWarning(said)))

    def repr_failure(self, excinfo: Any, style: Any | None = None) -> Any:
        """Name the chapter, the cell and the error before the traceback."""
        if not isinstance(excinfo.value, jobs.ChapterFailedError):
            return super().repr_failure(excinfo, style)
        failure = excinfo.value.failure
        return f"{failure.summary}\n\n{failure.trace}" if failure.trace else failure.summary
