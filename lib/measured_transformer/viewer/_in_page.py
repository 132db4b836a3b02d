"""What is shown in a page: it has HTML and a drawing, a notebook shows it, and it is saved as either."""

from __future__ import annotations

import abc
import html
from collections.abc import Collection
from pathlib import Path
from typing import Any

from measured_transformer.viewer.style import ThemedFigure


class InPage(abc.ABC):
    """Something that is shown in a page, with a drawing in its place where scripts do not run.

    Attributes:
        title: its name.
    """

    title: str

    @property
    @abc.abstractmethod
    def html(self) -> str:
        """It as self-contained HTML, for any page, any number of times."""

    @property
    @abc.abstractmethod
    def static(self) -> ThemedFigure:
        """The drawing that stands in its place where scripts do not run."""

    def save(self, path: str | Path) -> Path:
        """Write it as a page (`.html`), or its drawing as an image (`.png`); return where it lies.

        Args:
            path: the file, which is replaced.

        Raises:
            ValueError: the name ends in something else.
        """
        path = Path(path)
        if path.suffix.lower() == ".png":
            return self.static.save(path)
        if path.suffix.lower() != ".html":
            raise ValueError(f"expected a file name ending in .html or .png, got {path.name!r}")
        path.write_text(
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
            f"<title>{html.escape(self.title)}</title>\n</head>\n<body>\n<main>\n"
            f"<h1>{html.escape(self.title)}</h1>\n{self.html}\n</main>\n</body>\n</html>\n",
            "utf-8",
        )
        return path

    def _repr_html_(self) -> str:
        """Show it where a notebook asks for nothing but HTML."""
        return self.html

    def _repr_mimebundle_(
        self,
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Give a notebook the HTML and the drawing, and the dark drawing in the metadata."""
        data, metadata = self.static._repr_mimebundle_()
        metadata["measured"]["kind"] = "viewer"
        return {"text/html": self.html, **data, "text/plain": repr(self)}, metadata
