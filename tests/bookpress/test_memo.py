"""What is remembered of chapters is what would be found out, whatever changed, and spares finding it out."""

from __future__ import annotations

from pathlib import Path

import pytest
from bookpress import cache, chapters, fingerprint, memo
from bookpress.memo import Code, Memo, memo_of
from small_book import SmallBook


def found_out(book: SmallBook) -> dict[str, tuple[fingerprint.Stamp, str]]:
    """Fingerprint and key of each chapter, with nothing remembered."""
    memo_of.cache_clear()
    (book.root / memo.FILE).unlink(missing_ok=True)
    return asked(book)


def asked(book: SmallBook) -> dict[str, tuple[fingerprint.Stamp, str]]:
    told = {}
    for chapter in chapters.load_book(book.root).chapters:
        stamp = fingerprint.stamp(book.root, chapter.path)
        notebook = chapters.notebook(chapter, stamp.digest)
        told[chapter.path.stem] = (stamp, cache.key_of(notebook))
    return told


def remembered(book: SmallBook) -> dict[str, str]:
    """The keys of up-to-date chapters, as a new process finds them."""
    memo_of.cache_clear()
    _, states = book.warnings_and_states()
    return {name: state.entry.key for name, state in states.items() if state.entry}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("lib/tiny/glass.py", "return 1", "return 2"),
        ("lib/tiny/lens.py", "+ 1", "+ 2"),
        ("book/one.md", "Prose of", "Other prose of"),
        ("book/one.md", "one sees", "one saw"),
        ("book/one.md", "from tiny.lens", "from tiny.mirror"),
        ("book/part/two.md", "kernelspec:", "other: true\nkernelspec:"),
        ("data/numbers.csv", "1,2,3", "1,2,4"),
        ("requirements.txt", "numpy==2.0", "numpy==2.1"),
        ("_config.yml", "execute:", "parse:\n  myst_enable_extensions: [amsmath]\nexecute:"),
    ],
)
def test_after_a_change_what_is_remembered_is_what_is_found_out(
    book: SmallBook, path: str, old: str, new: str
) -> None:
    assert remembered(book).keys() == {"one", "two"}
    book.replace(path, old, new)
    memo_of.cache_clear()
    now = asked(book)
    assert now == found_out(book)
    kept = {name: key for name, (_, key) in now.items()}
    assert remembered(book).items() <= kept.items()


def test_a_module_that_takes_the_place_of_another_is_found(book: SmallBook) -> None:
    book.replace(
        "book/one.md", "from tiny.lens import seen", "from tiny.lens import *\nimport late"
    )
    assert remembered(book) is not None
    book.write("lib/late.py", "def seen():\n    return 3\n")
    memo_of.cache_clear()
    assert asked(book) == found_out(book)


def test_nothing_is_found_out_twice(book: SmallBook, monkeypatch: pytest.MonkeyPatch) -> None:
    before = remembered(book)
    assert before.keys() == {"one", "two"}
    read: list[str] = []
    notebook = chapters.read_notebook
    monkeypatch.setattr(
        chapters,
        "read_notebook",
        lambda text, path: read.append(path.stem) or notebook(text, path),
    )
    assert remembered(book) == before
    assert read == []
    book.replace("book/one.md", "Prose of", "Other prose of")
    assert remembered(book) == before
    assert set(read) == {"one"}


def test_a_file_that_cannot_be_read_is_forgotten(book: SmallBook) -> None:
    before = remembered(book)
    for text in ("", "[]", "{}", '{"state": 1, "chapters": 2}'):
        book.write(memo.FILE, text)
        assert remembered(book) == before


def test_code_outside_the_book_counts(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    outside = tmp_path / "elsewhere.py"
    outside.write_text("A = 1\n")
    known, looked = Memo(tmp_path / "book"), []

    def look() -> Code:
        looked.append(outside.read_text())
        return Code("digest", {}, [str(outside)])

    for _ in range(2):
        known.code(Path("one.md"), "text", look)
    assert len(looked) == 1
    outside.write_text("A = 2\n")
    known.code(Path("one.md"), "text", look)
    assert len(looked) == 2
