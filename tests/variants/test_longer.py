"""Rotary models in longer sequences: closed forms, Hugging Face's utilities, a cache that drops keys."""

from __future__ import annotations

import math

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.positions import frequencies, rotation
from measured_transformer.parts.rotary_scaling import (
    dynamic_factor,
    interpolation,
    ntk_aware,
    ntk_by_parts,
    turns,
    yarn_stretch,
)
from measured_transformer.training.loop import make_model
from measured_transformer.variants.longer import (
    windowed,
    with_frequencies,
)
from torch.testing import assert_close

TINY = Config(vocab=8, d_model=16, n_heads=2, n_layers=2, positions="rotary")
TOKENS = torch.randint(8, (3, 30), generator=torch.Generator().manual_seed(0))


def made(**changes: object):
    return make_model(TINY.replace(**changes), causal=True, seed=0).double()


# Frequencies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [4, 16, 128])
@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0])
def test_the_larger_base_slows_the_slowest_pair_by_the_factor_and_the_fastest_not(
    d: int, factor: float
) -> None:
    ratio = frequencies(d) / ntk_aware(d, factor)
    assert ratio[0].item() == pytest.approx(1)
    assert ratio[-1].item() == pytest.approx(factor)
    pairs = torch.arange(d // 2, dtype=torch.float64)
    assert_close(ratio, factor ** (pairs / (d / 2 - 1)))


def test_by_parts_is_interpolation_where_slow_and_nothing_where_fast() -> None:
    old, new = frequencies(128), ntk_by_parts(128, 8.0, 4096.0)
    often = turns(old, 4096.0)
    assert_close(new[often > 32], old[often > 32])
    assert_close(new[often < 1], old[often < 1] / 8)
    between = (often > 1) & (often < 32)
    share = (often - 1) / 31
    assert_close(new[between], (share * old + (1 - share) * old / 8)[between])
    assert between.sum() > 5


def test_a_factor_of_one_changes_nothing() -> None:
    for new in (
        interpolation(frequencies(16), 1.0),
        ntk_aware(16, 1.0),
        ntk_by_parts(16, 1.0, 64.0),
        ntk_by_parts(16, 1.0, 64.0, ramp="pairs"),
    ):
        assert_close(new, frequencies(16))
    assert yarn_stretch(1.0) == 1


def test_the_stretch_multiplies_scores_by_its_square() -> None:
    model = made()
    with capture(model, "blocks.0.attention.scores") as plain:
        model(TOKENS)
    with (
        with_frequencies(model, frequencies(8), stretch=1.5),
        capture(model, "blocks.0.attention.scores") as longer,
    ):
        model(TOKENS)
    name = "blocks.0.attention.scores"
    assert_close(longer[name], 2.25 * plain[name])


def _hugging_face(kind: str, **more: float):
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=512,
        num_attention_heads=4,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **more},
    )
    return utils.ROPE_INIT_FUNCTIONS[kind], config


def test_interpolation_is_hugging_faces_linear_scaling() -> None:
    make, config = _hugging_face("linear", factor=8.0)
    found, stretch = make(config, "cpu")
    assert_close(found.double(), interpolation(frequencies(128), 8.0), rtol=1e-5, atol=0)
    assert stretch == 1


@pytest.mark.parametrize("length", [1000, 4096, 10_000, 32_768])
def test_the_larger_base_by_length_is_hugging_faces_dynamic_scaling(length: int) -> None:
    make, config = _hugging_face("dynamic", factor=1.0)
    found, _ = make(config, "cpu", seq_len=length)
    wanted = ntk_aware(128, dynamic_factor(length, 4096))
    assert_close(found.double(), wanted, rtol=1e-4, atol=0)


@pytest.mark.parametrize("factor", [2.0, 8.0, 32.0])
def test_by_parts_over_pairs_and_the_stretch_are_hugging_faces_yarn(factor: float) -> None:
    make, config = _hugging_face("yarn", factor=factor, original_max_position_embeddings=4096)
    found, stretch = make(config, "cpu")
    wanted = ntk_by_parts(128, factor, 4096.0, ramp="pairs")
    assert_close(found.double(), wanted, rtol=1e-4, atol=0)
    assert stretch == pytest.approx(yarn_stretch(factor))


# In a model ---------------------------------------------------------------------------------------


def test_frequencies_are_swapped_and_put_back() -> None:
    model = made()
    x = torch.randn(1, 1, 33, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before = model.rotary(33).apply(x)
    with with_frequencies(model, interpolation(frequencies(8), 4.0)):
        slower = model.rotary(33).apply(x)
    assert_close(model.rotary(33).apply(x), before)
    assert_close(slower, rotation(torch.arange(33) / 4, 8, dtype=torch.float64).apply(x))


def test_a_window_that_holds_everything_changes_nothing() -> None:
    model = made()
    plain = model(TOKENS)
    for sinks in (0, 3):
        with windowed(model, 30, sinks=sinks):
            assert_close(model(TOKENS), plain)


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("sinks", [0, 1, 3])
def test_one_layer_with_a_window_is_that_layer_on_the_keys_of_the_cache(
    pairing: str, kv_heads: int, sinks: int
) -> None:
    # With one layer, keys and values of a token do not depend on what was before it: so a short sequence of
    # the tokens in the cache must give the same answer at its end.
    model = made(n_layers=1, rotary_pairing=pairing, n_kv_heads=kv_heads)
    window = 8
    with windowed(model, window, sinks=sinks):
        found = model(TOKENS)
    for t in range(30):
        row = TOKENS[:, : t + 1]
        if t + 1 > window:
            row = torch.cat((row[:, :sinks], row[:, t + 1 - (window - sinks) :]), dim=1)
        assert_close(found[:, t], model(row)[:, -1])


def test_dropping_keys_is_not_dropping_nothing() -> None:
    model = made()
    plain = model(TOKENS)
    with windowed(model, 8):
        assert (model(TOKENS) - plain)[:, 12:].abs().max() > 1e-3


def test_what_is_asked_is_checked() -> None:
    model = made()
    with pytest.raises(ValueError, match="at least one"):
        interpolation(frequencies(8), 0.5)
    with pytest.raises(ValueError, match="one pair"):
        ntk_aware(2, 2.0)
    with pytest.raises(ValueError, match="slow < fast"):
        ntk_by_parts(8, 2.0, 32.0, slow=3.0, fast=2.0)
    with pytest.raises(
        (ValueError, TypeError), match=r"'turns'.*'pairs'"
    ):  # types are checked here
        ntk_by_parts(8, 2.0, 32.0, ramp="steps")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="4 frequencies"), with_frequencies(model, frequencies(4)):
        pass
    with pytest.raises(ValueError, match="sinks"), windowed(model, 4, sinks=4):
        pass
    with pytest.raises(ValueError, match="alibi"), windowed(made(positions="alibi"), 4):
        pass
    assert math.isclose(dynamic_factor(48, 32), 1.5)
