"""Tiny models of GPT-2 and the LayerNorm decoders after it in `transformers`, with settings drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hf_reference import randomise
from llama_relatives import LENGTH, Settings, eps, flag, rope
from torch import nn

ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu", "quick_gelu", "gelu_pytorch_tanh")


def rates(random: Random, *names: str) -> Settings:
    return {name: random.choice((0.0, 0.25)) for name in names}


def gpt2(random: Random) -> Settings:
    heads = random.choice((1, 2, 4))
    return {
        "vocab_size": random.choice((31, 34)),
        "n_embd": heads * random.choice((3, 6, 8)),
        "n_layer": random.choice((1, 2, 3)),
        "n_head": heads,
        "n_inner": random.choice((None, 11)),
        "n_positions": random.choice((LENGTH, 16)),
        "activation_function": random.choice(ACTIVATIONS),
        "layer_norm_epsilon": eps(random),
        "scale_attn_weights": flag(random),
        "scale_attn_by_inverse_layer_idx": flag(random),
        "reorder_and_upcast_attn": flag(random),
        "tie_word_embeddings": flag(random),
        "bos_token_id": None,
        "eos_token_id": None,
        **rates(random, "resid_pdrop", "embd_pdrop", "attn_pdrop"),
    }


def common(
    random: Random, *, act: str = "hidden_act", widths: tuple[int, ...] = (4, 8, 16)
) -> Settings:
    heads = random.choice((1, 2, 4))
    return {
        "vocab_size": random.choice((31, 34)),
        "hidden_size": heads * random.choice(widths),
        "num_hidden_layers": random.choice((1, 2, 3)),
        "num_attention_heads": heads,
        "max_position_embeddings": random.choice((LENGTH, 16)),
        act: random.choice(ACTIVATIONS),
        "tie_word_embeddings": flag(random),
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def turned(random: Random, found: Settings) -> Settings:
    """Rotary settings for a quarter of a head, half or all of it."""
    width = found["hidden_size"] // found["num_attention_heads"]
    share = random.choice(
        [one for one in (1.0, 0.5, 0.25) if one * width >= 4]
    )  # one pair has no NTK
    return {"rope_parameters": rope(random, width, share=share) | {"partial_rotary_factor": share}}


def gpt_neox(random: Random) -> Settings:
    found = common(random)
    return {
        **found,
        **turned(random, found),
        "intermediate_size": random.choice((20, 11)),
        "layer_norm_eps": eps(random),
        "use_parallel_residual": flag(random),
        "attention_bias": flag(random),
        **rates(random, "hidden_dropout", "attention_dropout"),
    }


def phi(random: Random) -> Settings:
    found = common(random)
    heads = found["num_attention_heads"]
    return {
        **found,
        **turned(random, found),
        "intermediate_size": random.choice((20, 11)),
        "num_key_value_heads": random.choice((heads, 1)),
        "layer_norm_eps": eps(random),
        **rates(random, "resid_pdrop", "embd_pdrop", "attention_dropout"),
    }


def gptj(random: Random) -> Settings:
    heads, width = random.choice((1, 2, 4)), random.choice((4, 6, 8))
    return {
        "vocab_size": random.choice((31, 34)),
        "n_embd": heads * width,
        "n_layer": random.choice((1, 2, 3)),
        "n_head": heads,
        "n_positions": 16,
        "rotary_dim": random.choice((2, 4, width)),
        "n_inner": random.choice((None, 11)),
        "activation_function": random.choice(ACTIVATIONS),
        "layer_norm_epsilon": eps(random),
        "tie_word_embeddings": flag(random),
        "bos_token_id": None,
        "eos_token_id": None,
        **rates(random, "resid_pdrop", "embd_pdrop", "attn_pdrop"),
    }


def gpt_neo(random: Random) -> Settings:
    found = common(random, act="activation_function", widths=(6, 8))
    heads, n = found.pop("num_attention_heads"), found.pop("num_hidden_layers")
    types = random.choice(
        (
            [[["global"], n]],
            [[["local"], n]],
            [[["global", "local"], n]],
            [[["local"], 1], [["global"], n]],
        )
    )
    return {
        **found,
        "num_heads": heads,
        "num_layers": sum(len(kinds) * times for kinds, times in types),
        "attention_types": types,
        "window_size": random.choice((2, 4, 40)),
        "intermediate_size": random.choice((None, 11)),
        "layer_norm_epsilon": eps(random),
        **rates(random, "resid_dropout", "embed_dropout", "attention_dropout"),
    }


def opt(random: Random) -> Settings:
    return {
        **common(random, act="activation_function", widths=(6, 8)),
        "ffn_dim": random.choice((20, 11)),
        "do_layer_norm_before": flag(random),
        "_remove_final_layer_norm": flag(random),
        "enable_bias": flag(random),
        "layer_norm_elementwise_affine": flag(random),
        "word_embed_proj_dim": None,
        **rates(random, "dropout", "attention_dropout"),
    }


# model_type: what its classes' names begin with, and settings.
RELATIVES: dict[str, tuple[str, Callable[[Random], Settings]]] = {
    "gpt2": ("GPT2", gpt2),
    "gpt_neox": ("GPTNeoX", gpt_neox),
    "gptj": ("GPTJ", gptj),
    "gpt_neo": ("GPTNeo", gpt_neo),
    "opt": ("OPT", opt),
    "phi": ("Phi", phi),
}


def drawn(model_type: str, seed: int) -> Settings:
    """Settings of an architecture, the same for the same seed."""
    return RELATIVES[model_type][1](Random(f"{model_type} {seed}"))


def build(model_type: str, settings: Settings, *, head: bool = True) -> nn.Module:
    """A model with explicit attention and weights that are all different."""
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    name = RELATIVES[model_type][0]
    with_head = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    config: Any = getattr(transformers, f"{name}Config")(**settings)
    kind = getattr(transformers, name + (with_head if head else "Model"))
    model = kind._from_config(config, attn_implementation="eager").eval()
    randomise(model)
    return model
