"""The live model of the page: the book's own, and what the page says of its first texts."""

from __future__ import annotations

import pytest
import torch
from measured_book import load_result
from measured_book.rooms.language_models.measure import MODEL, book_model
from measured_book.rooms.workbench.live import (
    CONFIG,
    TEXTS,
    byte_model,
    kept_sentences,
    live_byte_model,
)
from measured_transformer.analysis.ablation import ablated, heads
from measured_transformer.tasks.byte_pairs import tokens_of


def test_it_is_the_model_that_language_models_keeps():
    own, kept = (
        byte_model().state_dict(),
        book_model(load_result("language_models", "kept")).state_dict(),
    )
    assert CONFIG == MODEL
    assert own.keys() == kept.keys()
    assert all(torch.equal(own[name], kept[name]) for name in own)


def test_kept_sentences_are_of_the_part_that_no_model_was_trained_on():
    whole = bytes(tokens_of(0, "test").tolist())
    assert kept_sentences().shape == (256, 64)
    assert all(bytes(row.tolist()) in whole for row in kept_sentences()[:20])


def next_letter(model, text):
    return chr(int(model(torch.tensor([list(text.encode())]))[0, -1].argmax()))


@torch.no_grad()
def test_what_the_page_says_of_its_texts():
    model = byte_model()
    assert next_letter(model, TEXTS[0]) == "o"
    changed = 0
    for head in heads(model):
        with ablated(model, [head], "zero"):
            changed += next_letter(model, TEXTS[0]) == "l"
    assert 1 < changed < 12, "the page asks which ones do"
    assert TEXTS[1].endswith("returns the v")
    assert next_letter(model, TEXTS[1]) == "a"


def test_it_is_small_enough():
    assert len(live_byte_model()._packed) < 1_000_000


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_is_longer_than_what_it_reads(text):
    assert len(text.encode()) <= 64
