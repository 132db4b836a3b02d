"""Qwen 2, 2.5 and 3: `Qwen2ForCausalLM`, `Qwen3ForCausalLM`, and the models without head.

Qwen 2 has biases for queries, keys and values alone; Qwen 3 normalises queries and keys head by head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import whole
from measured_transformer.interop.layer_types import (
    FULL,
    SLIDING,
    by_layer,
    layer_types,
    windows,
    write_types,
)
from measured_transformer.interop.llama import (
    base_config,
    base_entries,
    base_settings,
    relative,
    with_defaults,
)
from measured_transformer.interop.tensors import Entry
from measured_transformer.models.config import Config

CLASSES2 = ("Qwen2ForCausalLM", "Qwen2Model")
CLASSES3 = ("Qwen3ForCausalLM", "Qwen3Model")
HEAD_NORMS = {
    "self_attn.q_norm.weight": "attention.query_norm.weight",
    "self_attn.k_norm.weight": "attention.key_norm.weight",
}


def config_of_qwen2(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = _with_defaults(checkpoint)
    return base_config(checkpoint, theirs, CLASSES2, qkv_bias=True, **_windows(theirs))


def config_of_qwen3(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = _with_defaults(checkpoint, head_dim=128)
    bias = theirs["attention_bias"]
    return base_config(
        checkpoint, theirs, CLASSES3, qk_norm="head", attention_bias=bias, **_windows(theirs)
    )


def _with_defaults(checkpoint: Checkpoint, **more: Any) -> dict[str, Any]:
    return with_defaults(
        checkpoint.config,
        vocab_size=151936,
        intermediate_size=22016,
        num_key_value_heads=32,
        max_position_embeddings=32768,
        use_sliding_window=False,
        sliding_window=4096,
        max_window_layers=28,
        **more,
    )


def _windows(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Layers from number `max_window_layers` on slide, unless `layer_types` says otherwise."""
    window = theirs["sliding_window"] if theirs["use_sliding_window"] else None
    n = whole(theirs, "num_hidden_layers")
    first = n if window is None else theirs["max_window_layers"]
    kinds = [SLIDING if i >= first else FULL for i in range(n)]
    return by_layer(window=windows(layer_types(theirs, kinds), window))


def qwen3_entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    return base_entries(config, more=HEAD_NORMS)


def qwen2_settings(c: Config) -> dict[str, Any]:
    """Qwen 2's settings for such a config."""
    return {**base_settings(c, CLASSES2), **_window_settings(c)}


def qwen3_settings(c: Config) -> dict[str, Any]:
    """Qwen 3's settings for such a config."""
    own = {"attention_bias": c.attention_has_bias}
    return {**base_settings(c, CLASSES3), **own, **_window_settings(c)}


def _window_settings(c: Config) -> dict[str, Any]:
    kinds, window = write_types(c)
    return {
        "layer_types": kinds,
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "max_window_layers": kinds.index(SLIDING) if SLIDING in kinds else c.n_layers,
    }


QWEN2 = relative("qwen2", config_of_qwen2, qwen2_settings)
QWEN3 = relative("qwen3", config_of_qwen3, qwen3_settings, qwen3_entries)
