"""Captions: what is measured of them, on a few that are made up; and the listings of the page, which run."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fake_captions import fake_captions
from measured_book.rooms.encoder_decoder import measure
from measured_book.rooms.encoder_decoder.figures import caption_table
from measured_book.rooms.encoder_decoder.measure import (
    CAPTIONS,
    bleu,
    letters,
    source_loss,
    written,
)
from measured_book.rooms.encoder_decoder.measure import (
    test_captions as captions_to_translate,
)
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.interop.translator import load_translator
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.training import loop
from xarray import Dataset

PAGE = Path(__file__).parents[3] / "book" / "translation" / "encoder-decoder.md"


@pytest.fixture(autouse=True)
def few() -> Iterator[None]:
    captions_to_translate.cache_clear()
    with fake_captions():
        yield
    captions_to_translate.cache_clear()


def trained() -> EncoderDecoder:
    """A model that knows the dozen captions by heart."""
    config = measure.ORIGINAL.replace(vocab=CAPTIONS.vocab, d_model=32, n_layers=1, dropout=0.0)
    run = loop.train(config, CAPTIONS, steps=120, learning_rate=0.01, seed=0)
    assert isinstance(run.model, EncoderDecoder)
    return run.model


def test_a_model_that_knows_the_captions_gets_all_of_bleu_and_needs_its_source() -> None:
    model, batch = trained(), captions_to_translate()
    assert len({tuple(row) for row in batch.source.tolist()}) == len(batch.source) == 12
    references = [CAPTIONS.text(row) for row in batch.targets]
    for strategy in (None, BeamSearch(3, 1.0)):
        texts = written(model, batch, strategy)
        assert texts == references
        assert bleu(texts, references) == pytest.approx((1.0, 1.0))
    assert source_loss(model, batch, 0) < 0.1
    assert source_loss(model, batch, 1) > 1.0


def test_bleu_is_that_of_sacrebleus_usual_tokenizer() -> None:
    ours = ["Zwei Hunde spielen im Schnee.", "Ein Mann liest ein Buch."]
    people = ["Zwei Hunde spielen im tiefen Schnee.", "Ein Mann liest in einem Buch."]
    score, length = bleu(ours, people)
    assert score == pytest.approx(0.378804, abs=1e-6)  # sacrebleu people -i ours -m bleu -w 4
    assert length == pytest.approx(12 / 14)


def test_texts_come_back_from_their_numbers() -> None:
    texts = ["Männer: zwei", "", "x" * 500]
    axes, rows = letters(texts)
    values = {name: (("seed", *axes), [rows]) for name in ("source", "reference", "beam")}
    assert [row[0] for row in caption_table(Dataset(values)).rows] == [texts[0], "", "x" * 160]


def listings() -> list[str]:
    """The trainings that the page prints."""
    found = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [code for code in found if "run = train(" in code]


@pytest.mark.parametrize("number", range(len(listings())))
def test_what_the_page_prints_trains(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, shortened = re.subn(r"\bsteps=[\d_]+", "steps=2", listings()[number])
    assert shortened == 1
    names: dict[str, Any] = {}
    exec(code, names)
    assert len(names["run"].losses) == 2
    if "save_translator" in code:
        model, tokenizer = load_translator("translator.safetensors")
        assert tokenizer == names["task"].tokenizer().to_str()
        tokens = torch.zeros(1, 3, dtype=torch.int64)
        torch.testing.assert_close(model(tokens, tokens), names["run"].model.eval()(tokens, tokens))


def test_the_listing_is_what_was_measured() -> None:
    (code,) = [code for code in listings() if "save_translator" in code]
    asked: list[Any] = []

    def noted(config: Any, task: Any, **settings: Any) -> Any:
        asked.append((config, task, settings))
        return train(config, task, **settings | {"steps": 1})

    train = loop.train
    with mock.patch("measured_transformer.training.loop.train", noted):
        names = {"save_translator": None}
        exec(re.sub(r"^save_translator\(.*$", "", code, flags=re.MULTILINE), names)
    ((config, task, settings),) = asked
    job = measure.caption_trainings(0)["model"]
    assert config.replace(vocab=job.config.vocab) == job.config
    assert task == job.task
    told = {name: value for name, value in settings.items() if name not in ("seed", "progress")}
    assert told == {name: job.settings[name] for name in told}
    assert len(told) == 8
