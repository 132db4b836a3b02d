"""Llama and its relatives: equal to `transformers` whole, padded and token by token; there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import expert_relatives
import llama_relatives
import pytest
import torch
from llama_relatives import LENGTH, RELATIVES, build, double_precision, drawn
from measured_transformer import Decoder
from measured_transformer.interop import from_huggingface, to_huggingface
from measured_transformer.models.config import Config, Layer
from measured_transformer.parts.rotary_scaling import Interpolated, LongRope
from safetensors.torch import save_file
from torch import Tensor, nn

pytest.importorskip("transformers", reason="the reference is not installed")

SEEDS = 3
PROMPT = 3
every_relative = pytest.mark.parametrize("model_type", RELATIVES)
every_drawn = pytest.mark.parametrize(
    ("model_type", "seed"), [(name, seed) for name in RELATIVES for seed in range(SEEDS)]
)


def batch(vocab: int) -> tuple[Tensor, Tensor]:
    """Three rows, padded on the left, and where their tokens are real."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(vocab, (3, LENGTH), generator=generator)
    lengths = torch.tensor([[LENGTH], [9], [1]])
    return tokens, torch.arange(LENGTH) >= LENGTH - lengths


@torch.no_grad()
def theirs_padded(model: nn.Module, tokens: Tensor, real: Tensor) -> Tensor:
    positions = (real.long().cumsum(1) - 1).clamp(min=0)
    return model(tokens, attention_mask=real.long(), position_ids=positions)[0]


@torch.no_grad()
def theirs_by_token(model: nn.Module, tokens: Tensor) -> Tensor:
    first = model(tokens[:, :PROMPT], use_cache=True)
    found, cache = [first[0]], first.past_key_values
    for i in range(PROMPT, LENGTH):
        step = model(tokens[:, i : i + 1], past_key_values=cache, use_cache=True)
        found.append(step[0])
    return torch.cat(found, dim=1)


@torch.no_grad()
def ours_by_token(model: Decoder, tokens: Tensor) -> Tensor:
    cache = model.make_cache()
    found = [model(tokens[:, :PROMPT], cache=cache)]
    found += [model(tokens[:, i : i + 1], cache=cache) for i in range(PROMPT, LENGTH)]
    return torch.cat(found, dim=1)


def grows(config: Config) -> bool:
    """Return whether the rotary angles depend on the length."""
    found = (config.of_layer(i).rotary_scaling for i in range(config.n_layers))
    return any(one is not None and one.grows for one in found)


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@every_drawn
def test_equal_in_float32_and_back(model_type: str, seed: int):
    theirs = build(model_type, drawn(model_type, seed), head=seed != 1)
    ours = from_huggingface(theirs)
    tokens, real = batch(ours.config.vocab)
    with torch.no_grad():
        expected = theirs(tokens)[0]
        assert_close(ours(tokens), expected, 1e-5)
        padded = ours(tokens, padding_mask=real)
    assert_close(padded[real], theirs_padded(theirs, tokens, real)[real], 1e-5)
    assert_close(ours_by_token(ours, tokens), theirs_by_token(theirs, tokens), 1e-5)

    settings, tensors = to_huggingface(ours, model_type=model_type)
    assert settings["model_type"] == model_type
    config = type(theirs.config).from_dict(dict(settings))
    again = type(theirs)._from_config(config, attn_implementation="eager").eval()
    loaded = again.load_state_dict(tensors, strict=False)
    tied = ["lm_head.weight"] if ours.config.tie_embeddings else []
    assert (loaded.missing_keys, loaded.unexpected_keys) == (tied, [])
    again.tie_weights()
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


@pytest.mark.parametrize("model_type", ["mistral", "gpt_oss"])
def test_a_window_of_one_key_also_token_by_token(model_type: str):
    """The cache of `transformers` keeps every key then, and gives other logits than its whole pass."""
    relatives = llama_relatives if model_type == "mistral" else expert_relatives
    rope = {"rope_type": "default", "rope_theta": 1e4}
    settings = relatives.drawn(model_type, 0) | {"sliding_window": 1, "rope_parameters": rope}
    theirs = relatives.build(model_type, settings)
    ours = from_huggingface(theirs)
    tokens, _ = batch(ours.config.vocab)
    with torch.no_grad():
        expected = theirs(tokens)[0]
        assert_close(ours(tokens), expected, 1e-5)
    assert_close(ours_by_token(ours, tokens), expected, 1e-5)


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


