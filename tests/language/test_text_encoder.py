"""An encoder with its tokenizer."""

from __future__ import annotations

import pytest
import torch
from measured_transformer import Config, Decoder, Encoder, capture
from measured_transformer.interop import Tokenizer
from measured_transformer.language import TextEncoder

CONFIG = Config(vocab=256, d_model=32, n_layers=2, n_heads=4, head="none", positions="learned")
TEXTS = ["A cat sits.", "Köln", "The third text is the longest of them."]


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return TextEncoder(Encoder(CONFIG).eval(), Tokenizer.of_bytes(), about="fresh")


def test_a_text_gives_the_states_of_its_tokens(encoder):
    tokens = torch.tensor([list(TEXTS[0].encode())])
    assert torch.equal(encoder(TEXTS[0]), encoder.model(tokens))
    with capture(encoder, "final_state") as seen:
        states = encoder(tokens)
    assert torch.equal(seen["final_state"], states)
    assert list(encoder.state_dict()) == list(encoder.model.state_dict())


def test_a_vector_is_the_mean_of_the_states_of_one_text(encoder):
    vectors = encoder.vectors(TEXTS)
    for vector, text in zip(vectors, TEXTS, strict=True):
        mean = encoder(text)[0].mean(dim=0)
        torch.testing.assert_close(vector, mean / mean.norm())
    assert not vectors.requires_grad


def test_it_says_what_it_is_and_how_far_it_reads(encoder):
    assert repr(encoder) == (
        "TextEncoder(fresh; 2 blocks, width 32, 4 heads, 256 tokens, context 256)"
    )
    with pytest.raises(ValueError, match="at most 256 tokens at once, got 257"):
        encoder("x" * 257)


def test_what_makes_no_sense_is_refused(unhooked, encoder):
    with pytest.raises(ValueError, match="a list of texts, got one text"):
        encoder.vectors("one")
    with pytest.raises(ValueError, match="expected an Encoder, got Decoder"):
        TextEncoder(Decoder(CONFIG), encoder.tokenizer)
    with_head = TextEncoder(Encoder(CONFIG.replace(head="linear")), encoder.tokenizer)
    with pytest.raises(ValueError, match="has a head"):
        with_head.vectors(TEXTS)
