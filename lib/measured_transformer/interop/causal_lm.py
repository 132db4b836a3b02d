"""What the tables of decoders with a head called `lm_head` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import architecture
from measured_transformer.interop.tensors import Entry, entry
from measured_transformer.models.config import Config

MASKS = ("*.attention.bias", "*.attn.bias", "*.masked_bias", "*rotary_emb.inv_freq")
"""Buffers of older files, which follow from the settings."""


def is_causal_lm(checkpoint: Checkpoint, classes: str) -> bool:
    """Return whether the checkpoint is one of a model with a head."""
    with_head = f"{classes}ForCausalLM"
    return architecture(checkpoint, (with_head, f"{classes}Model"), with_head) == with_head


def class_of(c: Config, classes: str) -> list[str]:
    """The setting `architectures`."""
    return [f"{classes}Model" if c.head == "none" else f"{classes}ForCausalLM"]


def head_entries(c: Config, name: str) -> list[Entry]:
    """The entries of an unembedding and its bias."""
    rows = []
    if c.head == "linear" and not c.tie_embeddings:
        rows.append(entry(f"{name}.weight", "unembedding.weight"))
    if c.head_bias:
        rows.append(entry(f"{name}.bias", "unembedding.bias"))
    return rows


def head_fields(theirs: Mapping[str, Any], has_head: bool, *, tied: bool) -> dict[str, Any]:
    """The fields of the head."""
    return {
        "head": "linear" if has_head else "none",
        "tie_embeddings": has_head and theirs.get("tie_word_embeddings", tied),
        "initialisation": "gpt2",
    }


def tied_head(embedding: str, head: str = "lm_head.weight") -> Callable[[Config], dict[str, str]]:
    """The names of an unembedding that may be tied to the embedding."""

    def tied_names(c: Config) -> dict[str, str]:
        return {head: embedding} if c.tie_embeddings else {}

    return tied_names
