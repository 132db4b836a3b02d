"""Tiny encoder-decoders of `transformers`, with settings drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from hf_reference import randomise
from torch import Tensor, nn

Settings = dict[str, Any]


def flag(random: Random) -> bool:
    return random.random() < 0.5


def t5(random: Random) -> Settings:
    gate = random.choice(("", "gated-"))
    buckets, longest = random.choice(((32, 128), (8, 6), (16, 20)))
    return {
        "vocab_size": random.choice((31, 34)),
        "d_model": random.choice((24, 20)),
        "d_kv": random.choice((6, 10)),
        "d_ff": random.choice((20, 11)),
        "num_layers": random.choice((1, 2)),
        "num_decoder_layers": random.choice((None, 1, 3)),
        "num_heads": random.choice((4, 3)),
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": longest,
        "layer_norm_epsilon": random.choice((1e-6, 1e-2)),
        "feed_forward_proj": gate + random.choice(("relu", "gelu", "gelu_new", "silu")),
        "tie_word_embeddings": flag(random),
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": None,
    }


def bart(random: Random) -> Settings:
    heads = (4, 2, 1)
    vocab = random.choice((31, 34))
    return {
        "vocab_size": vocab,
        "d_model": 24,
        "max_position_embeddings": random.choice((16, 40)),
        "encoder_layers": random.choice((1, 2)),
        "decoder_layers": random.choice((1, 2, 3)),
        "encoder_attention_heads": random.choice(heads),
        "decoder_attention_heads": random.choice(heads),
        "encoder_ffn_dim": random.choice((20, 11)),
        "decoder_ffn_dim": random.choice((20, 13)),
        "activation_function": random.choice(("gelu", "relu", "swish", "gelu_new")),
        "scale_embedding": flag(random),
        "tie_word_embeddings": flag(random),
        "pad_token_id": 1,
        "decoder_start_token_id": 2,
        "eos_token_id": None,
        "forced_eos_token_id": None,
    }


def marian(random: Random) -> Settings:
    found = bart(random)
    return found | {"share_encoder_decoder_embeddings": flag(random), "pad_token_id": 30}


# model_type: its classes with head and without, and settings.
RELATIVES: dict[str, tuple[str, str, str, Callable[[Random], Settings]]] = {
    "t5": ("T5", "ForConditionalGeneration", "Model", t5),
    "mt5": ("MT5", "ForConditionalGeneration", "Model", t5),
    "bart": ("Bart", "ForConditionalGeneration", "Model", bart),
    "marian": ("Marian", "MTModel", "Model", marian),
}


def drawn(model_type: str, seed: int) -> Settings:
    """Settings of an architecture, the same for the same seed."""
    return RELATIVES[model_type][3](Random(f"{model_type} {seed}"))


@torch.no_grad()
def build(model_type: str, settings: Settings, kind: str | None = None) -> nn.Module:
    """A model with explicit attention and weights that are all different, but Marian's sinusoids."""
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    name, with_head, _, _ = RELATIVES[model_type]
    config = getattr(transformers, f"{name}Config")(**settings)
    model = getattr(transformers, name + (with_head if kind is None else kind))._from_config(
        config, attn_implementation="eager"
    )
    tables = {k: v.clone() for k, v in model.named_parameters() if "embed_positions" in k}
    randomise(model)
    if hasattr(model, "final_logits_bias"):
        bias = torch.randn(config.vocab_size, generator=torch.Generator().manual_seed(3))
        model.final_logits_bias.copy_(bias)
    if model_type == "marian":
        for place, table in model.named_parameters():
            if place in tables:
                table.copy_(sinusoids(*table.shape))
    return model.eval()


def sinusoids(rows: int, width: int) -> Tensor:
    """Marian's positions in float64."""
    turns = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * turns
    return torch.cat((angles.sin(), angles.cos()), dim=1)
