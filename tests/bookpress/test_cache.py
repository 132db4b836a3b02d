"""What is damaged in the store of executed notebooks is reported and never used."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import nbformat
import pytest
from bookpress.cache import FOLDER, with_outputs
from small_book import SmallBook


def cut_short(book: SmallBook) -> None:
    path = book.stored_notebook("one")
    path.write_bytes(path.read_bytes()[:-40])


def alter(book: SmallBook) -> None:
    path = book.stored_notebook("one")
    text = path.read_text("utf-8")
    assert "one sees 2" in text
    path.write_text(text.replace("one sees 2", "one sees 3"), "utf-8")


def delete(book: SmallBook) -> None:
    book.stored_notebook("one").unlink()


def drop_checksum(book: SmallBook) -> None:
    with sqlite3.connect(book.root / FOLDER / "global.db") as database:
        database.execute("update nbcache set data = '{}' where uri = 'book/one.md'")


@pytest.mark.parametrize("damage", [cut_short, alter, delete, drop_checksum])
def test_a_damaged_entry_is_reported_and_makes_its_chapter_stale(
    book: SmallBook, damage: Callable[[SmallBook], None]
) -> None:
    damage(book)
    warnings, states = book.warnings_and_states()
    assert len(warnings) == 1
    assert "the stored run of book/one.md is damaged" in warnings[0]
    assert "executed again" in warnings[0]
    assert states["one"].entry is None
    assert states["two"].entry is not None
    assert book.warnings_and_states()[0] == [], "reported once"
    assert book.stale() == {"one"}


def test_a_damaged_database_is_reported_and_makes_every_chapter_stale(book: SmallBook) -> None:
    (book.root / FOLDER / "global.db").write_bytes(b"no database" * 1000)
    warnings, states = book.warnings_and_states()
    assert len(warnings) == 1
    assert "all will be executed again" in warnings[0]
    assert all(state.entry is None for state in states.values())


def test_a_missing_row_is_no_damage_and_the_chapter_can_be_stored_again(book: SmallBook) -> None:
    with sqlite3.connect(book.root / FOLDER / "global.db") as database:
        database.execute("delete from nbcache where uri = 'book/one.md'")
    assert book.stale() == {"one"}
    assert book.press("execute").returncode == 0
    assert book.runs() == ["one"]
    assert book.stale() == set()


def test_an_altered_entry_runs_again_with_a_warning(book: SmallBook) -> None:
    alter(book)
    done = book.press("execute")
    assert done.returncode == 0
    assert "warning: the stored run of book/one.md is damaged" in done.stderr
    assert book.runs() == ["one"]
    assert "one sees 2" in book.stored_notebook("one").read_text("utf-8")


def test_outputs_move_into_the_source_and_nothing_else_does() -> None:
    source, ran = (nbformat.v4.new_notebook(metadata={"title": "source"}) for _ in range(2))
    source.cells = [nbformat.v4.new_markdown_cell("text"), nbformat.v4.new_code_cell("1 + 1")]
    ran.cells = [nbformat.v4.new_markdown_cell("text"), nbformat.v4.new_code_cell("1 + 1")]
    ran.cells[1].metadata["execution"] = {"started": "now"}
    ran.cells[1].outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "2"})]
    ran.cells[1].execution_count = 1
    ran.metadata["language_info"] = {"name": "python"}
    merged = with_outputs(source, ran)
    assert merged.cells[1].outputs == ran.cells[1].outputs
    assert merged.cells[1].execution_count == 1
    assert merged.cells[1].metadata == {}
    assert merged.metadata == {"title": "source", "language_info": {"name": "python"}}
    assert source.cells[1].outputs == []
    with pytest.raises(ValueError, match="expected 2 executed cells, got 1"):
        with_outputs(source, nbformat.v4.new_notebook(cells=ran.cells[:1]))
