"""Rotary settings, old and new, against the functions of `transformers`, and written back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from measured_transformer.interop.family import MisfitError
from measured_transformer.interop.rope import read_rope, write_rope
from measured_transformer.models.config import Config, Layer
from measured_transformer.parts.positions import frequencies
from measured_transformer.parts.rotary_scaling import (
    Dynamic,
    Interpolated,
    Llama3,
    LongRope,
    RotaryScaling,
    Yarn,
)

WIDTH, LONGEST, TRAINED = 12, 64, 16
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = {"short_factor": [1.0, 1.5, 2, 2, 2, 3], "long_factor": [1.0, 2.5, 4, 6, 8, 9]}
ORIGINAL = {"original_max_position_embeddings": TRAINED}
# Settings of a whole checkpoint, as a file holds them.
WRITTEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a base of old": {"rope_theta": 500.0},
    "old and empty": {"rope_theta": 500.0, "rope_scaling": None},
    "new": {"rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    "linear, old": {"rope_scaling": {"type": "linear", "factor": 2.5}, "rope_theta": 300.0},
    "linear, old before new": {
        "rope_scaling": {"rope_type": "linear", "factor": 2.5},
        "rope_parameters": {"rope_type": "dynamic", "factor": 9.0, "rope_theta": 7.0},
    },
    "dynamic": {"rope_parameters": {"rope_type": "dynamic", "factor": 3, "rope_theta": 1e4}},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, **ORIGINAL}},
    "yarn, factor from lengths": {
        "rope_parameters": {"rope_type": "yarn", **ORIGINAL, "factor": None}
    },
    "yarn, not longer": {"rope_scaling": {"rope_type": "yarn", "factor": 1.0, **ORIGINAL}},
    "yarn, scales": {
        "rope_scaling": {
            **{"type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707},
            **ORIGINAL,
        }
    },
    "yarn, one scale": {
        "rope_scaling": {"type": "yarn", "factor": 40.0, "mscale": 2.0, **ORIGINAL}
    },
    "yarn, turns and no whole pairs": {
        "rope_scaling": {
            **{"rope_type": "yarn", "factor": 8.0, "beta_fast": 3, "beta_slow": 0.3},
            **{"truncate": False, "attention_factor": 1.7, **ORIGINAL},
        }
    },
    "yarn, one pair between": {
        "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 1e-9, "beta_slow": 1e-9}
        | ORIGINAL
    },
    "llama3": {"rope_scaling": LLAMA3 | ORIGINAL, "rope_theta": 500000.0},
    "llama3, length of the whole": {"rope_scaling": LLAMA3},
    "llama3, length beside": {"rope_scaling": LLAMA3 | ORIGINAL, **dict.fromkeys(ORIGINAL, 9)},
    "longrope": {"rope_parameters": {"rope_type": "longrope", **LONG, **ORIGINAL}},
    "longrope, factor": {
        "rope_scaling": {"rope_type": "longrope", **LONG, "factor": 7.0, **ORIGINAL}
    },
    "longrope, stretch": {
        "rope_scaling": {"rope_type": "longrope", **LONG, "attention_factor": 1.9, **ORIGINAL}
    },
}


def ours(theirs: dict[str, Any], length: int, width: int = WIDTH) -> tuple[torch.Tensor, float]:
    found = read_rope({"max_position_embeddings": LONGEST, **theirs})
    scaling: RotaryScaling | None = found["rotary_scaling"]
    if scaling is None:
        return frequencies(width, base=found["rotary_base"]), 1.0
    return scaling.frequencies(width, found["rotary_base"], length), scaling.factor_of_vectors


@pytest.mark.parametrize("length", [8, 40, 100])
@pytest.mark.parametrize("theirs", WRITTEN.values(), ids=WRITTEN.keys())
def test_frequencies_are_those_of_transformers(theirs: dict[str, Any], length: int):
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    copied = {k: dict(v) if isinstance(v, dict) else v for k, v in theirs.items()}
    config = transformers.LlamaConfig(
        hidden_size=2 * WIDTH,
        num_attention_heads=2,
        max_position_embeddings=LONGEST,
        **copied,
    )
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        expected, stretch = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        expected, stretch = ROPE_INIT_FUNCTIONS[kind](config, None, seq_len=length)
    omega, factor = ours(theirs, length)
    torch.testing.assert_close(omega.float(), expected.float(), rtol=2e-6, atol=1e-9)
    assert factor == pytest.approx(stretch, rel=1e-12)


SCALINGS = [
    None,
    Interpolated(2.5),
    Dynamic(2.0, 24),
    Yarn(4.0, 16),
    Yarn(4.0, 16, fast=7.0, slow=0.5, stretch=1.1, truncate=False),
    Llama3(8.0, 16, slow=0.5, fast=2.0),
    LongRope((1.0, 2.0), (3.0, 4.0), 16, 1.5),
]


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda one: type(one).__name__)
def test_what_is_written_is_read_again(scaling: RotaryScaling | None, share: float):
    rotary = {"rotary_base": 700.0, "rotary_share": share, "rotary_scaling": scaling}
    config = Config(vocab=5, d_head=8 if share == 0.5 else 4, positions="rotary", **rotary)
    written = write_rope(config)
    assert read_rope(written, share=1.0) == rotary
    if scaling is not None:
        del written["rope_scaling"]
        assert read_rope(written, share=1.0) == rotary
    if share == 1:
        assert read_rope(written) == rotary


def test_what_a_block_that_turns_has_is_written():
    config = Config(
        vocab=5,
        positions="rotary",
        layers=(Layer(positions="none"), Layer(rotary_scaling=Interpolated(3.0))),
    )
    assert write_rope(config)["rope_parameters"] == {
        "rope_type": "linear",
        "factor": 3.0,
        "rope_theta": 10000.0,
    }


def test_a_scaling_of_ones_own_has_no_name():
    class Own(RotaryScaling):
        pass

    with pytest.raises(MisfitError, match=r"rotary_scaling must be one of default, .*; is a Own"):
        write_rope(Config(vocab=5, positions="rotary", rotary_scaling=Own()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rope_type": "proportional"}, "has rope_type='proportional' in rope_parameters"),
        ({"rope_type": ["yarn"]}, r"has rope_type=\['yarn'\] in rope_parameters"),
        ({"mrope_section": [1, 2]}, "does not compute mrope_section"),
        ({"partial_rotary_factor": 0.5}, "has partial_rotary_factor=0.5"),
        ({"rope_type": "linear"}, "rope_parameters must hold factor"),
        ({"rope_type": "linear", "factor": "2"}, "factor must be a number, got '2'"),
        ({"rope_type": "linear", "factor": True}, "factor must be a number, got True"),
        (LLAMA3 | {"low_freq_factor": 4.0}, "low_freq_factor must be positive and below"),
        ({"rope_type": "longrope", "short_factor": [1.0]}, "must hold long_factor, a list"),
        ({"rope_type": "longrope", **LONG, "short_factor": [1]}, "as many numbers, got 1 and 6"),
        ({"rope_type": "yarn", "factor": 2, "mscale": "a", "mscale_all_dim": 1}, "mscale must be"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_name(given: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        read_rope({"max_position_embeddings": LONGEST, "rope_parameters": given})


def test_settings_that_are_no_dictionary_are_refused():
    with pytest.raises(ValueError, match="rope_scaling must be a dictionary, got 'linear'"):
        read_rope({"rope_scaling": "linear"})
    with pytest.raises(ValueError, match="config must hold max_position_embeddings"):
        read_rope({"rope_scaling": {"type": "dynamic", "factor": 2.0}})


@pytest.mark.parametrize("length", [4, LONGEST, 400])
def test_a_single_turned_pair_has_no_base_that_could_grow(length: int):
    """`transformers` divides by zero there: its base grows with the power d / (d - 2)."""
    dynamic = {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}
    one, _ = ours(dynamic, length, width=2)
    assert one.tolist() == [1.0]
    two, _ = ours(dynamic, length, width=4)
    assert two[0] == 1.0
    assert bool(two[1] < frequencies(4, base=1e4)[1]) == (length > LONGEST)
