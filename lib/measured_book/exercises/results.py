"""The output of a check: plain text in a terminal, a framed note in a notebook."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html import escape
from typing import Any

_COLOURS = {True: "#2a7f62", False: "#b4552d"}  # both readable on white and on black


@dataclass(frozen=True)
class Result:
    """The verdict on one answer; truthy when it is right, and its text by `str`.

    Attributes:
        name: the exercise.
        passed: whether every property holds.
        message: what is wrong, or on how many inputs all was right.
        input: the input that showed the fault; empty where none belongs to it.
        key: whose draw of the exercise it was; None with the numbers of the page.
        note: how it was checked, where that was not as usual.
    """

    name: str
    passed: bool
    message: str
    input: str = ""
    key: str | None = None
    note: str = ""
    _shown_in: list[Any] = field(default_factory=list, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"<{'passed' if self.passed else 'not yet'}: {self.name}>"

    def __str__(self) -> str:
        if self.passed:
            lines = [f"passed: {self._title}" + (f", {self.message}" if self.message else "")]
        else:
            lines = [f"not yet: {self._title}", *self.message.splitlines()]
        if self.input:
            lines.append(f"input: {self.input}")
        if self.note:
            lines.append(f"note: {self.note}")
        return "\n    ".join(lines)

    @property
    def _title(self) -> str:
        return self.name if self.key is None else f"{self.name} (drawn for {self.key})"

    def show(self) -> None:
        """Show the verdict: framed in a notebook, printed elsewhere."""
        shell = _notebook()
        if shell is None:
            print(self, flush=True)
            return
        from IPython.display import HTML, display

        display(HTML(self._repr_html_()))
        self._shown_in.append(shell.execution_count)

    def _ipython_display_(self) -> None:
        """As the value of a cell it is shown, unless this cell has shown it already."""
        shell = _notebook()
        if shell is None:
            print(repr(self))
        elif shell.execution_count not in self._shown_in:
            self.show()

    def _repr_html_(self) -> str:
        mark = "&#10003; passed" if self.passed else "&#10007; not yet"
        rows = [f"<strong>{mark}</strong>: <code>{escape(self._title)}</code>"]
        if self.message:
            message = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(self.message))
            message = message.replace("\n", "<br>")
            rows.append(f"{message[0].upper()}{message[1:]}.".replace("..", "."))
        if self.input:
            rows.append(f"<small>Input: <code>{escape(self.input)}</code></small>")
        if self.note:
            rows.append(f"<small>{escape(self.note[0].upper() + self.note[1:])}.</small>")
        frame = f"border-left: 4px solid {_COLOURS[self.passed]}; padding: 0.2em 0.8em"
        return f'<div style="{frame}">{"<br>".join(rows)}</div>'


def _notebook() -> Any:
    """The shell of the notebook in which this runs; None outside of one."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell if hasattr(shell, "kernel") else None
