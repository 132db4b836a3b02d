"""The code that stands in the exercises and solutions of the book's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_OPEN = re.compile(r"^(`{3,})\{(exercise|solution|solution-start|solution-end)\}\s*(.*)$")
_CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"""\bcheck\(\s*["']([\w.]+)["']""")


@dataclass(frozen=True)
class Part:
    """An exercise or a solution on a page.

    Attributes:
        page: the page, such as `book/training/learning-rate`.
        kind: `exercise` or `solution`.
        label: the label of the exercise.
        code: its Python blocks in which an answer is checked.
        folded: whether it is a dropdown.
    """

    page: str
    kind: str
    label: str
    code: tuple[str, ...]
    folded: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The exercises whose answers are checked, in order."""
        return tuple(name for block in self.code for name in _NAME.findall(block))


def parts(book: Path) -> Iterator[Part]:
    """Every exercise and every solution of the book."""
    for path in sorted(book.rglob("*.md")):
        page = path.relative_to(book.parent).with_suffix("").as_posix()
        yield from parts_of(path.read_text("utf-8"), page)


def parts_of(text: str, page: str) -> Iterator[Part]:
    """Every exercise and every solution of a page."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        found = _OPEN.match(lines[at])
        at += 1
        if found is None or found[2] == "solution-end":
            continue
        fence, kind, argument = found[1], found[2], found[3].strip()
        start = at
        if kind == "solution-start":
            while lines[at] != "```{solution-end}":
                at += 1
        else:
            while lines[at] != fence:
                at += 1
        body = "\n".join(lines[start:at]) + "\n"
        label = re.search(r"^:label: (\S+)$", body, re.MULTILINE)
        code = tuple(block for block in _CODE.findall(body) if _NAME.search(block))
        yield Part(
            page,
            kind.removesuffix("-start"),
            label[1] if kind == "exercise" and label else argument,
            code,
            ":class: dropdown" in body,
        )
