"""The press prints nothing when nothing changed, and notices every change of what it reads and what it left."""

from __future__ import annotations

import re
import time

import pytest
from bookpress import printed
from small_book import SmallBook


@pytest.fixture(scope="module")
def _printed_once(tmp_path_factory: pytest.TempPathFactory) -> SmallBook:
    import small_book

    book = small_book.make(tmp_path_factory.mktemp("printed") / "small")
    assert book.press("execute").returncode == 0
    assert book.runs() == ["one", "two"], "what they leave beside their sources is gone now"
    done = book.press("build")
    assert done.returncode == 0, done.stdout + done.stderr
    return book


@pytest.fixture
def printed_book(_printed_once: SmallBook) -> SmallBook:
    """A small book that was printed; tests leave it printed."""
    assert printed.is_current(_printed_once.root)
    return _printed_once


def test_when_nothing_changed_nothing_is_printed(printed_book: SmallBook) -> None:
    start = time.monotonic()
    done = printed_book.press("build")
    assert time.monotonic() - start < 5
    assert done.returncode == 0
    page = f"{printed_book.root}/_build/html/index.html"
    assert done.stdout == f"nothing changed since the book was printed: {page}\n"


def test_a_first_print_asks_for_the_style_sheets_and_scripts_that_a_later_one_asks_for(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    import small_book

    book = small_book.make(tmp_path_factory.mktemp("first") / "small")
    asked = []
    for _ in range(2):
        done = book.press("build", "--force")
        assert done.returncode == 0, done.stdout + done.stderr
        page = book.read("_build/html/book/one.html")
        asked.append(re.findall(r'(?:href|src)="([^":]+\.(?:css|js)(?:\?[^"]*)?)"', page))
    assert asked[0] == asked[1]
    assert [address for address in asked[0] if address.endswith(".css")] == []


def test_force_executes_and_prints_all_the_same(printed_book: SmallBook) -> None:
    assert "the book: " in printed_book.press("build", "--force").stdout
    assert printed_book.runs() == ["one", "two"]
    assert printed_book.press("build", "-q").returncode == 0


@pytest.mark.parametrize(
    "path",
    [
        "book/index.md",
        "book/one.md",
        "_config.yml",
        "_toc.yml",
        "requirements.txt",
        "lib/tiny/glass.py",
        "lib/small_extension.py",
        "data/numbers.csv",
        "lib/new_module.py",
        "book/_static/new.css",
        "_build/html/index.html",
        "_build/html/book/one.html",
        "_build/html/_static/basic.css",
        "_build/html/searchindex.js",
        "_build/measuring/stale/one.losses-0123",
    ],
)
def test_a_changed_file_is_noticed(printed_book: SmallBook, path: str) -> None:
    file = printed_book.root / path
    before = file.read_text("utf-8") if file.exists() else None
    at = file.stat() if before is not None else None
    printed_book.write(path, (before or "") + " ")
    assert not printed.is_current(printed_book.root)
    file.unlink()
    assert printed.is_current(printed_book.root) == (before is None)
    if before is not None:
        import os

        printed_book.write(path, before)
        os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert printed.is_current(printed_book.root)


def test_settings_and_packages_count(
    printed_book: SmallBook, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "1000")
    assert not printed.is_current(printed_book.root)
    monkeypatch.delenv("MEASURED_SEED_OFFSET")
    assert printed.is_current(printed_book.root)
    (tmp_path / "sphinx-99.dist-info").mkdir()
    monkeypatch.setattr(printed.sysconfig, "get_path", lambda kind: tmp_path)
    assert not printed.is_current(printed_book.root)


def test_caches_beside_the_sources_and_tests_do_not_count(printed_book: SmallBook) -> None:
    printed_book.write("lib/tiny/__pycache__/glass.cpython-311.pyc", "compiled")
    printed_book.write("tests/test_more.py", "")
    printed_book.write(".mypy_cache/some.json", "{}")
    assert printed.is_current(printed_book.root)


def test_pages_that_were_edited_or_deleted_are_printed_again(printed_book: SmallBook) -> None:
    one, two = (f"_build/html/book/{name}.html" for name in ("one", "part/two"))
    before = printed_book.read(one)
    printed_book.write(one, before.replace("one sees 2", "one sees 3"))
    (printed_book.root / two).unlink()
    done = printed_book.press("build")
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (one, two):
        assert f"{path} is not what was printed; it will be printed again" in done.stdout
    assert printed_book.read(one) == before
    assert "two sees 20" in printed_book.read(two)
    assert printed.is_current(printed_book.root)


def test_other_files_that_were_edited_or_deleted_come_back(printed_book: SmallBook) -> None:
    style, index = "_build/html/_static/basic.css", "_build/html/objects.inv"
    before = [(printed_book.root / path).read_bytes() for path in (style, index)]
    printed_book.write(style, "none")
    (printed_book.root / index).unlink()
    assert printed_book.press("build").returncode == 0
    assert [(printed_book.root / path).read_bytes() for path in (style, index)] == before
    assert printed.is_current(printed_book.root)


def test_a_print_that_failed_is_not_remembered(printed_book: SmallBook) -> None:
    printed_book.replace("book/one.md", "Prose of", "See {ref}`nowhere`. Prose of")
    assert printed_book.press("build", "-q").returncode == 1
    assert not printed.is_current(printed_book.root)
    assert printed_book.press("build", "-q").returncode == 1
    printed_book.replace("book/one.md", "See {ref}`nowhere`. ", "")
    assert printed_book.press("build", "-q").returncode == 0
    assert printed.is_current(printed_book.root)


def test_what_changes_during_a_print_is_not_taken_for_printed(printed_book: SmallBook) -> None:
    before = printed.sources(printed_book.root)
    printed_book.write("book/index.md", "# A small book\n\nChanged meanwhile.\n")
    printed.remember(printed_book.root, before)
    assert not printed.is_current(printed_book.root)
    assert printed_book.press("build", "-q").returncode == 0
    assert "Changed meanwhile" in printed_book.page("book/index")


def test_after_a_print_by_other_means_pages_are_those_of_that_print(
    printed_book: SmallBook,
) -> None:
    printed_book.replace("book/one.md", "Prose of", "New prose of")
    assert printed_book.jupyter_book("-q").returncode == 0
    assert not printed.is_current(printed_book.root)
    done = printed_book.press("build")
    assert "is not what was printed" not in done.stdout
    assert "New prose of" in printed_book.page("book/one")
    assert printed.is_current(printed_book.root)
