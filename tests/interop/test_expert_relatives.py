"""Experts and latent attention: equal to `transformers` whole, padded and by token; there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from expert_relatives import RELATIVES, build, drawn
from llama_relatives import LENGTH, double_precision
from measured_transformer import Decoder
from measured_transformer.internals.capture import capture
from measured_transformer.interop import from_huggingface, to_huggingface
from measured_transformer.models.config import Config, Layer
from measured_transformer.parts.experts import Clamp, Experts
from measured_transformer.parts.latent import Latent
from measured_transformer.parts.networks import Plain
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

pytest.importorskip("transformers", reason="the reference is not installed")

PROMPT = 3
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
every_relative = pytest.mark.parametrize("model_type", RELATIVES)
every_drawn = pytest.mark.parametrize(
    ("model_type", "seed"), [(name, seed) for name in RELATIVES for seed in range(3)]
)


def batch(vocab: int) -> tuple[Tensor, Tensor]:
    """Three rows, padded on the left, and where their tokens are real."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(vocab, (3, LENGTH), generator=generator)
    return tokens, torch.arange(LENGTH) >= LENGTH - torch.tensor([[LENGTH], [9], [1]])


@torch.no_grad()
def padded(model: nn.Module, tokens: Tensor, real: Tensor) -> Tensor:
    positions = (real.long().cumsum(1) - 1).clamp(min=0)
    return model(tokens, attention_mask=real.long(), position_ids=positions)[0][real]


@torch.no_grad()
def by_token(model: nn.Module, tokens: Tensor) -> Tensor:
    first = model(tokens[:, :PROMPT], use_cache=True)
    found, cache = [first[0]], first.past_key_values
    for i in range(PROMPT, LENGTH):
        step = model(tokens[:, i : i + 1], past_key_values=cache, use_cache=True)
        found.append(step[0])
    return torch.cat(found, dim=1)


@torch.no_grad()
def ours_by_token(model: Decoder, tokens: Tensor) -> Tensor:
    cache = model.make_cache()
    pieces = tokens.split([PROMPT, *[1] * (LENGTH - PROMPT)], dim=1)
    return torch.cat([model(piece, cache=cache) for piece in pieces], dim=1)


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    """Apart by so much of the largest logit: in float32 either is that far from what float64 gives."""
    assert ours.dtype == theirs.dtype
    largest = max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance * largest)


@every_drawn
@torch.no_grad()
def test_equal_in_float32_and_back(model_type: str, seed: int, tmp_path: Path):
    theirs = build(model_type, drawn(model_type, seed), head=seed != 1)
    ours = from_huggingface(theirs)
    tokens, real = batch(ours.config.vocab)
    expected = theirs(tokens)[0]
    close(ours(tokens), expected)
    close(ours(tokens, padding_mask=real)[real], padded(theirs, tokens, real))
    close(ours_by_token(ours, tokens), by_token(theirs, tokens))

    settings, _ = to_huggingface(ours, tmp_path, model_type=model_type)
    assert settings["model_type"] == model_type
    again, report = type(theirs).from_pretrained(tmp_path, output_loading_info=True, **EAGER)
    assert not any(report.values())
    close(again.eval()(tokens)[0], expected)


@every_drawn
def test_equal_in_float64(model_type: str, seed: int, monkeypatch: pytest.MonkeyPatch):
    with double_precision(monkeypatch):
        theirs = build(model_type, drawn(model_type, seed))
        tokens, real = batch(theirs.config.vocab_size)
        with torch.no_grad():
            whole = theirs(tokens)[0]
        with_padding, cached = padded(theirs, tokens, real), by_token(theirs, tokens)
    ours = from_huggingface(theirs)
    with torch.no_grad():
        close(ours(tokens), whole, 1e-11)
        close(ours(tokens, padding_mask=real)[real], with_padding, 1e-11)
    close(ours_by_token(ours, tokens), cached, 1e-11)


@every_relative
@torch.no_grad()
def test_files_have_the_same_tensors(model_type: str, tmp_path: Path):
    theirs = build(model_type, drawn(model_type, 0))
    theirs.save_pretrained(tmp_path / "theirs")
    ours, live = from_huggingface(tmp_path / "theirs"), from_huggingface(theirs)
    assert ours.config == live.config
    tokens, _ = batch(ours.config.vocab)
    assert torch.equal(ours(tokens), live(tokens))
    to_huggingface(ours, tmp_path / "ours", model_type=model_type)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@torch.no_grad()
def test_a_layer_that_predicts_further_tokens_is_left_out(tmp_path: Path):
    theirs = build("deepseek_v3", drawn("deepseek_v3", 0))
    theirs.save_pretrained(tmp_path)
    file, n = tmp_path / "model.safetensors", theirs.config.num_hidden_layers
    held = load_file(file)
    save_file({**held, f"model.layers.{n}.eh_proj.weight": torch.ones(2, 2)}, file)
    tokens, _ = batch(theirs.config.vocab_size)
    close(from_huggingface(tmp_path)(tokens), theirs(tokens)[0])