def tiny(model_type: str, **settings: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file of a small model holds, with some settings changed."""
    theirs = build(model_type, drawn(model_type, 0))
    held = {"model_type": model_type, **theirs.config.to_dict(), **settings}
    return held, theirs.state_dict()


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"per_layer_config": {"0": {}}}, "per_layer_config="),
    ("llama", {"hidden_act": "relu2"}, "hidden_act must be one of .*; got 'relu2'"),
    ("llama", {"num_hidden_layers": "3"}, "num_hidden_layers must be a positive whole number"),
    (
        "llama",
        {"rope_parameters": {"rope_theta": 1.0}},
        "rope_theta must be greater than one, got 1.0",
    ),
    ("mistral", {"sliding_window": 4, "layer_types": ["full_attention"]}, "has layer_types="),
    ("mistral", {"quantization_config": {"bits": 4}}, "quantization_config="),
    ("qwen2", {"layer_types": ["linear_attention"]}, "layer_types must name one kind for each"),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 0}, "window must be a positive whole"),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers must hold one number for each"),
    ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 0}, "no_rope_layer_interval"),
    ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar must be a positive number"),
    ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    (
        "gemma3_text",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "factor": 2.0, "truncate": False}
            },
            "layer_types": None,
            "num_hidden_layers": 6,
        },
        r"truncate=False in rope_parameters\['full_attention'\]",
    ),
    ("phi3", {"rope_parameters": {"type": "linear", "factor": 2.0}}, "rope_type must be 'default'"),
    (
        "phi3",
        {"rope_parameters": None, "partial_rotary_factor": 0.3},
        "partial_rotary_factor must turn an even number of the . entries of a head, got 0.3",
    ),
    ("olmo", {"clip_qkv": 8.0}, "clip_qkv=8.0"),
    ("olmo2", {"is_causal": False}, "is_causal=False"),
    ("granite", {"logits_scaling": 0}, "logits_scaling must be a positive number, got 0"),
    ("stablelm", {"head_dim": 14}, "head_dim=14"),
    ("cohere", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    ("cohere", {"logit_scale": None}, "logit_scale must be a positive number, got None"),
]


@pytest.mark.parametrize(("model_type", "settings", "message"), REFUSED)
def test_what_is_not_computed_is_refused_by_its_name(
    model_type: str, settings: dict[str, Any], message: str, tmp_path: Path
):
    held, tensors = tiny(model_type, **settings)
    held.pop("dtype")
    (tmp_path / "config.json").write_text(json.dumps(held))
    save_file(
        {k: v.contiguous().clone() for k, v in tensors.items()}, tmp_path / "model.safetensors"
    )
    with pytest.raises(ValueError, match=message):
        from_huggingface(tmp_path)


def config(**changes: Any) -> Config:
    """Llama's, with some fields changed."""
    return Config(
        vocab=11,
        d_model=16,
        positions="rotary",
        rotary_pairing="halves",
        norm="rms",
        activation="swiglu",
        bias=False,
        initialisation="gpt2",
    ).replace(**changes)


GEMMA = {"norm_offset": 1.0, "embedding_scale": 4.0, "placement": "sandwich"}


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("llama", {"window": 4}, "llama: window must be None, is 4"),
        ("llama", {"qkv_bias": True}, "llama: qkv_bias must be False, is True"),
        ("llama", {"n_heads": 3, "d_head": 4}, "d_model must be a multiple of n_heads=3, is 16"),
        ("llama", {"sinks": True}, "llama: sinks must be False, is True"),
        ("mistral", {"layers": (Layer(window=4), Layer())}, "window of layer 1 must be 4, is None"),
        ("qwen2", {"qkv_bias": True, "layers": (Layer(d_ff=7), Layer())}, "d_ff of layer 0 must"),
        ("qwen2", {"layers": (Layer(window=4), Layer(window=5))}, "all windows must have one size"),
        ("gemma2", GEMMA | {"attention_scale": 0.0}, "attention_scale must be another number"),
        ("gemma2", GEMMA | {"attention_scale": 0.3}, "attention_scale must be 0.30151134"),
        ("gemma3_text", GEMMA | {"qk_norm": "head", "score_cap": 2.0}, "score_cap must be None"),
        (
            "phi3",
            {"rotary_scaling": Interpolated(2.0)},
            "rope_type must be 'default' or 'longrope'",
        ),
        (
            "phi3",
            {"rotary_scaling": LongRope((1.0,), (1.0,), 8), "d_head": 2},
            "d_head must be d_model / n_heads",
        ),
        ("olmo", {"norm": "layer_plain", "norm_eps": 1e-3}, "norm_eps must be 1e-05, is 0.001"),
        ("granite", {"logit_scale": 0.0}, "logit_scale must be another number than 0"),
        ("cohere", {"rotary_pairing": "interleaved"}, "cohere: norm must be 'layer', is 'rms'"),
    ],
)
def test_what_an_architecture_cannot_say_is_not_written(
    model_type: str, changes: dict[str, Any], message: str
):
    with pytest.raises(ValueError, match=message):
        to_huggingface(Decoder(config(**changes)), model_type=model_type)


def test_windows_may_be_told_in_more_than_one_way():
    model = Decoder(config(layers=(Layer(window=4),)))
    assert to_huggingface(model)[0]["model_type"] == "mistral"
    assert to_huggingface(model, model_type="mistral")[0]["sliding_window"] == 4


def test_an_architecture_that_nobody_knows_is_not_written():
    with pytest.raises(ValueError, match=r"model_type must be one of gpt2, llama, .*; got 'mamba'"):
        to_huggingface(Decoder(config()), model_type="mamba")


def test_a_window_of_one_token():
    """With a cache, `transformers` keeps every key there."""
    theirs = build("mistral", drawn("mistral", 0) | {"sliding_window": 1})
    ours = from_huggingface(theirs)
    tokens, _ = batch(ours.config.vocab)
    with torch.no_grad():
        assert_close(ours_by_token(ours, tokens), theirs(tokens)[0], 1e-5)


def test_gelu_in_a_file_of_gemma_is_the_approximation():
    theirs = build("gemma", drawn("gemma", 0))
    theirs.config.hidden_act = "gelu"
    assert from_huggingface(theirs).config.activation == "geglu_tanh"
    exact = Decoder(config(norm_offset=1.0, embedding_scale=4.0, activation="geglu"))
    assert to_huggingface(exact)[0]["hidden_act"] == "gelu_python"
