"""Phi-3 and Phi-4-mini: `Phi3ForCausalLM`, and `Phi3Model` without the head.

Queries, keys and values are one tensor, as are the gate and what it stands on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import MisfitError, dropout
from measured_transformer.interop.layer_types import write_types
from measured_transformer.interop.llama import (
    TWO_NORMS,
    base_config,
    base_settings,
    norm_entries,
    outer_entries,
    relative,
    with_defaults,
)
from measured_transformer.interop.rope import read_rope
from measured_transformer.interop.tensors import Entry, entry
from measured_transformer.models.config import Config
from measured_transformer.parts.rotary_scaling import LongRope

CLASSES = ("Phi3ForCausalLM", "Phi3Model")


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint.

    Raises:
        ValueError: when a setting asks for what is not computed here.
    """
    theirs = with_defaults(
        checkpoint.config,
        vocab_size=32064,
        hidden_size=3072,
        intermediate_size=8192,
        max_position_embeddings=4096,
        original_max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        sliding_window=None,
    )
    rope = read_rope(theirs, share=1.0, synonyms={"su": "longrope", "yarn": "longrope"})
    if not isinstance(rope["rotary_scaling"], LongRope | None):
        raise ValueError("rope_type must be 'default' or 'longrope' in a Phi-3, got another one")
    return base_config(
        checkpoint,
        theirs,
        CLASSES,
        rope=rope,
        window=theirs["sliding_window"],
        dropout=dropout(theirs, "resid_pdrop", "embd_pdrop", "attention_dropout", default=0.0),
    )


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    rows = outer_entries(config)
    for i in range(config.n_layers):
        rows += norm_entries(config, i, TWO_NORMS)
        maps = {
            "self_attn.qkv_proj": ("attention.query", "attention.key", "attention.value"),
            "self_attn.o_proj": ("attention.output",),
            "mlp.gate_up_proj": ("feedforward.gate", "feedforward.up"),
            "mlp.down_proj": ("feedforward.down",),
        }
        rows += [
            entry(f"layers.{i}.{name}.weight", *(f"blocks.{i}.{one}.weight" for one in ours))
            for name, ours in maps.items()
        ]
    return rows


def settings(c: Config) -> dict[str, Any]:
    """Phi-3's settings for such a config."""
    if not isinstance(c.rotary_scaling, LongRope | None):
        raise MisfitError("rope_type must be 'default' or 'longrope' in a Phi-3")
    if c.rotary_scaling is not None and c.head_width != c.d_model // c.n_heads:
        raise MisfitError("with rotary_scaling, d_head must be d_model / n_heads")
    return {
        **base_settings(c, CLASSES),
        "sliding_window": write_types(c)[1],
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
    }


PHI3 = relative("phi3", config_of, settings, entries)
