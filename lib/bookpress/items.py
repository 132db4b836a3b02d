"""Chapters as pytest items: read, stamped and run through nbmake.

A module of its own because nbmake and nbformat take a second to import, which tests that run no
chapter do not pay.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest._code.code import TerminalRepr
from measured_transformer.evidence.profile import profile
from nbmake.pytest_items import NbMakeFailureRepr, NotebookFile, NotebookItem

from bookpress import chapters, fingerprint, kernel, records
from bookpress.collect import cell_timeout

PROPERTY = "chapter"
EXECUTED = "_build/executed"


class ChapterFailedError(Exception):
    """A chapter did not run to its end."""

    def __init__(self, failure: kernel.Failure) -> None:
        super().__init__(failure.summary)
        self.failure = failure


class ChapterFile(NotebookFile):  # type: ignore[misc]
    """A MyST chapter; it holds one item, the chapter itself."""

    def collect(self) -> Generator[Any, Any, Any]:
        """Give the chapter as an item to run."""
        yield ChapterItem.from_parent(self, filename=str(self.path))


class ChapterItem(NotebookItem):  # type: ignore[misc]
    """The run of one chapter, with its outcome in the report's `user_properties`."""

    def runtest(self) -> None:
        """Execute the chapter; raises ChapterFailedError when it does not pass."""
        path = Path(self.filename)
        root = chapters.find_root(path)
        if root is None:
            raise ValueError(f"expected {path} to lie in a book, below a folder with _toc.yml")
        chapter = chapters.chapter_at(root, path)
        outcome: dict[str, Any] = {"root": str(root), "source": chapter.source, "failure": None}
        self.user_properties.append((PROPERTY, outcome))
        try:
            stamp = fingerprint.stamp(root, path)
            source = chapters.notebook(chapter, stamp.digest)
        except Exception as error:
            self._fail(outcome, kernel.Failure(chapter.source, f"{type(error).__name__}: {error}"))
        staged = root / EXECUTED / profile().name / f"{chapter.docname}.ipynb"
        timeout = cell_timeout(self.config)
        ran = kernel.run_chapter(chapter, source, staged, root, timeout)
        outcome |= {"seconds": ran.seconds, "notebook": str(staged)}
        outcome |= {"stamp": stamp.digest, "parts": stamp.parts}
        if ran.failure is not None:
            self._fail(outcome, ran.failure)
        try:
            records.payloads(ran.notebook)
        except ValueError as error:
            self._fail(outcome, kernel.Failure(chapter.source, f"its records are unsound: {error}"))

    def repr_failure(self, excinfo: Any, style: Any | None = None) -> str | TerminalRepr:
        """Name the chapter, the cell and the error before the traceback."""
        if not isinstance(excinfo.value, ChapterFailedError):
            return pytest.Item.repr_failure(self, excinfo, style)
        failure = excinfo.value.failure
        text = f"{failure.summary}\n\n{failure.trace}" if failure.trace else failure.summary
        return NbMakeFailureRepr(text, failure.error)

    def _fail(self, outcome: dict[str, Any], failure: kernel.Failure) -> None:
        outcome["failure"] = failure.as_dict()
        raise ChapterFailedError(failure)
