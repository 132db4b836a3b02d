"""Locates the folder for what a book's chapters leave behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def build_folder() -> Path | None:
    """The folder `_build` of the book around the working directory; None outside a book."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "_config.yml").is_file() and (folder / "book").is_dir():
            return folder / "_build"
    return None


def write_whole(path: Path, text: str) -> None:
    """Write a file in one piece, so that whoever reads it finds the old or the new text and never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
