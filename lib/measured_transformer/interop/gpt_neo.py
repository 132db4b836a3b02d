"""Decoders with learned positions: GPT-Neo and OPT.

GPT-Neo (Black et al. 2021) sees 256 tokens in every second layer and does not scale its scores. OPT (Zhang et
al. 2022) has a table of positions that begins with two rows that no position reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.causal_lm import (
    MASKS,
    class_of,
    head_entries,
    head_fields,
    is_causal_lm,
    tied_head,
)
from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import (
    NAMES,
    Family,
    MisfitError,
    activation,
    dropout,
    named,
    require,
    whole,
)
from measured_transformer.interop.layer_types import FULL, SLIDING, by_layer, write_types
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder

_OPT_SKIPPED = 2


# GPT-Neo --------------------------------------------------------------------------------------------


def neo_config(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of a GPT-Neo checkpoint.

    Raises:
        ValueError: when a setting asks for what is not computed here.
    """
    theirs = checkpoint.config
    require(theirs, is_causal=True)
    n_layers, window = whole(theirs, "num_layers", 24), theirs.get("window_size", 256)
    kinds = _neo_kinds(theirs, n_layers)
    return Config(
        vocab=theirs.get("vocab_size", 50257),
        d_model=theirs.get("hidden_size", 2048),
        n_layers=n_layers,
        n_heads=theirs.get("num_heads", 16),
        d_ff=theirs.get("intermediate_size"),
        max_length=theirs.get("max_position_embeddings", 2048),
        positions="learned",
        attention_scale=1.0,
        **by_layer(window=[window if kind == "local" else None for kind in kinds]),
        norm_eps=theirs.get("layer_norm_epsilon", 1e-5),
        activation=activation(theirs, "activation_function", "gelu_new"),
        qkv_bias=False,
        dropout=dropout(theirs, "resid_dropout", "embed_dropout", "attention_dropout", default=0.0),
        **head_fields(theirs, is_causal_lm(checkpoint, "GPTNeo"), tied=True),
    )


