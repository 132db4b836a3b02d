"""Llama: `LlamaForCausalLM`, and `LlamaModel` without the head (Touvron et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import (
    NAMES,
    UNGATED,
    Family,
    activation,
    architecture,
    dropout,
    gated,
    require,
)
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = checkpoint.config
    require(theirs, is_causal=True, partial_rotary_factor=1.0)
    name = architecture(checkpoint, ("LlamaForCausalLM", "LlamaModel"), "LlamaForCausalLM")
    has_head = name == "LlamaForCausalLM"
    return Config(
        vocab=theirs.get("vocab_size", 32000),
        d_model=theirs.get("hidden_size", 4096),
        n_layers=theirs.get("num_hidden_layers", 32),
        n_heads=theirs.get("num_attention_heads", 32),
        n_kv_heads=theirs.get("num_key_value_heads"),
        d_head=theirs.get("head_dim"),
        d_ff=theirs.get("intermediate_size", 11008),
        max_length=theirs.get("max_position_embeddings", 2048),
        positions="rotary",
        rotary_base=rotary_base(theirs),
        rotary_pairing="halves",
        norm="rms",
        norm_eps=theirs.get("rms_norm_eps", 1e-6),
        activation=gated(activation(theirs, "hidden_act", "silu"), "hidden_act"),
        bias=False,
        attention_bias=theirs.get("attention_bias", False),
        ffn_bias=theirs.get("mlp_bias", False),
        dropout=dropout(theirs, "attention_dropout", default=0.0),
        head="linear" if has_head else "none",
        tie_embeddings=has_head and theirs.get("tie_word_embeddings", False),
        initialisation="gpt2",
    )


def rotary_base(theirs: Mapping[str, Any]) -> float:
    """The base of the frequencies, from newer or older settings.

    Raises:
        ValueError: when the settings stretch or scale the frequencies.
    """
    newer, older = theirs.get("rope_parameters") or {}, theirs.get("rope_scaling") or {}
    for name, settings in (("rope_parameters", newer), ("rope_scaling", older)):
        kind = settings.get("rope_type", settings.get("type", "default"))
        plain = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
        changes = sorted(key for key in set(settings) - plain if settings[key] is not None)
        if kind != "default" or changes or settings.get("partial_rotary_factor") not in (None, 1):
            raise ValueError(
                f"this checkpoint has {name}={settings!r}, which this library does not compute; "
                "supported are plain rotary positions (rope_type='default')"
            )
    given = [settings.get("rope_theta") for settings in (newer, older, theirs)]
    base = next((base for base in given if base is not None), 10000.0)
    if not isinstance(base, int | float):
        raise ValueError(f"rope_theta must be a number, got {base!r}")
    return float(base)


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    rows = [
        entry("embed_tokens.weight", "token_embedding.weight"),
        entry("norm.weight", "final_norm.weight"),
    ]
    for i in range(config.n_layers):
        theirs, ours = f"layers.{i}", f"blocks.{i}"
        rows += [
            entry(f"{theirs}.input_layernorm.weight", f"{ours}.attention_norm.weight"),
            entry(f"{theirs}.post_attention_layernorm.weight", f"{ours}.feedforward_norm.weight"),
        ]
        attention = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
        for their_map, our_map in attention.items():
            rows += layer(
                f"{theirs}.self_attn.{their_map}",
                f"{ours}.attention.{our_map}",
                bias=config.attention_has_bias,
            )
        for name in ("gate", "up", "down"):
            rows += layer(
                f"{theirs}.mlp.{name}_proj", f"{ours}.feedforward.{name}", bias=config.ffn_has_bias
            )
    if config.head == "linear" and not config.tie_embeddings:
        rows.append(entry("lm_head.weight", "unembedding.weight"))
    return rows


def tied_names(config: Config) -> dict[str, str]:
    """The unembedding, if it is tied to the embedding."""
    return {"lm_head.weight": "embed_tokens.weight"} if config.tie_embeddings else {}


def settings(c: Config) -> dict[str, Any]:
    """Llama's settings for such a config."""
    return {
        "architectures": ["LlamaModel" if c.head == "none" else "LlamaForCausalLM"],
        "vocab_size": c.vocab,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_width,
        "intermediate_size": c.neurons,
        "max_position_embeddings": c.max_length,
        "rope_theta": c.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rotary_base},
        "rms_norm_eps": c.norm_eps,
        "hidden_act": NAMES[UNGATED.get(c.activation, c.activation)],
        "attention_bias": c.attention_has_bias,
        "mlp_bias": c.ffn_has_bias,
        "attention_dropout": c.dropout,
        "tie_word_embeddings": c.tie_embeddings,
    }


LLAMA = Family(
    name="llama",
    prefix="model.",
    derived_tensors=("*rotary_emb.inv_freq",),
    config_of=config_of,
    entries=entries,
    tied_names=tied_names,
    kind=Decoder,
    settings=settings,
)
