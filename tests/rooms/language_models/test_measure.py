"""Identities and their controls, leaks, weights that come back, texts, and what is fitted to what."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.language_models import measure
from measured_book.rooms.language_models.identities import (
    PAIRS,
    branching,
    checkpoint,
    other_sequences,
    sampled,
    unembedding,
)
from measured_book.rooms.language_models.measure import (
    DURATIONS,
    GRAM,
    HELD_OUT,
    MODEL,
    SIZES,
    TEXT,
    WAYS,
    WORLD,
    Peeking,
    book_model,
    continued,
    counted_perplexity,
    honest_losses,
    known_words,
    one_batch,
    operations,
    packed,
    parameters_of,
    repeated,
    surprise,
    text_of,
    unpacked,
    whole_text,
    words,
)
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.byte_pairs import merges_of, pieces, tokens_of
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator
from torch import nn
from torch.nn import functional as F

RESULTS = load_results("language_models")
NOT_ZERO = {"transposed", "mixed", "kept", "moves"}
"""Checks of which the first number is no error: it refutes a reading, or says that something is so."""


@pytest.mark.parametrize("name", PAIRS)
def test_identities_hold_and_their_controls_fail(name: str) -> None:
    for draw in (1, 4):
        error, control = PAIRS[name](draw)
        if name in ("kept", "moves"):
            assert (error, control) == (1.0, 0.0)
        else:
            assert abs(control) > 1e-3
            assert (abs(error) > 1e-3) == (name in NOT_ZERO)


def test_single_checks() -> None:
    exists, without_norm, with_norm = unembedding(3)
    assert exists == 0.0
    assert without_norm[0] > 1e-3 > with_norm[0]
    p, other = sampled(2)
    assert p > 1e-6 > other
    assert abs(branching(5)[2]) < 1e-12
    whole, without, refused = checkpoint(0)
    assert (whole[0], without, refused) == (0.0, 0.0, 1.0)
    assert one_batch() < 0.01
    layer = nn.TransformerDecoderLayer(8, 2)
    assert other_sequences(nn.TransformerDecoder(layer, 3)) == 4
    assert other_sequences(nn.Linear(2, 2)) == 0


def test_the_model_that_peeks_has_the_same_sequences() -> None:
    ours, theirs = (task.batch(make_generator(0, "x"), 3) for task in (WORLD, Peeking()))
    assert torch.equal(ours.inputs, theirs.inputs)
    assert not Peeking().causal
    assert (Peeking().vocab, Peeking().length) == (WORLD.vocab, WORLD.length)


@torch.no_grad()
def test_honest_losses_of_a_causal_model_are_its_losses() -> None:
    batch = WORLD.batch(make_generator(0, "x"), 4)
    config = Config(vocab=WORLD.vocab, d_model=16, n_layers=1, n_heads=2)
    model = make_model(config, causal=True, seed=0).eval().double()
    costs = F.cross_entropy(model(batch.inputs).transpose(1, 2), batch.targets, reduction="none")[
        batch.scored
    ]
    torch.testing.assert_close(honest_losses(model, batch), costs)
    open_ = make_model(config, causal=False, seed=0).eval().double()
    inside = F.cross_entropy(open_(batch.inputs).transpose(1, 2), batch.targets, reduction="none")[
        batch.scored
    ]
    assert not torch.allclose(honest_losses(open_, batch), inside)


def test_perplexity_of_counts_grows_with_the_vocabulary() -> None:
    few, many = counted_perplexity(200), counted_perplexity(2000)
    assert 1 < few < many < 2000
    assert " ".join(words("test"))[:20].strip()


@torch.no_grad()
def test_bits_of_a_text_that_nobody_can_guess() -> None:
    config = Config(vocab=300, d_model=8, n_layers=1, n_heads=1)
    model = make_model(config, causal=True, seed=0).eval()
    assert model.unembedding is not None
    model.unembedding.weight.zero_()
    nats, size = whole_text(model, 44, "validation")
    assert nats == pytest.approx(math.log(300))
    sizes = [len(pieces(merges_of(44))[t]) for t in tokens_of(44, "validation").tolist()]
    assert size == pytest.approx(float(np.mean(sizes)), rel=0.01)


def test_weights_come_back_in_half_precision() -> None:
    model = make_model(MODEL, causal=True, seed=3)
    blank = make_model(MODEL, causal=True, seed=0)
    again = unpacked(packed(model), blank)
    for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a.half().float(), b)
    with pytest.raises(ValueError, match="weights"):
        unpacked(packed(model)[:-1], blank)


def test_the_kept_model_knows_its_text() -> None:
    model = book_model(RESULTS["kept"])
    nats, size = whole_text(model, 0, "test", length=128)
    assert size == 1.0
    kept = RESULTS["author"].bits.sel(last="right", part="test").values[0]
    assert nats / math.log(2) == pytest.approx(float(kept), abs=0.01)
    for way in (*WAYS, TEXT):
        assert text_of(RESULTS["kept"], way)[:40] == text_of(RESULTS["kept"], TEXT)[:40]


def test_what_is_written_and_what_it_costs() -> None:
    model = make_model(MODEL, causal=True, seed=0).eval()
    assert isinstance(model, Decoder)
    prompts, real = measure._passages(0)
    assert prompts.shape == (measure.TEXTS, measure.PROMPT)
    said = continued(model, "T = 1", prompts[:2], 0)
    assert [len(text) for text in said.tokens] == [measure.WRITTEN] * 2
    uniform = 8.0  # of 256 bytes
    assert surprise(model, prompts, real) > uniform / 2


def test_repetition_and_words_by_hand() -> None:
    assert repeated(list(range(100))) == 0
    assert repeated([1] * (GRAM + 9)) == pytest.approx(0.9)
    assert known_words(b"cut the zzzz value off") == pytest.approx(2 / 3)


def test_the_law_is_fitted_to_the_cheaper_runs() -> None:
    every = [(s, d) for s in SIZES for d in DURATIONS]
    dear = [one for one in every if operations(*one) >= HELD_OUT]
    assert dear == [("32 x 2", 1620), ("64 x 2", 540), ("64 x 2", 1620)]
    for size, (width, layers, heads) in SIZES.items():
        model = make_model(
            Config(vocab=256, d_model=width, n_layers=layers, n_heads=heads, positions="rotary"),
            causal=True,
            seed=0,
        )
        matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2) - 256 * width
        assert parameters_of(size) == matrices
