"""A small table that a notebook shows as HTML and `print` as aligned text.

>>> Table(("token", "chance"), (("␣Paris", "0.41"), ("␣the", "0.10")))
token   chance
␣Paris  0.41
␣the    0.10
"""

from __future__ import annotations

import html
import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Table:
    """Cells of text under names of columns.

    Attributes:
        columns: their names.
        rows: of cells, as many as there are columns.

    Raises:
        ValueError: when a row has more or fewer cells than there are columns.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"expected {len(self.columns)} cells in a row, got {len(row)}: {row}"
                )

    def __repr__(self) -> str:
        """Columns aligned by blanks; wide characters count twice, as a terminal shows them."""
        lines = (self.columns, *self.rows)
        widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell + " " * (width - _width(cell))
                for cell, width in zip(line, widths, strict=True)
            ).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        """The table as HTML; it takes colours and letters from the page that it stands in."""
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.columns)
        body = "\n".join(
            f"<tr>{''.join(f'<td><bdi>{html.escape(cell)}</bdi></td>' for cell in row)}</tr>"
            for row in self.rows
        )
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return sum(
        0
        if unicodedata.combining(letter)
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in text
    )
