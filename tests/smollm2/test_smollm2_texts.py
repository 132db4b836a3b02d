"""Draws of texts: the same everywhere, of the asked length, not overlapping."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest
import torch
from jaxtyping import TypeCheckError
from measured_book.smollm2 import texts
from measured_book.smollm2.sentences import sentence
from measured_transformer.interop.tokenizer import Tokenizer
from small_smollm2 import needs_smollm2

BYTES = Tokenizer.of_bytes()


@pytest.mark.parametrize("kind", ["reference", "book", "sentences"])
def test_a_draw_is_a_piece_of_its_source_at_the_beginning_of_a_paragraph(kind):
    drawn = texts.draw(3, kind, 4, 50, tokenizer=BYTES)
    assert drawn.shape == (4, 50)
    assert torch.equal(drawn, texts.draw(3, kind, 4, 50, tokenizer=BYTES))
    assert not torch.equal(drawn, texts.draw(4, kind, 4, 50, tokenizer=BYTES))
    written = [bytes(row.tolist()) for row in drawn]
    if kind == "sentences":
        assert all(one.startswith(b"The ") for one in written)
        return
    begins = [one.encode() for one in texts.source(kind)]
    whole = b"\n\n".join(begins)
    assert all(one in whole for one in written)
    assert all(any(p.startswith(one) or one.startswith(p) for p in begins) for one in written)


def test_the_texts_of_a_draw_do_not_overlap():
    drawn = texts.draw(0, "book", 60, 1500, tokenizer=BYTES)
    whole = "\n\n".join([*texts.source("book"), ""]).encode()
    places = sorted(whole.index(bytes(row.tolist())) for row in drawn)
    assert len(places) == 60
    assert min(b - a for a, b in pairwise(places)) >= 1500


@pytest.mark.parametrize("kind", ["reference", "book"])
def test_the_sources_are_paragraphs_of_their_files(kind):
    found = texts.source(kind)
    assert len(found) > 1000
    assert all(one.strip() and "\n\n" not in one for one in found)


def test_another_file_is_refused(monkeypatch, tmp_path):
    import lzma

    other = tmp_path / "book-prose.txt.xz"
    other.write_bytes(lzma.compress(b"another text"))
    monkeypatch.setattr(texts, "BOOK", other)
    with pytest.raises(ValueError, match=f"got {hashlib.sha256(b'another text').hexdigest()}"):
        texts.source.__wrapped__("book")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "poems"}, "'poems'"),
        ({"begin": "end"}, "'end'"),
        ({"n": 0}, "at least one text"),
        ({"tokens": 1, "first": 3}, "at least one text with a token of its own"),
        ({"n": 2, "tokens": 10**6}, "a source of 2 texts of 1000000 tokens, got 0"),
    ],
)
def test_what_cannot_be_drawn_is_said(given, words):
    with pytest.raises((ValueError, TypeCheckError), match=words):
        texts.draw(**{"seed": 0, "kind": "book", "n": 1, "tokens": 8, "tokenizer": BYTES, **given})


def test_a_first_token_is_refused_where_it_is_none():
    with pytest.raises((ValueError, TypeCheckError), match="'bos'"):
        texts.first_token("bos", BYTES)
    assert texts.first_token(7, BYTES) == 7


def test_sentences_are_of_the_grammar():
    generator = torch.Generator().manual_seed(0)
    said = [sentence(generator) for _ in range(200)]
    assert len(set(said)) > 190
    assert all(one.startswith("The ") and one.endswith(".") for one in said)
    assert all(5 <= len(one.split()) <= 24 for one in said)


@needs_smollm2
def test_draws_for_smollm2_are_equal_on_every_machine():
    """Their digests; draws of the same text without its first token are the same text."""
    drawn = [texts.draw(0, kind, 4, 24) for kind in ("reference", "book", "sentences")]
    found = hashlib.sha256(torch.stack(drawn).numpy().tobytes()).hexdigest()
    assert found[:16] == "9f31d72a2f442535"
    opened = texts.draw(0, "book", 4, 25, first="end")
    assert opened[:, 0].tolist() == [0] * 4
    assert torch.equal(opened[:, 1:], drawn[1])
    assert torch.equal(texts.with_first(drawn[1], "end"), opened)
    assert [texts.first_token(one) for one in texts.FIRST][:2] == [1, 0]


@needs_smollm2
def test_texts_that_begin_in_the_middle_begin_with_a_word():
    ordinary = set(texts.ordinary_tokens(texts.smollm2().tokenizer).tolist())
    drawn = texts.draw(0, "reference", 8, 20, begin="middle")
    assert {*drawn[:, 0].tolist()} <= ordinary
    assert len(ordinary) > 20_000


@needs_smollm2
def test_random_strings_repeat_as_asked():
    repeated = texts.repeated_strings(1, 3, 6, times=3, first="start")
    assert repeated.shape == (3, 19)
    parts = repeated[:, 1:].unflatten(1, (3, 6))
    assert bool((parts == parts[:, :1]).all())
    assert all(len(set(row)) == 6 for row in parts[:, 0].tolist())
    drawn = texts.random_strings(1, 3, 40)
    assert drawn.shape == (3, 40)
    assert len(drawn.unique()) > 100
