"""What stops a print from outside is said in a line, and leaves everything as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from bookpress.cli import main
from measured_transformer.evidence import registry
from small_book import SmallBook


def files(book: SmallBook) -> dict[str, bytes]:
    """Everything that lies in a book's folder."""
    return {str(path): path.read_bytes() for path in book.root.rglob("*") if path.is_file()}


def test_a_registry_that_cannot_be_read_is_said_before_anything_runs(
    new_book: SmallBook,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    broken, before = tmp_path / "claims.toml", files(new_book)
    broken.write_text('chapter = "book/norms/one"\nclaim = = 3\n', "utf-8")
    monkeypatch.setattr(registry, "claims_files", lambda: {"one_norm": broken})
    registry._packaged.cache_clear()
    assert main(["build", "--root", str(new_book.root)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: one_norm/claims.toml: expected TOML, got text that breaks")
    assert said.err.count("\n") == 1
    assert files(new_book) == before
