"""Shows how far a measurement has come: a bar in a terminal, an occasional line in a log."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

from measured_transformer.training.jobs import Job
from tqdm import TqdmWarning

Shown = Literal["bar", "lines", "nothing"]
A_LOOK = 100.0
"""What a look costs, in the units of `cost`: it is seldom known beforehand."""
EVERY = 30.0
"""Seconds between two lines of a log."""
_FORM = "{percentage:3.0f}% |{bar:20}| {elapsed}, {remaining} left: {desc}"


def cost(job: Job) -> float:
    """Estimate a training's time in milliseconds of a slow core; only the order matters."""
    config, settings = job.config, job.settings
    width = 1 + settings["batch_size"] * config.d_model**2 / 1e5
    return float(settings["steps"] * (1 + config.n_layers) * width)


def _bar() -> Any:
    """Make a progress bar: of widgets in a notebook that has them, of characters elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TqdmWarning)  # that there are no widgets
        from tqdm.auto import tqdm
    return tqdm(total=1.0, bar_format=_FORM, desc="")


class Progress:
    """Counts finished trainings and evaluations, weighted by cost, against the total.

    Args:
        shown: a bar, lines, or nothing.
        say: takes a line.
    """

    def __init__(self, shown: Shown, say: Callable[[str], None] = print) -> None:
        self._shown, self._say = shown, say
        self._bar: Any = None
        self._start = self._told = time.monotonic()
        self._total = self._done = 0.0
        self._counts: dict[str, list[int]] = {}
        self._labels: dict[str, int] = {}

    def __enter__(self) -> Progress:
        """Show the progress."""
        if self._shown == "bar":
            self._bar = _bar()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the progress."""
        if self._bar is not None:
            self._bar.close()

    def expect(self, what: str, label: str, units: float) -> None:
        """Add one item to what is to be done.

        Args:
            what: such as 'trainings'.
            label: for which measurement.
            units: what it costs.
        """
        self._total += units
        self._counts.setdefault(what, [0, 0])[1] += 1
        self._labels[label] = self._labels.get(label, 0) + 1

    def expect_more(self, units: float) -> None:
        """Add to the expected cost of what is to be done."""
        self._total += units

    def advance(self, what: str, label: str, units: float) -> None:
        """Count one item as done."""
        self._done += units
        self._counts[what][0] += 1
        self._labels[label] -= 1
        self._show()

    @property
    def line(self) -> str:
        """One line: what is done, what is left, and which measurements are at work."""
        counts = ", ".join(
            f"{done} of {total} {what}" for what, (done, total) in self._counts.items()
        )
        open_ones = [label for label, left in self._labels.items() if left]
        return f"{counts} ({', '.join(open_ones[:3])}{', ...' if len(open_ones) > 3 else ''})"

    def note(self, line: str) -> None:
        """Print a line without breaking the bar."""
        if self._bar is None:
            self._say(line)
        else:
            self._bar.clear()
            self._say(line)
            self._bar.refresh()

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.total = self._total
            self._bar.set_description_str(self.line, refresh=False)
            self._bar.update(self._done - self._bar.n)
            return
        now = time.monotonic()
        if self._shown == "lines" and now - self._told >= EVERY:
            self._told = now
            spent = now - self._start
            left = spent * (self._total - self._done) / self._done if self._done else 0.0
            self._say(f"  {self.line}; {_words(spent)} so far, about {_words(left)} left")


def _words(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
