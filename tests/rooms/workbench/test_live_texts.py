"""The live model of the page: the book's own, and what the page says of its first texts."""

from __future__ import annotations

import pytest
import torch
from measured_book import load_result
from measured_book.rooms.language_models.measure import MODEL, book_model
from measured_book.rooms.workbench import stories
from measured_book.rooms.workbench.live import (
    CONFIG,
    STORY_TEXTS,
    TEXTS,
    byte_model,
    kept_lens,
    kept_sentences,
    kept_stories,
    live_byte_model,
    live_models,
    live_story_model,
    story_merges,
    story_model,
)
from measured_book.rooms.workbench.measure import REACH, STORY, byte_reader, rows_of, story_reader
from measured_transformer.analysis.ablation import ablated, heads
from measured_transformer.tasks.byte_pairs import tokens_of
from measured_transformer.viewer.live_weights import rounded


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
    assert len(live_byte_model().packed) < 1_000_000, "770 kB are weights, 56 kB the tuned lens"


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_is_longer_than_what_it_reads(text):
    assert len(text.encode()) <= 64


def test_the_teller_of_stories_is_served_as_it_is_kept():
    bench = live_story_model()
    assert all(
        torch.equal(one, other)
        for one, other in zip(story_model().parameters(), bench.model.parameters(), strict=True)
    ), "what is kept in eight bits is not rounded again"
    assert torch.equal(
        rounded(story_model(), 8).token_embedding.weight, story_model().token_embedding.weight
    )
    assert story_merges() == stories.merges()
    whole = stories.text_of("test").decode()
    said = [b"".join(_spelled(row)).decode() for row in kept_stories()[:20]]
    assert all(text in whole for text in said)


def _spelled(row):
    from measured_transformer.tasks.byte_pairs import pieces

    known = pieces(story_merges())
    return [known[token] for token in row.tolist()]


def test_no_story_to_pick_is_longer_than_what_it_reads():
    assert all(len(stories.encoded(text)) <= 64 for text in STORY_TEXTS)


@torch.no_grad()
@pytest.mark.parametrize("which", ["byte_lens", "teller"])
def test_the_kept_lenses_read_what_is_kept_of_them(which):
    result = load_result("workbench", which).isel(seed=0)
    if which == "teller":
        model, config = story_model(), STORY
        held = rows_of(stories.tokens_of("test"), stories.Stories.length)
    else:
        model, config = byte_model(), CONFIG
        held = rows_of(tokens_of(0, "test"), REACH)
    lens = kept_lens(config, result.lens)
    assert torch.allclose(
        torch.tensor(lens.read(model, held).loss), torch.tensor(result.tuned.values), atol=1e-3
    )
    assert (result.tuned.values[:-1] < result.logit.values[:-1]).all(), "a fitted lens reads better"


def test_what_the_table_says_is_what_the_kept_models_do():
    """A few of the questions anew, with the models that the page serves."""
    from measured_book.rooms.workbench.abilities import copying, facts

    for reader, name in (
        (byte_reader(), "bytes_asked"),
        (story_reader(story_model()), "teller_asked"),
    ):
        result = load_result("workbench", name).isel(seed=0)
        assert facts(reader)[0] == pytest.approx(result.facts.values.tolist(), abs=0.03)
        found = copying(reader, 0)
        assert found["copied"] == pytest.approx(float(result.copied), abs=0.01)


def test_both_are_there_to_choose_from():
    chosen = live_models()
    assert [each.title for each in chosen.models.values()] == [
        live_byte_model().title,
        live_story_model().title,
    ]
    assert len({each.packed for each in chosen.models.values()}) == 2
