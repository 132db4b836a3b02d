"""Cohere's Command R: `CohereForCausalLM`, and `CohereModel` without the head.

Attention and network stand side by side behind one norm; neighbours, not halves, are turned together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import positive
from measured_transformer.interop.llama import (
    base_config,
    base_entries,
    base_settings,
    relative,
    with_defaults,
)
from measured_transformer.interop.qwen import HEAD_NORMS
from measured_transformer.interop.rope import read_rope
from measured_transformer.interop.tensors import Entry
from measured_transformer.models.config import Config

CLASSES = ("CohereForCausalLM", "CohereModel")


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(
        checkpoint.config,
        vocab_size=256000,
        hidden_size=8192,
        num_hidden_layers=40,
        num_attention_heads=64,
        intermediate_size=22528,
        max_position_embeddings=8192,
        layer_norm_eps=1e-5,
        logit_scale=0.0625,
        use_qk_norm=False,
        tie_word_embeddings=True,
    )
    return base_config(
        checkpoint,
        theirs,
        CLASSES,
        rope=read_rope(theirs, base=500000.0),
        rotary_pairing="interleaved",
        norm="layer",
        norm_bias=False,
        norm_eps=theirs["layer_norm_eps"],
        parallel=True,
        shared_norm=True,
        attention_bias=theirs["attention_bias"],
        qk_norm="heads" if theirs["use_qk_norm"] else "none",
        logit_scale=positive(theirs, "logit_scale"),
    )


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    more = {} if config.qk_norm == "none" else HEAD_NORMS
    return base_entries(config, {"input_layernorm": "attention_norm"}, more)


def settings(c: Config) -> dict[str, Any]:
    """Cohere's settings for such a config."""
    common = base_settings(c, CLASSES)
    return {
        **{name: value for name, value in common.items() if name != "rms_norm_eps"},
        "layer_norm_eps": c.norm_eps,
        "attention_bias": c.attention_has_bias,
        "use_qk_norm": c.qk_norm != "none",
        "logit_scale": c.logit_scale,
    }


COHERE = relative("cohere", config_of, settings, entries)
