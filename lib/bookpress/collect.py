"""The pytest plugin that lets `pytest --nbmake` collect MyST chapters.

A bare `pytest --nbmake` runs the book's chapters beside the tests; `pytest --nbmake book` runs those
below a folder; `pytest` without `--nbmake` runs none.  Chapters that pass are kept, so that the next
build need not run them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bookpress.items import ChapterFile

_NBMAKE_S_OWN = 300


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ChapterFile | None:
    """Collect a MyST chapter."""
    if not _enabled(parent.config) or file_path.suffix != ".md" or "_build" in file_path.parts:
        return None
    from bookpress import chapters

    if chapters.find_root(file_path) is None or not chapters.is_chapter(file_path):
        return None
    from bookpress.items import ChapterFile

    made: ChapterFile = ChapterFile.from_parent(parent, path=file_path)
    return made


def pytest_configure(config: pytest.Config) -> None:
    """Add the book's chapters to a run that names no paths."""
    if not _enabled(config) or hasattr(config, "workerinput"):
        return
    from bookpress import chapters

    root = chapters.find_root(config.rootpath)
    if config.args_source is not pytest.Config.ArgsSource.ARGS and root == config.rootpath:
        config.args.extend(str(chapter.path) for chapter in chapters.load_book(root).chapters)


def cell_timeout(config: pytest.Config) -> int:
    """How long a cell may take, in seconds: what --nbmake-timeout says, else the press's own limit.

    Asked for where the chapter runs: processes of pytest-xdist get their options anew.
    """
    from bookpress.jobs import CELL_TIMEOUT

    given: int = config.option.nbmake_timeout
    return given if given != _NBMAKE_S_OWN else CELL_TIMEOUT


def _enabled(config: pytest.Config) -> bool:
    return bool(getattr(config.option, "nbmake", False))
