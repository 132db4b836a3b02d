"""A sentence by one call: its attention and what is predicted in it, with words or without."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from measured_transformer import Config, Decoder, Encoder, EncoderDecoder, TextFile, capture
from measured_transformer.viewer.attention import attention_viewer
from measured_transformer.viewer.sentences import attention_in, predictions_in
from measured_transformer.viewer.workbench import workbench

CONFIG = Config(vocab=256, d_model=16, n_layers=2, n_heads=2, positions="rotary", dropout=0.3)
MODEL, TASK = Decoder(CONFIG), TextFile(__file__)
SMALL = Decoder(CONFIG.replace(vocab=3))
TEXT = "The <b>cat"


@dataclass
class Language:
    """A model with its tokenizer."""

    model: Any = MODEL
    tokenizer: Any = TASK

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)


def test_attention_is_that_of_the_model():
    tokens = torch.tensor([TASK.encode(TEXT)])
    with capture(MODEL.eval(), "blocks.*.attention.pattern") as seen, torch.no_grad():
        MODEL(tokens)
    by_hand = attention_viewer(seen, [*TEXT])
    for viewer in (
        attention_in(MODEL, TEXT, tokenizer=TASK),
        attention_in(Language(), TEXT),
        attention_in(MODEL.train(), tokens, tokenizer=TASK),
        attention_in(MODEL, tokens[0].tolist(), tokens=lambda number: chr(number)),
    ):
        assert viewer._repr_html_() == by_hand._repr_html_()
    assert MODEL.training
    assert "&lt;" in by_hand.html or "\\u003c" in by_hand.html


def test_sentences_of_any_lengths_and_some_layers():
    viewer = attention_in(MODEL, ["one", "and two"], tokenizer=TASK, layers=[1], title="Mine")
    assert repr(viewer) == "AttentionViewer(2 examples, 1 layer of 2 heads)"
    assert viewer.title == "Mine"
    assert "layer 1" in viewer.html.lower()


def test_numbers_are_shown_where_there_are_no_names():
    assert '"queries":["2","0"]' in attention_in(SMALL, [2, 0]).html
    assert '"queries":["c","a"]' in attention_in(SMALL, [2, 0], tokens=["a", "b", "c"]).html


def test_predictions_are_those_of_the_model():
    row = torch.tensor([TASK.encode(TEXT)])
    with torch.no_grad():
        chances = MODEL.eval()(row)[0].double().softmax(-1)
    found = predictions_in(Language(), TEXT, top=3)
    assert found.positions == tuple(range(10))
    assert found.read.tolist() == row[0].tolist()
    assert found.tokens.shape == found.chances.shape == (10, 3)
    assert np.array_equal(found.tokens[:, 0], chances.argmax(-1).numpy())
    assert np.allclose(found.chances, chances.topk(3).values.numpy())
    some = predictions_in(MODEL, TEXT, top=3, positions=[0, -1], tokenizer=TASK)
    assert some.positions == (0, 9)
    assert np.array_equal(some.tokens, found.tokens[[0, 9]])
    assert predictions_in(MODEL, TEXT, positions=-2, tokenizer=TASK).positions == (8,)
    assert predictions_in(SMALL, [0], top=10).tokens.shape == (1, 3)


def test_predictions_are_a_table_as_text_and_as_html():
    found = predictions_in(SMALL, [2, 0], tokens=["a", "<b>", " c\n"], top=2)
    lines = repr(found).splitlines()
    assert lines[0].split() == ["position", "token", "1", "2"]
    assert lines[1].split()[:2] == ["0", "␣c↵"]
    assert re.search(r"(a|<b>|␣c↵) 0\.\d\d", lines[2])
    html = found._repr_html_()
    assert html.count("<tr>") == 3
    assert "<b>" not in html
    assert "␣c↵" in html


def test_an_encoder_predicts_too():
    model = Encoder(CONFIG.replace(head="mlm"))
    assert predictions_in(model, TEXT, tokenizer=TASK).tokens.shape == (10, 5)
    attention_in(Encoder(CONFIG.replace(head="none")), TEXT, tokenizer=TASK)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: attention_in(MODEL, "x"), "got the text 'x' and no tokenizer"),
        (lambda: attention_in(EncoderDecoder(CONFIG), [1]), "got EncoderDecoder"),
        (lambda: attention_in(SMALL, [3]), "expected tokens from 0 to 2, got 3 to 3"),
        (lambda: attention_in(SMALL, [-1]), "expected tokens from 0 to 2, got -1"),
        (lambda: attention_in(SMALL, torch.tensor([0.5])), "expected a text or a list of token"),
        (lambda: attention_in(SMALL, torch.zeros(2, 2).long()), "expected a text or a list"),
        (lambda: attention_in(SMALL, [1], layers=[2]), "expected layers from 0 to 1, got 2"),
        (lambda: attention_in(SMALL, []), "expected a text or a list|empty list"),
        (
            lambda: attention_in(SMALL, [1], tokens=["a"]),
            "expected a name for each of the model's 3",
        ),
        (lambda: attention_in(SMALL, [1], tokenizer=3), "expected a tokenizer with id_to_token"),
        (lambda: attention_in(MODEL, "", tokenizer=TASK), "at least one, got 0"),
        (lambda: predictions_in(SMALL, [1], top=0), "top must be a positive whole number, got 0"),
        (lambda: predictions_in(SMALL, [1], positions=1), "expected positions from -1 to 0, got 1"),
        (lambda: predictions_in(SMALL, [[1], [2]]), "expected one sentence, got 2"),
        (lambda: predictions_in(Encoder(CONFIG.replace(head="none")), [1]), "no logits"),
    ],
)
@pytest.mark.usefixtures("unhooked")
def test_what_will_not_do_is_said(call: Any, said: str):
    with pytest.raises(ValueError, match=said):
        call()


def test_a_workbench_opens_a_model_with_its_tokenizer():
    model = Decoder(CONFIG.replace(dropout=0.0)).eval()
    whole = workbench(model, [TEXT], tokenizer=TASK, limit=10**7)
    assert workbench(Language(model), [TEXT], limit=10**7).html == whole.html
    assert TEXT[0] in whole._labels[0]
