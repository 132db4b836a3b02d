"""Granite: `GraniteForCausalLM`, and `GraniteModel` without the head.

Llama with a factor on the embedding, on what sublayers add, on the scores and on the logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import MisfitError, positive
from measured_transformer.interop.llama import (
    base_config,
    base_settings,
    relative,
    with_defaults,
)
from measured_transformer.models.config import Config

CLASSES = ("GraniteForCausalLM", "GraniteModel")


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(
        checkpoint.config,
        embedding_multiplier=1.0,
        residual_multiplier=1.0,
        attention_multiplier=1.0,
        logits_scaling=1.0,
    )
    return base_config(
        checkpoint,
        theirs,
        CLASSES,
        attention_bias=theirs["attention_bias"],
        ffn_bias=theirs["mlp_bias"],
        embedding_scale=positive(theirs, "embedding_multiplier"),
        residual_scale=positive(theirs, "residual_multiplier"),
        attention_scale=positive(theirs, "attention_multiplier"),
        logit_scale=1 / positive(theirs, "logits_scaling"),
    )


def settings(c: Config) -> dict[str, Any]:
    """Granite's settings for such a config."""
    if not c.logit_scale:
        raise MisfitError("logit_scale must be another number than 0")
    return {
        **base_settings(c, CLASSES),
        "attention_bias": c.attention_has_bias,
        "mlp_bias": c.ffn_has_bias,
        "embedding_multiplier": c.embedding_factor,
        "residual_multiplier": c.residual_scale,
        "attention_multiplier": c.head_width**-0.5
        if c.attention_scale is None
        else c.attention_scale,
        "logits_scaling": 1 / c.logit_scale,
    }


GRANITE = relative("granite", config_of, settings)
