"""Locates the folder for what a book's chapters leave behind."""

from __future__ import annotations

from pathlib import Path


def build_folder() -> Path | None:
    """The folder `_build` of the book around the working directory; None outside a book."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "_config.yml").is_file() and (folder / "book").is_dir():
            return folder / "_build"
    return None
