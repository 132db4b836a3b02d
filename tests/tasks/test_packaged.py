"""Tokenizers of the package `tokenizers` cut texts into the same tokens as the tasks, and write them again."""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.tasks.byte_pairs import encode, learn_merges
from measured_transformer.tasks.opened_text import TEXT
from measured_transformer.tasks.packaged import character_tokenizer, piece_tokenizer
from measured_transformer.tasks.text_file import TextFile
from tokenizers import Tokenizer

BOOK = lzma.decompress(TEXT.read_bytes())[:60_000]
MERGES = learn_merges(BOOK, 300)
PIECES = piece_tokenizer(MERGES)
MIXED = "Der  Zug\t\tfährt 12ab, — ☃🙂\u00a0x\u2003y\x0b\x1c\r\n\n  end "


@pytest.mark.parametrize("text", [BOOK.decode(), MIXED, "", " ", "a", "\n", "a  b", " 1 2  3"])
def test_pieces_are_the_same(text: str):
    found = PIECES.encode(text)
    assert found.ids == encode(text.encode(), MERGES)
    assert PIECES.decode(found.ids) == text


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_pieces_of_any_text_are_the_same(text: str):
    assert PIECES.encode(text).ids == encode(text.encode(), MERGES)
    assert piece_tokenizer([]).encode(text).ids == list(text.encode())


def test_two_merges_of_one_piece_are_refused():
    with pytest.raises(ValueError, match="two merges make the same piece 'abc'"):
        piece_tokenizer([(97, 98), (98, 99), (256, 99), (97, 257)])


def test_characters_are_the_same(tmp_path: Path):
    path = tmp_path / "t"
    path.write_text("ab\n c😀" * 200, "utf-8")
    task = TextFile(path, level="character")
    made = task.tokenizer()
    for text in ("a b\ncab😀", MIXED, ""):
        assert made.encode(text).ids == task.encode(text)
    assert made.decode(task.encode("a b\nc😀")) == "a b\nc😀"
    assert made.get_vocab_size() == task.vocab
    both = character_tokenizer("a\ufffd")
    assert both.encode("a\ufffd!").ids == [1, 2, 0]


def test_a_tokenizer_comes_back_from_its_file(tmp_path: Path):
    path = tmp_path / "t"
    path.write_bytes(BOOK)
    task = TextFile(path, merges=60)
    task.tokenizer().save(str(tmp_path / "tokenizer.json"))
    again = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert again.encode(MIXED).ids == task.encode(MIXED)
    assert again.decode(task.encode(MIXED)) == MIXED
    assert again.get_vocab_size() == task.vocab


def test_without_the_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tokenizers"):
        piece_tokenizer([])
