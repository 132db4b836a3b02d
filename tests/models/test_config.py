"""A Config says what is wrong when it is made, and never changes."""

import dataclasses
import json
import math

import numpy as np
import pytest
from measured_transformer.models.config import Config, Layer
from measured_transformer.parts.attention_schemes import MultiHead
from measured_transformer.parts.experts import Experts
from measured_transformer.parts.networks import Plain
from measured_transformer.parts.rotary_scaling import Interpolated


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab": 0}, "vocab must be a positive whole number, got 0"),
        ({"vocab": 2.5}, "vocab .* got 2.5"),
        ({"vocab": True}, "vocab .* got True"),
        ({"vocab": "12"}, "vocab .* got '12'"),
        ({"d_model": -4}, "d_model .* got -4"),
        ({"n_layers": 0}, "n_layers .* got 0"),
        ({"n_heads": 0}, "n_heads .* got 0"),
        ({"max_length": 0}, "max_length .* got 0"),
        ({"n_kv_heads": 0}, "n_kv_heads .* got 0"),
        ({"d_head": 0}, "d_head .* got 0"),
        ({"d_ff": -1}, "d_ff .* got -1"),
        ({"d_model": 30}, "d_model=30 and n_heads=4"),
        ({"n_kv_heads": 3}, "n_heads=4 and n_kv_heads=3"),
        ({"n_kv_heads": 8}, "n_heads=4 and n_kv_heads=8"),
        ({"n_decoder_heads": 5}, "n_decoder_heads must divide d_model, got d_model=64 and"),
        ({"n_decoder_heads": 2, "n_kv_heads": 4}, "n_kv_heads must divide n_decoder_heads"),
        ({"n_decoder_heads": 0}, "n_decoder_heads .* got 0"),
        ({"d_decoder_ff": 0}, "d_decoder_ff .* got 0"),
        ({"shared_embedding": None}, "shared_embedding must be True or False, got None"),
        ({"wide_stream": "yes"}, "wide_stream must be True or False, got 'yes'"),
        (
            {"d_model": 5, "n_heads": 1, "positions": "sinusoidal_halves"},
            "even d_model, got 5",
        ),
        ({"positions": "sinus"}, "positions must be one of sinusoidal, learned.*; got 'sinus'"),
        ({"positions": None}, "positions must be one of .*; got None"),
        ({"norm": "batch"}, "norm must be one of layer, rms, layer_plain, none; got 'batch'"),
        ({"placement": "both"}, "placement must be one of pre, post, sandwich, branch; got 'both'"),
        ({"activation": "tanh"}, "activation must be one of relu.*; got 'tanh'"),
        ({"rotary_pairing": "x"}, "rotary_pairing must be one of interleaved, halves; got 'x'"),
        ({"initialisation": "he"}, "initialisation must be one of xavier, gpt2; got 'he'"),
        ({"d_model": 5, "n_heads": 1}, "even d_model, got 5"),
        ({"d_model": 20, "positions": "rotary"}, "even width of heads, got 5"),
        ({"d_head": 3, "positions": "rotary"}, "even width of heads, got 3"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, "got -0.1"),
        ({"norm_eps": -1e-5}, "norm_eps must not be negative, got -1e-05"),
        ({"rotary_base": 1.0}, "rotary_base must be greater than one, got 1.0"),
        ({"residual": "no"}, "residual must be True or False, got 'no'"),
        ({"tie_embeddings": 2}, "tie_embeddings must be True or False, got 2"),
        ({"bias": None}, "bias must be True or False, got None"),
        ({"final_norm": "yes"}, "final_norm must be True, False or None, got 'yes'"),
        ({"attention_bias": "no"}, "attention_bias must be True, False or None, got 'no'"),
        ({"ffn_bias": 0.0}, "ffn_bias must be True, False or None, got 0.0"),
        ({"dropout": "0.1"}, "dropout must be a finite number, got '0.1'"),
        ({"dropout": None}, "dropout must be a finite number, got None"),
        ({"norm_eps": math.nan}, "norm_eps must be a finite number, got nan"),
        ({"rotary_base": math.inf}, "rotary_base must be a finite number, got inf"),
        ({"logit_scale": True}, "logit_scale must be a finite number, got True"),
        ({"attention_scale": math.nan}, "attention_scale must be a finite number, got nan"),
        (
            {"embedding_scale": "big"},
            "embedding_scale must be a finite number or 'auto', got 'big'",
        ),
        ({"token_types": -1}, "token_types must be 0 or a positive whole number, got -1"),
        ({"token_types": 1.5}, "token_types .* got 1.5"),
        ({"relative_buckets": 8.5}, "relative_buckets .* got 8.5"),
        ({"relative_max_distance": "far"}, "relative_max_distance .* got 'far'"),
    ],
)
def test_what_cannot_be_built_is_refused(unhooked, changes, message):
    good = {"vocab": 10}
    with pytest.raises(ValueError, match=message):
        Config(**{**good, **changes})
    with pytest.raises(ValueError, match=message):
        Config(**good).replace(**changes)