@torch.no_grad()
def test_router_and_choice_are_seen():
    theirs = build("mixtral", drawn("mixtral", 0))
    ours = from_huggingface(theirs)
    tokens, _ = batch(ours.config.vocab)
    with capture(ours, "*.probabilities", "*.chosen") as seen:
        ours(tokens)
    logits = theirs(tokens, output_router_logits=True).router_logits
    k = theirs.config.num_experts_per_tok
    for i, one in enumerate(logits):
        wanted = one.unflatten(0, tokens.shape).softmax(-1)
        close(seen[f"blocks.{i}.feedforward.probabilities"], wanted)
        chosen = seen[f"blocks.{i}.feedforward.chosen"]
        assert bool((chosen.sum(-1) == k).all())
        assert bool((wanted.masked_fill(chosen.bool(), 2).sort(-1).values[..., -k:] == 2).all())


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise=0.1"),
    ("mixtral", {"num_experts_per_tok": 9}, "per_token must be at most"),
    ("mixtral", {"num_local_experts": None}, "num_local_experts must be a positive whole number"),
    ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step must be a positive whole"),
    ("qwen3_moe", {"mlp_only_layers": 1}, "mlp_only_layers must be a list of whole numbers"),
    ("qwen2_moe", {"shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size must"),
    ("olmoe", {"clip_qkv": 8.0}, "clip_qkv=8.0"),
    ("gpt_oss", {"swiglu_limit": None}, "swiglu_limit must be a positive number, got None"),
    ("gpt_oss", {"quantization_config": {"quant_method": "mxfp4"}}, "quantization_config="),
    ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method='noaux_tc'"),
    ("deepseek_v2", {"mlp_bias": True}, "mlp_bias=True"),
    ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob=True"),
    ("deepseek_v3", {"first_k_dense_replace": -1}, "first_k_dense_replace must be 0 or a whole"),
    ("deepseek_v3", {"n_group": 3, "topk_group": 1}, "groups must divide n_experts=8"),
]


@pytest.mark.parametrize(("model_type", "settings", "message"), REFUSED)
def test_what_is_not_computed_is_refused_by_its_name(
    model_type: str, settings: dict[str, Any], message: str, tmp_path: Path
):
    build(model_type, drawn(model_type, 0)).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    with pytest.raises(ValueError, match=message):
        from_huggingface(tmp_path)


def config(**changes: Any) -> Config:
    """One of experts in the manner of Mixtral, with some fields changed."""
    return Config(
        vocab=11,
        d_model=16,
        positions="rotary",
        rotary_pairing="halves",
        norm="rms",
        activation="swiglu",
        network=Experts(4, 2, normalised=True),
        bias=False,
        initialisation="gpt2",
    ).replace(**changes)


SHARED = Experts(4, 2, width=5, shared_width=10)
LATENT = {"attention": Latent(8, d_rotary=4), "rotary_pairing": "interleaved", "network": SHARED}


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("llama", {}, r"llama: d_ff must be 64, is None; network must be Plain\(\), is Experts"),
        ("llama", {"network": Plain(), "attention": Latent(8, d_rotary=4)}, "attention must be"),
        ("mixtral", {"network": Plain()}, "its network must be one of experts"),
        ("mixtral", {"network": Experts(4, 2)}, r"network must be Experts\(n_experts=4"),
        ("mixtral", {"layers": (Layer(), Layer(network=Plain()))}, "network of layer 1 must be"),
        ("mixtral", {"layers": (Layer(), Layer(d_ff=7))}, "network of layer 1 must be"),
        ("qwen3_moe", {"qk_norm": "head", "network": SHARED}, "network must be Experts"),
        ("gpt_oss", {"sinks": True}, "clamp of its experts must be a Clamp, is None"),
        ("deepseek_v2", {"network": SHARED}, "attention must be a Latent, is a MultiHead"),
        (
            "deepseek_v2",
            {**LATENT, "network": Experts(4, 2, width=5, shared_width=7)},
            "shared_width must be a multiple of the experts' width 5, is 7",
        ),
        ("deepseek_v2", {**LATENT, "attention_scale": 0.9}, "attention_scale must be 0.35355339"),
    ],
)
def test_what_an_architecture_cannot_say_is_not_written(
    model_type: str, changes: dict[str, Any], message: str
):
    with pytest.raises(ValueError, match=message):
        to_huggingface(Decoder(config(**changes)), model_type=model_type)


def test_a_model_is_written_as_the_first_that_fits():
    clamped = Experts(4, 2, normalised=True, router_bias=True, clamp=Clamp(2.0, 1.0))
    oss = {"network": clamped, "sinks": True, "ffn_bias": True}
    for wanted, changes in {
        "mixtral": {},
        "qwen3_moe": {"qk_norm": "head"},
        "gpt_oss": oss,
        "deepseek_v2": LATENT,
    }.items():
        assert to_huggingface(Decoder(config(**changes)))[0]["model_type"] == wanted
