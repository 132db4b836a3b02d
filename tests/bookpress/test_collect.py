"""`pytest --nbmake` collects and runs the chapters; `pytest` alone does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from bookpress.collect import cell_timeout
from small_book import SmallBook


def test_pytest_alone_runs_no_chapter(new_book: SmallBook) -> None:
    done = new_book.pytest("-q", "book", "tests")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert new_book.runs() == []


def test_bare_nbmake_collects_the_chapters_beside_the_tests(new_book: SmallBook) -> None:
    done = new_book.pytest("--nbmake", "--collect-only", "-q")
    lines = [line for line in done.stdout.splitlines() if "::" in line]
    assert lines == [
        "tests/test_plain.py::test_plain",
        "book/one.md::one.md",
        "book/part/two.md::two.md",
    ]


def test_a_folder_that_holds_chapters_is_not_collected_twice(new_book: SmallBook) -> None:
    new_book.replace("pyproject.toml", "['tests']", "['tests', 'book']")
    done = new_book.pytest("--nbmake", "--collect-only", "-q")
    assert done.stdout.count("one.md::") == done.stdout.count("two.md::") == 1


def test_chapters_always_run_and_what_passed_is_kept(new_book: SmallBook) -> None:
    new_book.replace("lib/tiny/mirror.py", "return 20", "raise RuntimeError('broken mirror')")
    failed = new_book.pytest("--nbmake")
    assert failed.returncode == 1
    assert "book/part/two.md, code cell 2 (line 26)" in failed.stdout
    assert "RuntimeError: broken mirror" in failed.stdout
    assert "2 passed" in failed.stdout
    assert new_book.runs() == ["one", "two"]
    assert new_book.stale() == {"two"}
    again = new_book.pytest("--nbmake", "book/one.md", "-n", "1")
    assert again.returncode == 0, again.stdout
    assert new_book.runs() == ["one"]


def test_a_cell_that_takes_too_long_is_named(new_book: SmallBook) -> None:
    new_book.replace("lib/tiny/glass.py", "return 1", "import time\n    time.sleep(100)")
    failed = new_book.pytest("--nbmake", "--nbmake-timeout", "1", "book/one.md")
    assert failed.returncode == 1
    assert "book/one.md, code cell 2 (line 24)" in failed.stdout
    assert "CellTimeoutError: A cell timed out" in failed.stdout
    assert new_book.stale() == {"one", "two"}


@pytest.mark.parametrize(("given", "expected"), [(300, 1800), (7, 7)])
def test_a_cell_has_the_time_that_is_given_or_half_an_hour(given: int, expected: int) -> None:
    config = SimpleNamespace(option=SimpleNamespace(nbmake_timeout=given))
    assert cell_timeout(cast(pytest.Config, config)) == expected