def _neo_kinds(theirs: Mapping[str, Any], n_layers: int) -> list[str]:
    """'global' or 'local' for each layer. Raises ValueError when the settings name others or too few."""
    types = theirs.get("attention_types") or [[["global", "local"], n_layers // 2]]
    try:
        kinds = [kind for pattern, times in types for _ in range(times) for kind in pattern]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) != n_layers or not set(kinds) <= {"global", "local"}:
        raise ValueError(
            f"attention_types must name 'global' or 'local' for each of {n_layers} layers, got {types!r}"
        )
    return kinds


def neo_entries(c: Config) -> list[Entry]:
    """Names of GPT-Neo's tensors."""
    rows = [
        entry("wte.weight", "token_embedding.weight"),
        entry("wpe.weight", "positions.table"),
        *layer("ln_f", "final_norm"),
    ]
    for i in range(c.n_layers):
        theirs, ours = f"h.{i}", f"blocks.{i}"
        rows += layer(f"{theirs}.ln_1", f"{ours}.attention_norm")
        rows += layer(f"{theirs}.ln_2", f"{ours}.feedforward_norm")
        for name, part in {"q_proj": "query", "k_proj": "key", "v_proj": "value"}.items():
            rows += layer(f"{theirs}.attn.attention.{name}", f"{ours}.attention.{part}", bias=False)
        rows += layer(f"{theirs}.attn.attention.out_proj", f"{ours}.attention.output")
        rows += layer(f"{theirs}.mlp.c_fc", f"{ours}.feedforward.up")
        rows += layer(f"{theirs}.mlp.c_proj", f"{ours}.feedforward.down")
    return rows + head_entries(c, "lm_head")


def neo_settings(c: Config) -> dict[str, Any]:
    """GPT-Neo's settings for such a config."""
    kinds, window = write_types(c)
    names = {FULL: "global", SLIDING: "local"}
    return {
        "architectures": class_of(c, "GPTNeo"),
        "vocab_size": c.vocab,
        "hidden_size": c.d_model,
        "num_layers": c.n_layers,
        "num_heads": c.n_heads,
        "intermediate_size": c.neurons,
        "max_position_embeddings": c.max_length,
        "attention_types": [[[names[kind]], 1] for kind in kinds],
        "window_size": 256 if window is None else window,
        "layer_norm_epsilon": c.norm_eps,
        "activation_function": named(c.activation, NAMES, "activation"),
        "resid_dropout": c.dropout,
        "embed_dropout": c.dropout,
        "attention_dropout": c.dropout,
        "tie_word_embeddings": c.tie_embeddings,
    }


# OPT ------------------------------------------------------------------------------------------------


def opt_config(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of an OPT checkpoint."""
    theirs = checkpoint.config
    width = theirs.get("hidden_size", 768)
    require(theirs, is_causal=True, word_embed_proj_dim=width)
    before = theirs.get("do_layer_norm_before", True)
    bias = theirs.get("enable_bias", True)
    trained = theirs.get("layer_norm_elementwise_affine", True)
    return Config(
        vocab=theirs.get("vocab_size", 50272),
        d_model=width,
        n_layers=theirs.get("num_hidden_layers", 12),
        n_heads=theirs.get("num_attention_heads", 12),
        d_ff=theirs.get("ffn_dim", 3072),
        max_length=theirs.get("max_position_embeddings", 2048),
        positions="learned",
        norm="layer" if trained else "layer_plain",
        norm_bias=True,
        placement="pre" if before else "post",
        final_norm=before and not theirs.get("_remove_final_layer_norm", False),
        activation=activation(theirs, "activation_function", "relu"),
        bias=bias,
        dropout=dropout({"dropout": 0.1, **theirs}, "dropout", "attention_dropout", default=0.0),
        **head_fields(theirs, is_causal_lm(checkpoint, "OPT"), tied=True),
    )


def opt_entries(c: Config) -> list[Entry]:
    """Names of OPT's tensors."""
    norms = ("weight", "bias") if c.norm == "layer" else ()

    def norm(theirs: str, ours: str) -> list[Entry]:
        return [entry(f"{theirs}.{kind}", f"{ours}.{kind}") for kind in norms]

    rows = [
        entry("embed_tokens.weight", "token_embedding.weight"),
        entry("embed_positions.weight", "positions.table", skipped=_OPT_SKIPPED),
        *(norm("final_layer_norm", "final_norm") if c.has_final_norm else ()),
    ]
    for i in range(c.n_layers):
        theirs, ours = f"layers.{i}", f"blocks.{i}"
        rows += norm(f"{theirs}.self_attn_layer_norm", f"{ours}.attention_norm")
        rows += norm(f"{theirs}.final_layer_norm", f"{ours}.feedforward_norm")
        maps = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
        for name, part in maps.items():
            rows += layer(
                f"{theirs}.self_attn.{name}", f"{ours}.attention.{part}", bias=c.attention_has_bias
            )
        rows += layer(f"{theirs}.fc1", f"{ours}.feedforward.up", bias=c.ffn_has_bias)
        rows += layer(f"{theirs}.fc2", f"{ours}.feedforward.down", bias=c.ffn_has_bias)
    return [
        Entry(f"decoder.{row.theirs}", row.ours, skipped=row.skipped) for row in rows
    ] + head_entries(c, "lm_head")


def opt_settings(c: Config) -> dict[str, Any]:
    """OPT's settings for such a config."""
    if c.placement not in ("pre", "post"):
        raise MisfitError(f"placement must be 'pre' or 'post', is {c.placement!r}")
    return {
        "architectures": class_of(c, "OPT"),
        "vocab_size": c.vocab,
        "hidden_size": c.d_model,
        "word_embed_proj_dim": c.d_model,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "ffn_dim": c.neurons,
        "max_position_embeddings": c.max_length,
        "do_layer_norm_before": c.placement == "pre",
        "_remove_final_layer_norm": not c.has_final_norm,
        "layer_norm_elementwise_affine": c.norm == "layer",
        "enable_bias": c.attention_has_bias,
        "activation_function": named(c.activation, NAMES, "activation"),
        "dropout": c.dropout,
        "attention_dropout": c.dropout,
        "tie_word_embeddings": c.tie_embeddings,
    }


GPT_NEO = Family(
    name="gpt_neo",
    prefix="transformer.",
    derived_tensors=MASKS,
    config_of=neo_config,
    entries=neo_entries,
    tied_names=tied_head("wte.weight"),
    kind=Decoder,
    settings=neo_settings,
)
OPT = Family(
    name="opt",
    prefix="model.",
    config_of=opt_config,
    entries=opt_entries,
    tied_names=tied_head("decoder.embed_tokens.weight"),
    kind=Decoder,
    settings=opt_settings,
)
