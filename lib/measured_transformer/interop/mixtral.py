"""Mixtral: `MixtralForCausalLM`, and `MixtralModel` without the head (Jiang et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.experts import experts_of, network_entries, unpacked
from measured_transformer.interop.family import require, whole
from measured_transformer.interop.layer_types import write_types
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
from measured_transformer.interop.rope import read_rope
from measured_transformer.interop.tensors import Entry
from measured_transformer.models.config import Config
from measured_transformer.parts.experts import Experts

CLASSES = ("MixtralForCausalLM", "MixtralModel")
PLACE = "block_sparse_moe"
NAMES = {"gate": "w1", "up": "w3", "down": "w2"}


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(
        checkpoint.config,
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=4096 * 32,
        rms_norm_eps=1e-5,
        sliding_window=None,
        num_experts_per_tok=2,
        num_local_experts=8,
    )
    require(theirs, router_jitter_noise=0.0)
    experts = Experts(
        whole(theirs, "num_local_experts"), whole(theirs, "num_experts_per_tok"), normalised=True
    )
    window, rope = theirs["sliding_window"], read_rope(theirs, base=1e6)
    return base_config(checkpoint, theirs, CLASSES, rope=rope, window=window, network=experts)


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    rows = outer_entries(config)
    for i in range(config.n_layers):
        rows += norm_entries(config, i, TWO_NORMS)
        rows += attention_entries(config, i)
        rows += network_entries(config, i, place=PLACE, names=NAMES)
    return rows


def settings(c: Config) -> dict[str, Any]:
    """Mixtral's settings for such a config."""
    experts, width, _ = experts_of(c)
    return {
        **base_settings(c, CLASSES),
        "intermediate_size": width,
        "sliding_window": write_types(c)[1],
        "num_local_experts": experts.n_experts,
        "num_experts_per_tok": experts.per_token,
    }


MIXTRAL = replace(
    relative("mixtral", config_of, settings, entries),
    tidy=lambda _, held: unpacked(held, place=PLACE, names=NAMES),
)
