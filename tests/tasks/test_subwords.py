"""Captions in subwords, on a few captions in the place of the corpus."""

import pytest
import torch
from fake_captions import fake_captions
from measured_transformer.tasks import subwords
from measured_transformer.tasks.subwords import SubwordTranslation
from measured_transformer.tasks.task import held_out

CAPTIONS = {
    ("train", "en"): ["Two dogs play in the snow.", "A man reads.", "A very long caption " * 9],
    ("train", "de"): ["Zwei Hunde spielen im Schnee.", "Ein Mann liest.", "Ein langer Satz " * 9],
    ("test", "en"): ["Two men play."],
    ("test", "de"): ["Zwei Männer spielen."],
}


@pytest.fixture
def task():
    with fake_captions(lambda part, language: CAPTIONS[part, language]):
        yield SubwordTranslation(pieces=300, most_tokens=30)


def test_pieces_write_every_caption(task):
    made = task.tokenizer()
    for source, target in task.pairs():
        for side in (source, target):
            text = made.decode([task.words().index(piece) for piece in side])
            assert any(text in lines for lines in CAPTIONS.values())
    assert len(task.pairs()) == 2, "one is too long"


def test_a_word_that_training_never_saw_is_cut_not_unknown(task):
    batch = held_out(task, "test").batch(torch.Generator().manual_seed(0), 3)
    assert task.vocab == 304
    for tokens in (batch.source, batch.targets):
        assert int(tokens.max()) < task.vocab
        assert not (tokens == task.unknown).any()
    assert (batch.targets == task.end).any(1).all()


def test_tokens_are_spelled_as_text_up_to_their_end(task):
    batch = held_out(task, "test").batch(torch.Generator().manual_seed(0), 1)
    assert task.text(batch.targets[0]) == "Zwei Männer spielen."
    begun = task.text(batch.inputs[0, :4])
    assert len(begun) > 2
    assert "Zwei Männer spielen.".startswith(begun), "the start is left out"
    assert task.text(torch.tensor([task.unknown, task.padding, task.end, 65])) == ""


def test_pieces_are_not_looked_up_again_for_every_token(task, monkeypatch):
    task.batch(torch.Generator().manual_seed(0), 1)
    monkeypatch.setattr(subwords, "_tokenizer", lambda pieces: pytest.fail("asked again"))
    assert task.batch(torch.Generator().manual_seed(0), 4).source.shape == (4, 31)


def test_other_limits_and_languages_are_refused(unhooked):
    with pytest.raises(ValueError, match="256 bytes, got 100"):
        SubwordTranslation(pieces=100)
    with pytest.raises(ValueError, match="expected en and de, got 'en' and 'en'"):
        SubwordTranslation("en", "en")
    with pytest.raises(ValueError, match="most_tokens must be a positive whole number"):
        SubwordTranslation(most_tokens=0)
