"""Small tables of texts on pages."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows under a header, as HTML on a page and as text elsewhere.

    Attributes:
        header: of the columns.
        rows: one text for each column.
        languages: of the texts of each column, such as ``de``; none where they are that of the page.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    languages: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n".join(" | ".join(row) for row in (self.header, *self.rows))

    def _repr_html_(self) -> str:
        languages = self.languages or ("",) * len(self.header)
        said = [f' lang="{language}"' if language else "" for language in languages]
        head = "".join(f'<th scope="col">{_breakable(cell)}</th>' for cell in self.header)
        body = "".join(
            "<tr>"
            + "".join(
                f"<td{language}>{_breakable(cell)}</td>"
                for cell, language in zip(row, said, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
        return (
            '<div class="pst-scrollable-table-container"><table class="table dataframe">'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def _breakable(text: str) -> str:
    """A text as HTML in which long names may go on in the next line."""
    return re.sub(r"([_.(=]|(?<=[a-z])(?=[A-Z]))", r"\1<wbr>", html.escape(text))
