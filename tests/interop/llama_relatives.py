"""Tiny models of Llama and its relatives in `transformers`, with settings drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
import torch
from hf_reference import randomise
from torch import nn

Settings = dict[str, Any]
TRAINED = 8  # so that a sequence outgrows it
LENGTH = 11
PAIRED = ("silu", "gelu", "gelu_pytorch_tanh", "relu")


def rope(
    random: Random, width: int, kinds: tuple[str, ...] = (), share: float = 1.0, base: float = 1e4
) -> Settings:
    """`rope_parameters` of a random kind, as `transformers` writes them."""
    every = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
    kind = random.choice(kinds or every)
    found: Settings = {"rope_type": kind, "rope_theta": random.choice((base, 500.0))}
    pairs = int(width * share) // 2
    trained = {"original_max_position_embeddings": random.choice((TRAINED, 6))}
    if kind in ("linear", "dynamic"):
        found |= {"factor": random.choice((2.0, 3.5))}
    if kind == "yarn":
        found |= {"factor": random.choice((4.0, 1.0))} | trained
        found |= random.choice(
            (
                {},
                {"attention_factor": 1.3},
                {"mscale": 1.2, "mscale_all_dim": 0.8},
                {"mscale": 1.2},
                {"beta_fast": 4.0, "beta_slow": 0.5, "truncate": False},
            )
        )
    if kind == "llama3":
        found |= {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | trained
    if kind == "longrope":
        found |= {
            "short_factor": [1 + random.random() for _ in range(pairs)],
            "long_factor": [2 + random.random() for _ in range(pairs)],
        }
        found |= trained | random.choice(({}, {"factor": 3.0}, {"attention_factor": 1.2}))
    if share != 1:
        found["partial_rotary_factor"] = share
    return found


def sizes(random: Random, *, free_width: bool = True) -> Settings:
    """Sizes that all of them have."""
    heads = random.choice((4, 2, 6))
    width = random.choice((4, 6, 8))
    found: Settings = {
        "vocab_size": random.choice((31, 34)),
        "hidden_size": heads * width,
        "intermediate_size": random.choice((20, 11)),
        "num_hidden_layers": random.choice((2, 3, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": random.choice((heads, heads // 2, 1)),
        "max_position_embeddings": random.choice((TRAINED, 32)),
        "hidden_act": random.choice(PAIRED),
        "tie_word_embeddings": random.random() < 0.5,
        "head_dim": width,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if free_width and random.random() < 0.5:
        found["head_dim"] = random.choice((10, 8))
    return found


def flag(random: Random) -> bool:
    return random.random() < 0.5


def eps(random: Random) -> float:
    return random.choice((1e-6, 1e-5, 1e-2))


def rms(random: Random, **more: bool) -> Settings:
    found = sizes(random, **more)
    return found | {"rms_norm_eps": eps(random), "rope_parameters": rope(random, found["head_dim"])}


def kinds(random: Random, n: int) -> list[str]:
    return [random.choice(("full_attention", "sliding_attention")) for _ in range(n)]


def llama(random: Random) -> Settings:
    return rms(random) | {"attention_bias": flag(random), "mlp_bias": flag(random)}


def mistral(random: Random) -> Settings:
    return rms(random) | {"sliding_window": random.choice((None, 2, 4, 40))}


def qwen2(random: Random) -> Settings:
    found = rms(random)
    n = found["num_hidden_layers"]
    found |= {"use_sliding_window": flag(random), "sliding_window": random.choice((3, 5))}
    found |= {"max_window_layers": random.choice((0, 1, n))}
    if found["use_sliding_window"] and flag(random):
        found["layer_types"] = kinds(random, n)
    return found


def qwen3(random: Random) -> Settings:
    return qwen2(random) | {"attention_bias": flag(random)}


def smollm3(random: Random) -> Settings:
    found = llama(random)
    n = found["num_hidden_layers"]
    found |= {"use_sliding_window": flag(random), "sliding_window": random.choice((None, 4))}
    if flag(random):
        found["no_rope_layers"] = [random.choice((0, 1)) for _ in range(n)]
    else:
        found["no_rope_layer_interval"] = random.choice((2, 3, 4))
    if found["sliding_window"] and flag(random):
        found["layer_types"] = kinds(random, n)
    return found


def gemma(random: Random) -> Settings:
    return rms(random) | {"attention_bias": flag(random)}


def gemma2(random: Random) -> Settings:
    found = gemma(random)
    found["hidden_activation"] = found.pop("hidden_act")
    found |= {
        "query_pre_attn_scalar": random.choice((7, 16)),
        "sliding_window": random.choice((3, 5, 40)),
        "final_logit_softcapping": random.choice((None, 2.0)),
        "attn_logit_softcapping": random.choice((None, 1.5)),
    }
    if flag(random):
        found["layer_types"] = kinds(random, found["num_hidden_layers"])
    return found


def gemma3(random: Random) -> Settings:
    found = gemma2(random)
    width = found["head_dim"]
    found.pop("rope_parameters")
    if flag(random):
        found["sliding_window_pattern"] = random.choice((2, 3))
    form = random.choice(("new", "old", "left out"))
    if form == "new":
        flat = ("default", "linear", "dynamic", "longrope", "llama3")
        found["rope_parameters"] = {
            "full_attention": rope(random, width, flat),
            "sliding_attention": rope(random, width, (random.choice(flat), "default")),
        }
    if form == "old":
        found |= {"rope_theta": 900.0, "rope_local_base_freq": 70.0}
        found |= {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    return found


def phi3(random: Random) -> Settings:
    found = sizes(random, free_width=False)
    width = found.pop("head_dim")
    share = random.choice((1.0, 0.5 if width % 4 == 0 else 2 / 3))
    found |= {
        "rms_norm_eps": eps(random),
        "rope_parameters": rope(random, width, ("default", "longrope"), share),
        "original_max_position_embeddings": random.choice((TRAINED, 10)),
        "sliding_window": random.choice((None, 4)),
    }
    return found


def olmo(random: Random) -> Settings:
    found = rms(random) | {"attention_bias": flag(random)}
    found.pop("rms_norm_eps")
    return found


def olmo2(random: Random) -> Settings:
    return rms(random) | {"attention_bias": flag(random)}


def granite(random: Random) -> Settings:
    return llama(random) | {
        "embedding_multiplier": random.choice((1.0, 3.0)),
        "residual_multiplier": random.choice((1.0, 0.22)),
        "attention_multiplier": random.choice((1.0, 0.3)),
        "logits_scaling": random.choice((1.0, 3.0)),
    }


def stablelm(random: Random) -> Settings:
    found = sizes(random, free_width=False)
    width = found.pop("head_dim")
    share = random.choice((1.0, 0.5 if width % 4 == 0 else 2 / 3))
    return found | {
        "layer_norm_eps": eps(random),
        "rope_parameters": rope(random, width, share=share) | {"partial_rotary_factor": share},
        "use_qkv_bias": flag(random),
        "qk_layernorm": flag(random),
        "use_parallel_residual": flag(random),
    }


def cohere(random: Random) -> Settings:
    found = olmo(random)
    return found | {
        "layer_norm_eps": eps(random),
        "logit_scale": random.choice((0.5, 1.0)),
        "use_qk_norm": flag(random),
    }


# model_type: what its classes' names begin with, and settings.
RELATIVES: dict[str, tuple[str, Callable[[Random], Settings]]] = {
    "llama": ("Llama", llama),
    "mistral": ("Mistral", mistral),
    "qwen2": ("Qwen2", qwen2),
    "qwen3": ("Qwen3", qwen3),
    "smollm3": ("SmolLM3", smollm3),
    "gemma": ("Gemma", gemma),
    "gemma2": ("Gemma2", gemma2),
    "gemma3_text": ("Gemma3", gemma3),
    "phi3": ("Phi3", phi3),
    "olmo": ("Olmo", olmo),
    "olmo2": ("Olmo2", olmo2),
    "granite": ("Granite", granite),
    "stablelm": ("StableLm", stablelm),
    "cohere": ("Cohere", cohere),
}


def drawn(model_type: str, seed: int) -> Settings:
    """Settings of an architecture, the same for the same seed."""
    return RELATIVES[model_type][1](Random(f"{model_type} {seed}"))


def build(model_type: str, settings: Settings, *, head: bool = True) -> nn.Module:
    """A model with explicit attention and weights that are all different."""
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    name = RELATIVES[model_type][0]
    text = "Text" if name == "Gemma3" else ""
    config = getattr(transformers, f"{name}{text}Config")(**settings)
    kind = getattr(transformers, f"{name}ForCausalLM" if head else f"{name}{text}Model")
    model = kind._from_config(config, attn_implementation="eager").eval()
    randomise(model)
    if model_type.startswith("gemma"):  # norms are stored less one
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if "norm" in parameter_name:
                    parameter -= 1
    return model


@contextmanager
def double_precision(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within it `transformers` computes in float64 what it takes in float32 otherwise."""
    before = torch.get_default_dtype()
    with patch.context() as patched:
        for name in ("float32", "float"):
            patched.setattr(torch, name, torch.float64)
        patched.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
