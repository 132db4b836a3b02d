"""Qwen 2 and 3 with experts: `Qwen2MoeForCausalLM`, `Qwen3MoeForCausalLM`, and the models without head.

And OLMoE (`OlmoeForCausalLM`; Muennighoff et al. 2024), whose tensors have the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.experts import (
    experts_of,
    network_entries,
    networks,
    plain_width,
    sparse_layers,
    unpacked,
)
from measured_transformer.interop.family import require, whole
from measured_transformer.interop.layer_types import (
    FULL,
    SLIDING,
    layer_types,
    windows,
    write_types,
)
from measured_transformer.interop.llama import (
    TWO_NORMS,
    attention_entries,
    base_config,
    base_settings,
    norm_entries,
    outer_entries,
    relative,
    with_defaults,
)
from measured_transformer.interop.tensors import Entry, entry
from measured_transformer.models.config import Config
from measured_transformer.parts.experts import Experts

CLASSES2 = ("Qwen2MoeForCausalLM", "Qwen2MoeModel")
CLASSES3 = ("Qwen3MoeForCausalLM", "Qwen3MoeModel")
CLASSES_OLMOE = ("OlmoeForCausalLM", "OlmoeModel")


def config_of_qwen2(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = _with_defaults(
        checkpoint,
        intermediate_size=5632,
        num_key_value_heads=16,
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
        num_experts_per_tok=4,
        num_experts=60,
        max_window_layers=28,
        qkv_bias=True,
    )
    n, window = whole(theirs, "num_hidden_layers"), _window(theirs)
    # Every second layer slides, among the first so many.
    first = 0 if window is None else theirs["max_window_layers"]
    kinds = [SLIDING if i < first and i % 2 == 0 else FULL for i in range(n)]
    shared = whole(theirs, "shared_expert_intermediate_size")
    experts = _experts(theirs, shared_width=shared, shared_gate=True)
    return base_config(
        checkpoint,
        theirs,
        CLASSES2,
        qkv_bias=theirs["qkv_bias"],
        **networks(
            sparse_layers(theirs, n, experts), window=windows(layer_types(theirs, kinds), window)
        ),
    )


def config_of_qwen3(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = _with_defaults(
        checkpoint,
        intermediate_size=6144,
        num_key_value_heads=4,
        moe_intermediate_size=768,
        num_experts_per_tok=8,
        num_experts=128,
    )
    n = whole(theirs, "num_hidden_layers")
    return base_config(
        checkpoint,
        theirs,
        CLASSES3,
        qk_norm="head",
        attention_bias=theirs["attention_bias"],
        window=_window(theirs),
        **networks(sparse_layers(theirs, n, _experts(theirs))),
    )


def config_of_olmoe(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(
        checkpoint.config,
        vocab_size=50304,
        hidden_size=2048,
        intermediate_size=2048,
        num_hidden_layers=16,
        num_attention_heads=16,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        num_experts_per_tok=8,
        num_experts=64,
        norm_topk_prob=False,
    )
    require(theirs, clip_qkv=None)
    experts = Experts(
        _count(theirs),
        whole(theirs, "num_experts_per_tok"),
        normalised=bool(theirs["norm_topk_prob"]),
    )
    bias = theirs["attention_bias"]
    return base_config(
        checkpoint, theirs, CLASSES_OLMOE, qk_norm="width", attention_bias=bias, network=experts
    )


def _with_defaults(checkpoint: Checkpoint, **more: Any) -> dict[str, Any]:
    return with_defaults(
        checkpoint.config,
        vocab_size=151936,
        hidden_size=2048,
        num_hidden_layers=24,
        max_position_embeddings=32768,
        use_sliding_window=False,
        sliding_window=4096,
        decoder_sparse_step=1,
        mlp_only_layers=None,
        norm_topk_prob=False,
        **more,
    )


def _window(theirs: Mapping[str, Any]) -> int | None:
    return theirs["sliding_window"] if theirs["use_sliding_window"] else None


def _experts(theirs: Mapping[str, Any], **more: Any) -> Experts:
    return Experts(
        _count(theirs),
        whole(theirs, "num_experts_per_tok"),
        width=whole(theirs, "moe_intermediate_size"),
        normalised=bool(theirs["norm_topk_prob"]),
        **more,
    )


def _count(theirs: Mapping[str, Any]) -> int:
    """The number of experts, which has two names."""
    return whole(
        theirs, "num_experts" if "num_local_experts" not in theirs else "num_local_experts"
    )


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    rows = outer_entries(config)
    for i in range(config.n_layers):
        rows += norm_entries(config, i, TWO_NORMS)
        rows += attention_entries(config, i)
        if config.qk_norm != "none":
            for one, own in (("q", "query"), ("k", "key")):
                theirs = f"layers.{i}.self_attn.{one}_norm.weight"
                rows.append(entry(theirs, f"blocks.{i}.attention.{own}_norm.weight"))
        rows += network_entries(config, i)
    return rows


def qwen2_settings(c: Config) -> dict[str, Any]:
    """Qwen 2's settings for such a config."""
    experts = experts_of(c)[0]
    kinds, window = write_types(c)
    return {
        **_settings(c, CLASSES2),
        "shared_expert_intermediate_size": experts.shared_width,
        "layer_types": kinds,
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "qkv_bias": c.qkv_has_bias,
    }


def qwen3_settings(c: Config) -> dict[str, Any]:
    """Qwen 3's settings for such a config."""
    window = write_types(c)[1]
    return {
        **_settings(c, CLASSES3),
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "attention_bias": c.attention_has_bias,
    }


def olmoe_settings(c: Config) -> dict[str, Any]:
    """OLMoE's settings for such a config."""
    experts, width, _ = experts_of(c)
    return {
        **base_settings(c, CLASSES_OLMOE),
        "intermediate_size": width,
        "num_experts": experts.n_experts,
        "num_experts_per_tok": experts.per_token,
        "norm_topk_prob": experts.normalised,
        "attention_bias": c.attention_has_bias,
    }


def _settings(c: Config, classes: tuple[str, str]) -> dict[str, Any]:
    experts, width, plain = experts_of(c)
    return {
        **base_settings(c, classes),
        "intermediate_size": plain_width(c, plain),
        "moe_intermediate_size": width,
        "num_experts": experts.n_experts,
        "num_experts_per_tok": experts.per_token,
        "norm_topk_prob": experts.normalised,
        "decoder_sparse_step": 1,
        "mlp_only_layers": plain,
    }


QWEN2_MOE, QWEN3_MOE, OLMOE = (
    replace(relative(name, config_of, settings, entries), tidy=lambda _, held: unpacked(held))
    for name, config_of, settings in (
        ("qwen2_moe", config_of_qwen2, qwen2_settings),
        ("qwen3_moe", config_of_qwen3, qwen3_settings),
        ("olmoe", config_of_olmoe, olmoe_settings),
    )
)
