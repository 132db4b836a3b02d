from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_book
from small_book import SmallBook


@pytest.fixture
def new_book(tmp_path: Path) -> SmallBook:
    """A small book that was never executed."""
    return small_book.make(tmp_path / "new")


@pytest.fixture(scope="session")
def _executed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallBook]:
    book = small_book.make(tmp_path_factory.mktemp("executed") / "small")
    done = book.press("execute")
    assert done.returncode == 0, done.stdout + done.stderr
    assert book.runs() == ["one", "two"]
    return book


@pytest.fixture
def book(_executed_once: SmallBook, tmp_path: Path) -> SmallBook:
    """A small book whose two chapters were executed; a copy of the test's own."""
    shutil.copytree(_executed_once.root, tmp_path / "small")
    return SmallBook(tmp_path / "small")
