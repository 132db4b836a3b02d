"""The output of a check: plain text in a terminal, a framed note in a notebook."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

_COLOURS = {True: "#2a7f62", False: "#b4552d"}  # both readable on white and on black


@dataclass(frozen=True)
class Result:
    """The verdict on one answer; truthy when it is right.

    Attributes:
        name: the exercise.
        passed: whether every property holds.
        message: what is wrong, or on how many inputs all was right.
        input: the input that showed the fault; empty where none belongs to it.
    """

    name: str
    passed: bool
    message: str
    input: str = ""

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        if self.passed:
            return f"passed: {self.name}" + (f", {self.message}" if self.message else "")
        lines = [f"not yet: {self.name}", *self.message.splitlines()]
        if self.input:
            lines.append(f"input: {self.input}")
        return "\n    ".join(lines)

    def _repr_html_(self) -> str:
        mark = "&#10003; passed" if self.passed else "&#10007; not yet"
        rows = [f"<strong>{mark}</strong>: <code>{escape(self.name)}</code>"]
        if self.message:
            message = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(self.message))
            message = message.replace("\n", "<br>")
            rows.append(f"{message[0].upper()}{message[1:]}.".replace("..", "."))
        if self.input:
            rows.append(f"<small>Input: <code>{escape(self.input)}</code></small>")
        frame = f"border-left: 4px solid {_COLOURS[self.passed]}; padding: 0.2em 0.8em"
        return f'<div style="{frame}">{"<br>".join(rows)}</div>'
