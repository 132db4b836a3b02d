"""GPT-2 with every flag, GPT-NeoX, GPT-J, GPT-Neo, OPT, Phi: whole, padded, token by token, there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gpt_relatives import RELATIVES, build, drawn
from llama_relatives import double_precision
from measured_transformer import Config, Decoder
from measured_transformer.interop import from_huggingface, to_huggingface
from measured_transformer.models.config import Layer
from safetensors.torch import load_file, save_file
from test_llama_relatives import (
    assert_close,
    batch,
    grows,
    ours_by_token,
    theirs_by_token,
    theirs_padded,
)

pytest.importorskip("transformers", reason="the reference is not installed")

SEEDS = 6
every_relative = pytest.mark.parametrize("model_type", RELATIVES)
every_drawn = pytest.mark.parametrize(
    ("model_type", "seed"), [(name, seed) for name in RELATIVES for seed in range(SEEDS)]
)


@every_drawn
def test_equal_in_float32_and_back(model_type: str, seed: int, tmp_path: Path):
    theirs = build(model_type, drawn(model_type, seed), head=seed != 1)
    ours = from_huggingface(theirs)
    tokens, real = batch(ours.config.vocab)
    with torch.no_grad():
        expected = theirs(tokens)[0]
        assert_close(ours(tokens), expected, 1e-5)
        padded = ours(tokens, padding_mask=real)
    assert_close(padded[real], theirs_padded(theirs, tokens, real)[real], 1e-5)
    assert_close(ours_by_token(ours, tokens), theirs_by_token(theirs, tokens), 1e-5)

    to_huggingface(ours, tmp_path, model_type=model_type)
    again, report = type(theirs).from_pretrained(
        tmp_path, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values())
    with torch.no_grad():
        assert_close(again(tokens)[0], expected, 1e-5)


@every_drawn
def test_equal_in_float64(model_type: str, seed: int, monkeypatch: pytest.MonkeyPatch):
    with double_precision(monkeypatch):
        theirs = build(model_type, drawn(model_type, seed))
        tokens, real = batch(theirs.config.vocab_size)
        with torch.no_grad():
            whole = theirs(tokens)[0]
        padded, by_token = theirs_padded(theirs, tokens, real), theirs_by_token(theirs, tokens)
    ours = from_huggingface(theirs)
    with torch.no_grad():
        assert_close(ours(tokens), whole, 1e-11)
        assert_close(ours(tokens, padding_mask=real)[real], padded[real], 1e-11)
    assert_close(ours_by_token(ours, tokens), by_token, 1e-11)
    if not grows(ours.config):
        assert_close(ours_by_token(ours, tokens), whole, 1e-11)


@every_relative
def test_folders_of_either_library(model_type: str, tmp_path: Path):
    theirs = build(model_type, drawn(model_type, 0))
    theirs.save_pretrained(tmp_path / "theirs")
    ours, live = from_huggingface(tmp_path / "theirs"), from_huggingface(theirs)
    assert ours.config == live.config
    tokens, _ = batch(ours.config.vocab)
    with torch.no_grad():
        expected = live(tokens)
        assert torch.equal(ours(tokens), expected)
        to_huggingface(ours, tmp_path / "ours", model_type=model_type)
        assert torch.equal(from_huggingface(tmp_path / "ours")(tokens), expected)
        again, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
        assert not any(report.values())
        assert_close(again.eval()(tokens)[0], expected, 1e-5)


@pytest.mark.parametrize(
    ("model_type", "settings", "message"),
    [
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True"),
        ("opt", {"word_embed_proj_dim": 5}, "word_embed_proj_dim=5"),
        ("phi", {"qk_layernorm": True}, "qk_layernorm=True"),
        ("gptj", {"rotary_dim": None}, "rotary_dim=None"),
        ("gptj", {"rotary_dim": 3}, "rotary_dim=3"),
        ("gpt_neo", {"attention_types": [[["dilated"], 2]]}, "attention_types must name"),
        ("gpt_neo", {"attention_types": [[["local"], 9]]}, "attention_types must name"),
        ("gpt_neo", {"attention_types": "local"}, "attention_types must name"),
        ("gpt_neox", {"hidden_act": "mish"}, "hidden_act must be one of"),
        ("gpt_neox", {"head_dim": 64}, "head_dim=64"),
        ("gpt_neox", {"rope_parameters": {"rope_type": "other"}}, "rope_type='other'"),
    ],
)
def test_what_is_not_computed_is_refused(model_type: str, settings: Any, message, tmp_path: Path):
    theirs = build(model_type, drawn(model_type, 0))
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(ValueError, match=message):
        from_huggingface(tmp_path)


def test_settings_of_older_pythias(tmp_path: Path):
    settings = drawn("gpt_neox", 0)
    settings |= {"hidden_size": 16, "num_attention_heads": 2, "tie_word_embeddings": False}
    settings["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 500.0,
        "partial_rotary_factor": 0.25,
    }
    theirs = build("gpt_neox", settings)
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_parameters"]
    old = {"rotary_emb_base": 500, "rotary_pct": 0.25}
    old |= {
        "rope_theta": 7.0,
        "partial_rotary_factor": 1.0,
    }  # which transformers does not read either
    (tmp_path / "config.json").write_text(json.dumps(config | old))
    tensors = load_file(tmp_path / "model.safetensors")
    assert "embed_out.weight" in tensors
    tensors["gpt_neox.layers.0.attention.rotary_emb.inv_freq"] = torch.ones(1)
    tensors["gpt_neox.layers.0.attention.bias"] = torch.ones(1, 1, 8, 8)
    tensors["gpt_neox.layers.0.attention.masked_bias"] = torch.ones(())
    save_file(tensors, tmp_path / "model.safetensors")
    tokens, _ = batch(settings["vocab_size"])
    ours = from_huggingface(tmp_path)
    with torch.no_grad():
        assert_close(ours(tokens), theirs(tokens)[0], 1e-5)


def test_scales_that_no_flag_of_gpt2_says_are_refused():
    config = Config(
        vocab=11,
        positions="learned",
        initialisation="gpt2",
        layers=(Layer(attention_scale=0.25), Layer(attention_scale=0.2)),
    )
    with pytest.raises(
        ValueError, match=r"gpt2: attention_scale of layer 1 must be 0\.125, is 0\.2"
    ):
        to_huggingface(Decoder(config), model_type="gpt2")
    right = config.replace(layers=(Layer(attention_scale=0.25), Layer(attention_scale=0.125)))
    settings, _ = to_huggingface(Decoder(right), model_type="gpt2")
    assert settings["scale_attn_by_inverse_layer_idx"]
