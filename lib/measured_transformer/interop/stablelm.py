"""StableLM: `StableLmForCausalLM`, and `StableLmModel` without the head (Bellagente et al. 2024).

Part of each head is turned; norms are LayerNorms; attention and network may stand side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import dropout, require, whole
from measured_transformer.interop.llama import (
    TWO_NORMS,
    base_config,
    base_entries,
    base_settings,
    relative,
    whole_heads,
    with_defaults,
)
from measured_transformer.interop.rope import read_rope
from measured_transformer.interop.tensors import Entry, entry
from measured_transformer.models.config import Config

CLASSES = ("StableLmForCausalLM", "StableLmModel")


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(
        checkpoint.config,
        vocab_size=50304,
        hidden_size=2560,
        num_key_value_heads=32,
        intermediate_size=6912,
        max_position_embeddings=4096,
        layer_norm_eps=1e-5,
        use_qkv_bias=False,
        qk_layernorm=False,
        use_parallel_residual=False,
    )
    require(theirs, head_dim=whole(theirs, "hidden_size") // whole(theirs, "num_attention_heads"))
    parallel = bool(theirs["use_parallel_residual"])
    return base_config(
        checkpoint,
        theirs,
        CLASSES,
        rope=read_rope(theirs, share=0.25),
        norm="layer",
        norm_bias=True,
        norm_eps=theirs["layer_norm_eps"],
        qkv_bias=bool(theirs["use_qkv_bias"]),
        qk_norm="heads" if theirs["qk_layernorm"] else "none",
        parallel=parallel,
        shared_norm=parallel,
        dropout=dropout(theirs, "hidden_dropout", "attention_dropout", default=0.0),
    )


def entries(config: Config) -> list[Entry]:
    """Names of the tensors. The norms of queries and keys are stored head by head."""
    norms = {"input_layernorm": "attention_norm"} if config.shared_norm else TWO_NORMS
    rows = base_entries(config, norms)
    if config.qk_norm == "none":
        return rows
    counts = {"q": ("query", config.n_heads), "k": ("key", config.kv_heads)}
    return rows + [
        entry(
            f"layers.{i}.self_attn.{theirs}_layernorm.norms.{head}.weight",
            f"blocks.{i}.attention.{ours}_norm.weight",
            row=head,
        )
        for i in range(config.n_layers)
        for theirs, (ours, n) in counts.items()
        for head in range(n)
    ]


def settings(c: Config) -> dict[str, Any]:
    """StableLM's settings for such a config."""
    whole_heads(c)
    common = base_settings(c, CLASSES)
    return {
        **{name: value for name, value in common.items() if name != "rms_norm_eps"},
        "partial_rotary_factor": c.rotary_share,
        "layer_norm_eps": c.norm_eps,
        "use_qkv_bias": c.qkv_has_bias,
        "qk_layernorm": c.qk_norm != "none",
        "use_parallel_residual": c.parallel,
        "hidden_dropout": c.dropout,
    }


STABLELM = relative("stablelm", config_of, settings, entries)
