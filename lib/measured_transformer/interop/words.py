"""What this library calls a choice and what checkpoints call it: refusals name what stands in the file.

A checkpoint that cannot be read is refused either by its family, which names its setting, or by `Config`, which
knows the library's own words alone. To the second kind of sentence the settings are added.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_WIDTH = ("hidden_size", "n_embd", "d_model", "dim")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads")
_HEAD_WIDTH = ("head_dim", "d_kv")
_SHARE = ("partial_rotary_factor", "rotary_pct", "rotary_dim")

SETTINGS: dict[str, tuple[str, ...]] = {
    "vocab": ("vocab_size",),
    "d_model": _WIDTH,
    "n_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"),
    "n_heads": _HEADS,
    "n_kv_heads": ("num_key_value_heads",),
    "d_head": _HEAD_WIDTH,
    "d_ff": (
        *("intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim", "encoder_ffn_dim"),
        "moe_intermediate_size",
    ),
    "max_length": ("max_position_embeddings", "n_positions"),
    "norm_eps": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"),
    "dropout": (
        *("dropout", "attention_dropout", "hidden_dropout", "dropout_rate", "activation_dropout"),
        *("resid_pdrop", "embd_pdrop", "attn_pdrop", "resid_dropout", "embed_dropout"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob"),
        *("embedding_dropout", "mlp_dropout"),
    ),
    "window": ("sliding_window", "window_size", "local_attention"),
    "activation": ("hidden_act", "activation_function", "hidden_activation", "feed_forward_proj"),
    "bias": ("enable_bias", "attention_bias", "use_qkv_bias", "qkv_bias", "mlp_bias", "norm_bias"),
    "attention_bias": ("attention_bias",),
    "qkv_bias": ("use_qkv_bias", "qkv_bias"),
    "ffn_bias": ("mlp_bias",),
    "norm_bias": ("norm_bias",),
    "head_bias": ("decoder_bias",),
    "final_norm": ("do_layer_norm_before", "_remove_final_layer_norm"),
    "parallel": ("use_parallel_residual",),
    "tie_embeddings": ("tie_word_embeddings",),
    "token_types": ("type_vocab_size",),
    "rotary_base": ("rope_theta", "rope_parameters", "rope_scaling"),
    "rope_theta": ("rotary_emb_base", "global_rope_theta", "local_rope_theta"),
    "rotary_share": (*_SHARE, "rope_parameters", "rope_scaling"),
    "partial_rotary_factor": (*_SHARE, "rope_parameters", "rope_scaling"),
    "rotary_scaling": ("rope_parameters", "rope_scaling"),
    "entries of a head": (*_WIDTH, *_HEADS, *_HEAD_WIDTH),
    "width of heads": (*_WIDTH, *_HEADS, *_HEAD_WIDTH),
    "factor for each of": ("rope_parameters", "rope_scaling"),
    "relative_buckets": ("relative_attention_num_buckets",),
    "relative_max_distance": ("relative_attention_max_distance",),
    "n_decoder_layers": ("num_decoder_layers", "decoder_layers"),
    "n_decoder_heads": ("decoder_attention_heads",),
    "d_decoder_ff": ("decoder_ffn_dim",),
    "n_experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "per_token": ("num_experts_per_tok",),
    "groups": ("n_group",),
    "asked_groups": ("topk_group",),
    "labels": ("id2label", "num_labels"),
}
"""A word of a refusal -> what checkpoints call the setting."""


def with_settings(sentence: str, config: Mapping[str, Any]) -> str:
    """A refusal, with the settings of the checkpoint that it is about where it names none of them.

    Args:
        sentence: the refusal.
        config: the settings of the checkpoint.

    >>> with_settings("d_ff must be a positive whole number, got -1", {"vocab_size": 9, "ffn_dim": -1})
    'd_ff must be a positive whole number, got -1 (this checkpoint has ffn_dim=-1)'
    """
    words = config.keys() & set(re.findall(r"\w+", sentence))
    if any(one not in SETTINGS or f"{one}={config[one]!r}" in sentence for one in words):
        return sentence
    named = [
        name
        for word, names in SETTINGS.items()
        if re.search(rf"\b{word}\b", sentence)
        for name in names
        if name in config
    ]
    told = ", ".join(f"{name}={config[name]!r:.60}" for name in dict.fromkeys(named))
    return f"{sentence} (this checkpoint has {told})" if told else sentence
