"""A room of its own for each test, inside a book of its own."""

from collections.abc import Iterator
from pathlib import Path

import measured_book.rooms
import pytest
from demo_room import CLAIMS, MEASURE, Inline, Room
from measured_book.evidence import registry, results


@pytest.fixture
def inline() -> Inline:
    return Inline()


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    chapters = tmp_path / "chapters"
    folder = chapters / "demo"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "claims.toml").write_text(CLAIMS)
    book = tmp_path / "a-book"
    (book / "book").mkdir(parents=True)
    (book / "_config.yml").write_text("")
    monkeypatch.chdir(book)
    monkeypatch.setattr(results, "_CHAPTERS", chapters)
    monkeypatch.setattr(measured_book.rooms, "__path__", [str(chapters)])
    known = registry.parse_claims(CLAIMS, "claims.toml")
    monkeypatch.setattr(registry, "_packaged", lambda: known)
    made = Room(folder, "demo")
    made.write(MEASURE)
    yield made
    made.reload()
