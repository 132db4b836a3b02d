"""Telling the one who waits which chapter runs, how many are left, and how long each took."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID

    from bookpress.kernel import Failure


class Progress:
    """Prints a line when a chapter starts and when it ends; on a terminal also what runs now."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.done = 0
        self._stream = stream or sys.stdout
        self._live = _live_display(self._stream) if total and self._stream.isatty() else None
        self._running: dict[str, TaskID] = {}

    def say(self, line: str) -> None:
        """Print a line at once, above whatever is shown live."""
        if self._live is not None:
            self._live.console.print(line, highlight=False, markup=False, soft_wrap=True)
        else:
            print(line, file=self._stream, flush=True)

    def plan(self, stale: Iterable[tuple[str, str]], fresh: int) -> None:
        """Say which chapters will run, and why, before the first one does."""
        if fresh:
            self.say(f"{fresh} of {self.total + fresh} chapters are up to date")
        for source, reason in stale:
            self.say(f"to run: {source} ({reason})")

    def start(self, source: str) -> None:
        """Say that a chapter begins to run."""
        if self._live is None:
            self.say(f"running {source}")
        else:
            self._running[source] = self._live.add_task(source)

    def passed(self, source: str, seconds: float) -> None:
        """Say that a chapter ran to its end."""
        self._finish(source, f"{seconds:.1f} s")

    def failed(self, failure: Failure) -> None:
        """Say that a chapter failed, with the cell, the error and the traceback."""
        self._finish(failure.source, "FAILED")
        self.say(failure.summary)
        if failure.trace:
            self.say(failure.trace)

    def close(self) -> None:
        """Take what is shown live off the terminal."""
        if self._live is not None:
            self._live.stop()

    def _finish(self, source: str, result: str) -> None:
        if self._live is not None and source in self._running:
            self._live.remove_task(self._running.pop(source))
        self.done += 1
        self.say(f"[{self.done}/{self.total}] {source} ... {result}, {self.total - self.done} left")


def warn(message: str) -> None:
    """Say on the error stream that something is wrong, though the work goes on."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def _live_display(stream: TextIO) -> Display:
    from rich import console, progress

    columns = progress.SpinnerColumn(), progress.TextColumn("{task.description}")
    elapsed = progress.TimeElapsedColumn()
    terminal = console.Console(file=stream)
    display = progress.Progress(*columns, elapsed, console=terminal, transient=True)
    display.start()
    return display