@pytest.mark.parametrize(
    "sizes",
    [
        {"d_model": 5, "n_heads": 5, "positions": "none"},
        {"d_model": 30, "n_heads": 4, "d_head": 7, "positions": "alibi"},
        {"d_model": 30, "n_heads": 4, "d_head": 6, "positions": "rotary"},
        {"n_heads": 4, "n_kv_heads": 1},
        {"dropout": 0, "norm_eps": 0},
    ],
)
def test_what_can_be_built_is_accepted(unhooked, sizes):
    assert Config(vocab=1, **sizes).replace(**sizes) == Config(vocab=1, **sizes)


def test_numbers_of_numpy_are_kept_as_pythons(unhooked):
    config = Config(vocab=np.int64(10), d_head=np.int32(6), norm_eps=np.float32(0.5), token_types=0)
    plain = Config(vocab=10, d_head=6, norm_eps=0.5)
    assert config == plain
    assert json.dumps(dataclasses.asdict(config)) == json.dumps(dataclasses.asdict(plain))


def test_defaults_follow_the_other_sizes():
    config = Config(vocab=10, d_model=48, n_heads=6)
    assert (config.head_width, config.kv_heads, config.neurons) == (8, 6, 192)
    other = config.replace(d_head=5, n_kv_heads=2, d_ff=7)
    assert (other.head_width, other.kv_heads, other.neurons) == (5, 2, 7)
    assert Config(vocab=10, placement="pre").has_final_norm
    assert not Config(vocab=10, placement="post").has_final_norm
    assert Config(vocab=10, placement="post", final_norm=True).has_final_norm
    assert not Config(vocab=10, placement="pre", final_norm=False).has_final_norm


def test_but_changes_only_what_it_names():
    config = Config(vocab=10, d_model=48, n_heads=6, norm="rms")
    variant = config.replace(n_layers=7, vocab=11)
    changed = {
        field.name
        for field in dataclasses.fields(Config)
        if getattr(config, field.name) != getattr(variant, field.name)
    }
    assert changed == {"n_layers", "vocab"}
    assert config.n_layers == 2
    assert config.replace() == config
    with pytest.raises(ValueError, match=r"\['n_layer'\]; Config has .*'n_layers'"):
        config.replace(n_layer=7)


def test_a_config_is_frozen_and_hashable():
    config = Config(vocab=10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.vocab = 11
    assert len({config, Config(vocab=10), config.replace(vocab=11)}) == 2
    with pytest.raises(TypeError):
        Config(10)


def test_a_config_is_shown_by_what_differs_from_the_defaults():
    assert repr(Config(vocab=10)) == "Config(vocab=10)"
    assert (
        repr(Config(vocab=10, d_model=64, network=Plain(), attention=MultiHead()))
        == "Config(vocab=10)"
    )
    assert repr(Layer()) == "Layer()"
    told = repr(
        Config(
            vocab=10,
            n_kv_heads=2,
            network=Experts(n_experts=4, per_token=2),
            layers=(Layer(window=8),),
        )
    )
    assert told.startswith(
        "Config(vocab=10, n_kv_heads=2, network=Experts(n_experts=4, per_token=2"
    )
    assert told.endswith("layers=(Layer(window=8),))")


@pytest.mark.parametrize(
    "changes",
    [
        {"d_ff": 40, "n_kv_heads": 2, "window": 3, "max_length": 9},
        {"positions": "rotary", "rotary_share": 0.5, "rotary_scaling": Interpolated(2.0)},
        {"norm": "rms", "norm_offset": 1.0, "bias": False, "tie_embeddings": True},
        {"network": Experts(n_experts=4, per_token=2), "activation": "swiglu"},
        {"head": "sequence", "labels": 3, "pooler": True, "dropout": 0.25},
        {"layers": (Layer(window=8, attention_norm=False), Layer())},
    ],
)
def test_what_is_shown_makes_the_same_config_and_no_more(changes):
    config = Config(vocab=12, **changes)
    classes = (Config, Layer, Experts, Interpolated)
    assert eval(repr(config), {each.__name__: each for each in classes}) == config
    assert repr(config).startswith("Config(vocab=12, ")
    assert "None" not in repr(config.replace(network=Plain()))
