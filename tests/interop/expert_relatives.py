"""Tiny models with experts in `transformers`, with settings drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import torch
from hf_reference import randomise
from llama_relatives import Settings, flag, kinds, rms, rope
from torch import nn


def mixtral(random: Random) -> Settings:
    return rms(random) | {
        "num_local_experts": random.choice((3, 5)),
        "num_experts_per_tok": random.choice((1, 2, 3)),
        "sliding_window": random.choice((None, 4)),
    }


def qwen3_moe(random: Random) -> Settings:
    found = rms(random)
    return found | {
        "attention_bias": flag(random),
        "moe_intermediate_size": random.choice((5, 9)),
        "num_experts": random.choice((3, 6)),
        "num_experts_per_tok": random.choice((1, 2, 3)),
        "norm_topk_prob": flag(random),
        "decoder_sparse_step": random.choice((1, 2)),
        "mlp_only_layers": random.choice(([], None, [0])),
        "use_sliding_window": flag(random),
        "sliding_window": random.choice((3, 5)),
    }


def qwen2_moe(random: Random) -> Settings:
    found = qwen3_moe(random) | {
        "qkv_bias": flag(random),
        "shared_expert_intermediate_size": random.choice((4, 7)),
        "max_window_layers": random.choice((0, 2, 3)),
    }
    found.pop("attention_bias")
    if found["use_sliding_window"] and flag(random):
        found["layer_types"] = kinds(random, found["num_hidden_layers"])
    return found


def olmoe(random: Random) -> Settings:
    found = rms(random, free_width=False)
    found.pop("head_dim")
    return found | {
        "attention_bias": flag(random),
        "num_experts": random.choice((3, 6)),
        "num_experts_per_tok": random.choice((1, 2, 3)),
        "norm_topk_prob": flag(random),
    }


def gpt_oss(random: Random) -> Settings:
    found = rms(random) | {
        "num_local_experts": random.choice((3, 5)),
        "num_experts_per_tok": random.choice((1, 2, 3)),
        "sliding_window": random.choice((2, 4, 40)),
        "swiglu_alpha": random.choice((1.702, 0.6)),
        "swiglu_limit": random.choice((7.0, 0.5)),
        "attention_bias": flag(random),
    }
    if flag(random):
        found["layer_types"] = kinds(random, found["num_hidden_layers"])
    if flag(random):
        found.pop("rope_parameters")
    return found


def latent(random: Random) -> Settings:
    found = rms(random, free_width=False)
    found.pop("head_dim")
    turned = random.choice((2, 4))
    return found | {
        "num_key_value_heads": found["num_attention_heads"],
        "rope_parameters": rope(random, turned),
        "attention_bias": flag(random),
        "q_lora_rank": random.choice((None, 5)),
        "kv_lora_rank": random.choice((3, 7)),
        "qk_rope_head_dim": turned,
        "qk_nope_head_dim": random.choice((3, 6)),
        "v_head_dim": random.choice((2, 5, 11)),
        "moe_intermediate_size": random.choice((5, 9)),
        "n_shared_experts": random.choice((1, 2)),
        "first_k_dense_replace": random.choice((0, 1)),
        "routed_scaling_factor": random.choice((1.0, 2.5)),
        "n_routed_experts": 8,
        "num_experts_per_tok": random.choice((1, 2, 3)),
    }


def deepseek_v2(random: Random) -> Settings:
    # It turns complex numbers, which have to lie in pairs.
    found = latent(random) | {"kv_lora_rank": random.choice((4, 8))}
    found["qk_nope_head_dim"] = random.choice((4, 6))
    if flag(random):
        found |= {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}
    return found


def deepseek_v3(random: Random) -> Settings:
    return latent(random) | {
        "n_group": random.choice((1, 2, 4)),
        "topk_group": 1,
        "num_experts_per_tok": random.choice((1, 2)),
        "norm_topk_prob": flag(random),
        "rope_interleave": flag(random),
    }


# model_type: what its classes' names begin with, and settings.
RELATIVES: dict[str, tuple[str, Callable[[Random], Settings]]] = {
    "mixtral": ("Mixtral", mixtral),
    "qwen3_moe": ("Qwen3Moe", qwen3_moe),
    "qwen2_moe": ("Qwen2Moe", qwen2_moe),
    "olmoe": ("Olmoe", olmoe),
    "gpt_oss": ("GptOss", gpt_oss),
    "deepseek_v2": ("DeepseekV2", deepseek_v2),
    "deepseek_v3": ("DeepseekV3", deepseek_v3),
}


def drawn(model_type: str, seed: int) -> Settings:
    """Settings of an architecture, the same for the same seed."""
    return RELATIVES[model_type][1](Random(f"{model_type} {seed}"))


def build(model_type: str, settings: Settings, *, head: bool = True) -> nn.Module:
    """A model with explicit attention, expert by expert, and weights that are all different."""
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    name = RELATIVES[model_type][0]
    config = getattr(transformers, f"{name}Config")(**settings)
    kind = getattr(transformers, f"{name}ForCausalLM" if head else f"{name}Model")
    model = kind._from_config(config, attn_implementation="eager", experts_implementation="eager")
    randomise(model)
    generator = torch.Generator().manual_seed(2)
    for buffer_name, buffer in model.named_buffers():
        if buffer_name.endswith("e_score_correction_bias"):
            buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))
    return model.eval()
