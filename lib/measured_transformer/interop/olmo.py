"""OLMo 1 and 2: `OlmoForCausalLM`, `Olmo2ForCausalLM`, and the models without head.

The first has norms without weights; the second norms what sublayers write, and all queries of a position as one
vector, as all its keys (Groeneveld et al. 2024; Team OLMo 2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import require
from measured_transformer.interop.llama import (
    base_config,
    base_entries,
    base_settings,
    relative,
    with_defaults,
)
from measured_transformer.interop.qwen import HEAD_NORMS
from measured_transformer.interop.tensors import Entry
from measured_transformer.models.config import Config

CLASSES1 = ("OlmoForCausalLM", "OlmoModel")
CLASSES2 = ("Olmo2ForCausalLM", "Olmo2Model")
WRITTEN_NORMS = {
    "post_attention_layernorm": "attention_norm",
    "post_feedforward_layernorm": "feedforward_norm",
}


def config_of_olmo(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(checkpoint.config, vocab_size=50304)
    require(theirs, clip_qkv=None)
    bias = theirs["attention_bias"]
    return base_config(
        checkpoint, theirs, CLASSES1, norm="layer_plain", norm_eps=1e-5, attention_bias=bias
    )


def config_of_olmo2(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(checkpoint.config, vocab_size=50304, rms_norm_eps=1e-5)
    return base_config(
        checkpoint,
        theirs,
        CLASSES2,
        placement="branch",
        qk_norm="width",
        attention_bias=theirs["attention_bias"],
    )


def olmo_entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    return base_entries(config, {})


def olmo2_entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    return base_entries(config, WRITTEN_NORMS, HEAD_NORMS)


def olmo_settings(c: Config) -> dict[str, Any]:
    """The first OLMo's settings for such a config."""
    settings = {**base_settings(c, CLASSES1), "attention_bias": c.attention_has_bias}
    return {name: value for name, value in settings.items() if name != "rms_norm_eps"}


def olmo2_settings(c: Config) -> dict[str, Any]:
    """OLMo 2's settings for such a config."""
    return {**base_settings(c, CLASSES2), "attention_bias": c.attention_has_bias}


OLMO = relative("olmo", config_of_olmo, olmo_settings, olmo_entries)
OLMO2 = relative("olmo2", config_of_olmo2, olmo2_settings, olmo2_entries)
