"""Text word by word: its vocabulary, its parts and its windows."""

import math

import pytest
import torch
from measured_transformer.tasks.word_text import WordText, vocabulary, word_tokens


def test_the_vocabulary_is_that_of_training_and_the_rest_is_unknown():
    words = vocabulary(50)
    assert len(set(words)) == 50
    assert words[0] == "<unk>"
    assert "the" in words[:8]
    tokens = word_tokens("train", 50)
    counts = torch.bincount(tokens, minlength=50)
    assert (counts[1:-1] >= counts[2:]).all(), "the more frequent first"
    assert 0 < word_tokens("validation", 50).max() < 50


def test_parts_follow_one_another_and_a_share_is_the_start():
    sizes = [len(WordText(part=part).tokens()) for part in ("train", "validation", "test")]
    assert sizes[0] == pytest.approx(8 * sizes[1], rel=1e-3)
    whole, tenth = WordText().tokens(), WordText(share=0.1).tokens()
    assert torch.equal(tenth, whole[: len(tenth)])
    assert len(tenth) == round(0.1 * len(whole))
    held = WordText(share=0.1, part="validation").tokens()
    assert len(held) == sizes[1], "of training alone a share is taken"


def test_windows_are_pieces_of_the_text():
    task = WordText(length=5)
    batch = task.batch(torch.Generator().manual_seed(0), 3)
    window = torch.cat((batch.inputs[0], batch.targets[0, -1:]))
    pieces = task.tokens().unfold(0, 6, 1)
    assert (pieces == window).all(1).any()
    assert len(task.text(window).split(" ")) == 6


def test_guessing_by_frequency_is_better_than_guessing_evenly():
    assert 0 < WordText(vocab=200, part="validation").unigram_loss() < math.log(200)


def test_what_does_not_fit_is_refused(unhooked):
    for call, message in (
        (lambda: WordText(share=0.0), "share above 0"),
        (lambda: WordText(vocab=1), "at least 2"),
        (lambda: WordText(share=1.5), "between 0 and 1"),
        (lambda: WordText(length=9000, part="test").batch(torch.Generator(), 1), "too few"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
