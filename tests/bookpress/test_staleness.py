"""Pages are printed from chapters executed as they are now: by the press, and by Jupyter Book alone."""

from __future__ import annotations

import sys

from small_book import SmallBook


def test_the_press_prints_pages_and_prose_changes_without_a_run(book: SmallBook) -> None:
    done = book.press("build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith(f"the book: {book.root}/_build/html/index.html")
    assert book.runs() == []
    assert "one sees 2" in book.page("book/one")
    assert "two sees 20" in book.page("book/part/two")

    book.replace("book/one.md", "Prose of chapter one", "Better prose")
    book.replace("_toc.yml", "- file: book/part/two\n", "- file: book/third\n")
    book.write("book/third.md", "# A third page\n")
    done = book.press("build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert book.runs() == []
    assert "Better prose" in book.page("book/one")
    assert "one sees 2" in book.page("book/one")
    assert not (book.root / "_build/html/book/part/two.html").exists(), "it left the book"
    assert (book.root / "_build/html/book/third.html").exists()
    for generated in ("genindex", "search", "index"):
        assert (book.root / f"_build/html/{generated}.html").exists()


def test_jupyter_book_alone_runs_what_is_stale_and_fails_on_a_failing_cell(
    book: SmallBook,
) -> None:
    book.replace("lib/tiny/glass.py", "return 1", "return 6")
    done = book.jupyter_book()
    assert done.returncode == 0, done.stdout + done.stderr
    assert book.runs() == ["one"]
    assert "[1/1] book/one.md ... " in done.stdout
    assert "one sees 7" in book.page("book/one")

    book.replace("lib/tiny/glass.py", "return 6", "raise RuntimeError('no glass')")
    for _ in range(2):
        failed = book.jupyter_book("-W", "--keep-going", "-n")
        assert failed.returncode != 0
        assert "book/one.md, code cell 2 (line 24)" in failed.stdout
        assert "RuntimeError: no glass" in failed.stdout
        assert failed.stderr.strip().endswith("because a chapter could not be executed")
        assert book.runs() == ["one"]
        assert "one sees 7" in book.page("book/one")

    book.replace("lib/tiny/glass.py", "raise RuntimeError('no glass')", "return 6")
    book.replace("lib/tiny/mirror.py", "20", "23")
    fixed = book.jupyter_book("-W", "--keep-going", "-n")
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert book.runs() == ["two"], "chapter one is as it was before it broke"
    assert "one sees 7" in book.page("book/one")
    assert "two sees 23" in book.page("book/part/two")


def test_a_page_follows_the_set_of_seeds_although_its_source_did_not_change(
    book: SmallBook,
) -> None:
    which = "import os\nprint('offset', os.environ.get('MEASURED_SEED_OFFSET', '0'))"
    book.replace("book/one.md", "print('one sees', seen())", which)
    assert book.jupyter_book("-q").returncode == 0
    assert "offset 0" in book.page("book/one")
    assert book.runs() == ["one"]
    assert book.jupyter_book("-q", MEASURED_SEED_OFFSET="1000").returncode == 0
    assert "offset 1000" in book.page("book/one")
    assert book.runs() == ["one", "two"]
    assert book.jupyter_book("-q").returncode == 0
    assert "offset 0" in book.page("book/one")
    assert book.runs() == []


def test_an_altered_executed_notebook_is_never_shown(book: SmallBook) -> None:
    stored = book.stored_notebook("one")
    stored.write_text(stored.read_text("utf-8").replace("one sees 2", "one sees 3"), "utf-8")
    done = book.jupyter_book()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the stored run of book/one.md is damaged" in done.stderr
    assert book.runs() == ["one"]
    assert "one sees 2" in book.page("book/one")


def test_a_warning_fails_the_second_build_as_well(book: SmallBook) -> None:
    book.replace("book/one.md", "Prose of", "See {ref}`nowhere`. Prose of")
    for _ in range(2):
        done = book.press("build", "-q")
        assert done.returncode == 1, done.stdout
        assert "nowhere" in done.stderr
    book.replace("book/one.md", "See {ref}`nowhere`. ", "")
    assert book.press("build", "-q").returncode == 0
    assert book.runs() == []


def test_one_page_alone_comes_from_the_same_executed_notebooks(book: SmallBook) -> None:
    book.replace("lib/tiny/mirror.py", "20", "24")
    book.replace("lib/tiny/glass.py", "return 1", "return 5")
    code = "from jupyter_book.cli.main import main; main()"
    done = book.run(sys.executable, "-c", code, "build", "book/one.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert book.runs() == ["one"]
    assert book.stale() == {"two"}


def test_a_page_that_the_order_does_not_name_is_shown_but_not_run(book: SmallBook) -> None:
    book.replace("_config.yml", "only_build_toc_files: true\n", "")
    book.replace("_toc.yml", "- file: book/part/two\n", "")
    book.replace("lib/tiny/mirror.py", "20", "25")
    done = book.jupyter_book()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "book/part/two is not in _toc.yml, so its cells were not executed" in done.stderr
    assert "Prose of chapter two" in book.page("book/part/two")
    assert book.runs() == []
