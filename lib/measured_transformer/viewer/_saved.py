"""Saves a viewer or workbench as an HTML page or a picture."""

from __future__ import annotations

import html
from pathlib import Path

from measured_transformer.viewer.style import ThemedFigure


def save(path: str | Path, *, title: str, content: str, drawing: ThemedFigure) -> Path:
    """Write a page (`.html`), or the drawing as an image (`.png`); return where it lies.

    Args:
        path: the file, which is replaced.
        title: of the page.
        content: HTML that needs nothing else.
        drawing: what is shown where there are no scripts.

    Raises:
        ValueError: the name ends in something else.
    """
    path = Path(path)
    if path.suffix.lower() == ".png":
        return drawing.save(path)
    if path.suffix.lower() != ".html":
        raise ValueError(f"expected a file name ending in .html or .png, got {path.name!r}")
    path.write_text(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n</head>\n<body>\n<main>\n"
        f"<h1>{html.escape(title)}</h1>\n{content}\n</main>\n</body>\n</html>\n",
        "utf-8",
    )
    return path
