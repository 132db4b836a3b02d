"""Mistral: `MistralForCausalLM`, and `MistralModel` without the head (Jiang et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import whole
from measured_transformer.interop.layer_types import FULL, SLIDING, write_types
from measured_transformer.interop.llama import (
    base_config,
    base_settings,
    relative,
    with_defaults,
)
from measured_transformer.models.config import Config

CLASSES = ("MistralForCausalLM", "MistralModel")


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint.

    Raises:
        ValueError: when a setting asks for what is not computed here.
    """
    theirs = with_defaults(
        checkpoint.config,
        num_key_value_heads=8,
        intermediate_size=14336,
        max_position_embeddings=4096 * 32,
        sliding_window=4096,
    )
    window = theirs["sliding_window"]
    kind = FULL if window is None else SLIDING
    n, kinds = whole(theirs, "num_hidden_layers"), theirs.get("layer_types")
    if kinds is not None and kinds != [kind] * n:
        raise ValueError(
            f"this checkpoint has layer_types={kinds!r:.200}, which this library does not compute; supported "
            f"is {kind!r} for each of its {n} layers"
        )
    return base_config(checkpoint, theirs, CLASSES, window=window)


def settings(c: Config) -> dict[str, Any]:
    """Mistral's settings for such a config."""
    return {**base_settings(c, CLASSES), "sliding_window": write_types(c)[1]}


MISTRAL = relative("mistral", config_of, settings)
