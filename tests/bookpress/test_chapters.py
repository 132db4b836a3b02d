"""Chapters are found in the book's order and read as the pages will see them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from bookpress.chapters import (
    cell_line,
    find_root,
    front_matter,
    is_chapter,
    load_book,
    notebook,
    read_notebook,
    rooms_of,
    shared_with,
    stamped,
)
from small_book import SmallBook

ROOT = Path(__file__).parents[2]


def test_the_book_lists_its_chapters_in_order_and_leaves_out_pages_without_code(
    new_book: SmallBook,
) -> None:
    book = load_book(new_book.root)
    assert [chapter.source for chapter in book.chapters] == ["book/one.md", "book/part/two.md"]
    assert [chapter.docname for chapter in book.chapters] == ["book/one", "book/part/two"]
    assert [chapter.title for chapter in book.chapters] == ["Chapter one", "Chapter two"]


def test_a_page_that_is_not_there_is_named(new_book: SmallBook) -> None:
    new_book.replace("_toc.yml", "book/one", "book/three")
    with pytest.raises(ValueError, match="names 'book/three'"):
        load_book(new_book.root)


def test_two_chapters_of_one_name_would_share_their_records(new_book: SmallBook) -> None:
    new_book.write("book/part/one.md", new_book.read("book/one.md"))
    new_book.replace("_toc.yml", "book/part/two", "book/part/one")
    with pytest.raises(ValueError, match="expected one chapter called one, got 2"):
        load_book(new_book.root)


def test_the_root_is_found_from_below(new_book: SmallBook, tmp_path: Path) -> None:
    assert find_root(new_book.root / "book/part/two.md") == new_book.root
    assert find_root(new_book.root) == new_book.root
    assert find_root(tmp_path) is None


def test_prose_and_pages_without_front_matter_are_no_chapters(new_book: SmallBook) -> None:
    assert is_chapter(new_book.root / "book/one.md")
    assert not is_chapter(new_book.root / "book/index.md")
    assert not is_chapter(new_book.root / "book/none.md")
    assert not is_chapter(new_book.root / "book/one.md", "```{code-cell}\n1\n```\n")


def test_a_stamp_keeps_every_line_where_it_was(new_book: SmallBook) -> None:
    text = new_book.read("book/part/two.md")
    marked = stamped(text, "abc123")
    assert marked.count("\n") == text.count("\n")
    body = text.splitlines().index("# Chapter two")
    assert marked.splitlines()[body:] == text.splitlines()[body:]
    expected = yaml.safe_load(text.split("---")[1])
    expected["kernelspec"] |= {"fingerprint": "abc123", "language": "python"}
    assert front_matter(marked) == expected
    path = new_book.root / "book/part/two.md"
    before, after = read_notebook(text, path), read_notebook(marked, path)
    assert after.metadata.source_map == before.metadata.source_map
    assert [c.source for c in after.cells] == [c.source for c in before.cells]
    assert after.metadata.kernelspec.fingerprint == "abc123"


def test_a_page_without_kernelspec_gets_the_running_interpreters(new_book: SmallBook) -> None:
    path = new_book.root / "book/one.md"
    read = read_notebook(stamped("---\nfile_format: mystnb\n---\n# T\n", "f"), path)
    assert read.metadata.kernelspec["name"] == "python3"
    with pytest.raises(ValueError, match="front matter"):
        stamped("# T\n", "f")


def test_cells_and_their_lines(new_book: SmallBook) -> None:
    chapter = load_book(new_book.root).chapters[0]
    read = notebook(chapter)
    code = [index for index, cell in enumerate(read.cells) if cell.cell_type == "code"]
    assert [cell_line(chapter, read, index) for index in code] == [15, 24]
    lines = chapter.path.read_text("utf-8").splitlines()
    for index in code:
        line = lines[cell_line(chapter, read, index) - 1]
        assert line == read.cells[index].source.splitlines()[0]
    assert read.cells[code[1]].metadata == {"tags": ["remove-input"]}
    assert "fingerprint" not in read.metadata.kernelspec


def test_the_books_own_syntax_extensions_decide_what_is_a_cell(new_book: SmallBook) -> None:
    text = "---\nfile_format: mystnb\n---\n\n:::{note}\n```{code-cell}\n1\n```\n:::\n"
    path = new_book.root / "book/one.md"
    assert [c.cell_type for c in read_notebook(text, path).cells] == ["markdown"]
    other = SmallBook(new_book.root.parent / "other")
    other.write("_toc.yml", "format: jb-book\nroot: x\n")
    other.write("_config.yml", "parse:\n  myst_enable_extensions: [dollarmath]\n")
    cells = read_notebook(text, other.root / "x.md").cells
    assert [c.cell_type for c in cells] == ["markdown", "code", "markdown"]


@pytest.mark.parametrize(
    ("about", "pages"),
    [
        ({"measured": {"room": "rate", "shared": ["book/a", "book/b"]}}, ["book/a", "book/b"]),
        ({"measured": {"room": "rate"}}, []),
        ({"measured": "rate"}, []),
        ({}, []),
    ],
)
def test_a_page_names_the_pages_that_its_rooms_feed_too(about, pages):
    assert shared_with(about) == pages


def test_pages_of_one_room_name_one_another():
    book = {chapter.docname: front(chapter) for chapter in load_book(ROOT).chapters}
    shared = {name: shared_with(about) for name, about in book.items()}
    for name, others in shared.items():
        for other in others:
            assert name in shared[other]
            assert set(rooms_of(book[name])) & set(rooms_of(book[other]))


def front(chapter):
    return front_matter(chapter.path.read_text("utf-8"))
