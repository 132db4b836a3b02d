"""GPT-2: `GPT2LMHeadModel`, and `GPT2Model` without the head (Radford et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import (
    NAMES,
    Family,
    activation,
    architecture,
    dropout,
    named,
    require,
)
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = checkpoint.config
    require(
        theirs,
        add_cross_attention=False,
        is_causal=True,
        scale_attn_by_inverse_layer_idx=False,
    )
    name = architecture(checkpoint, ("GPT2LMHeadModel", "GPT2Model"), "GPT2LMHeadModel")
    has_head = name == "GPT2LMHeadModel"
    return Config(
        vocab=theirs.get("vocab_size", 50257),
        d_model=theirs.get("n_embd", 768),
        n_layers=theirs.get("n_layer", 12),
        n_heads=theirs.get("n_head", 12),
        d_ff=theirs.get("n_inner"),
        max_length=theirs.get("n_positions", 1024),
        positions="learned",
        attention_scale=None if theirs.get("scale_attn_weights", True) else 1.0,
        norm_eps=theirs.get("layer_norm_epsilon", 1e-5),
        activation=activation(theirs, "activation_function", "gelu_new"),
        dropout=dropout(theirs, "resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
        head="linear" if has_head else "none",
        tie_embeddings=has_head and theirs.get("tie_word_embeddings", True),
        initialisation="gpt2",
    )


def entries(config: Config) -> list[Entry]:
    """Names of the tensors. Their linear maps are stored as (input, output), queries, keys, values in one."""
    rows = [
        entry("wte.weight", "token_embedding.weight"),
        entry("wpe.weight", "positions.table"),
        *layer("ln_f", "final_norm"),
    ]
    for i in range(config.n_layers):
        theirs, ours = f"h.{i}", f"blocks.{i}"
        rows += layer(f"{theirs}.ln_1", f"{ours}.attention_norm")
        rows += layer(f"{theirs}.ln_2", f"{ours}.feedforward_norm")
        for kind in ("weight", "bias"):
            qkv = [f"{ours}.attention.{part}.{kind}" for part in ("query", "key", "value")]
            maps = {
                "attn.c_attn": qkv,
                "attn.c_proj": [f"{ours}.attention.output.{kind}"],
                "mlp.c_fc": [f"{ours}.feedforward.up.{kind}"],
                "mlp.c_proj": [f"{ours}.feedforward.down.{kind}"],
            }
            rows += [
                entry(f"{theirs}.{name}.{kind}", *names, transposed=kind == "weight")
                for name, names in maps.items()
            ]
    if config.head == "linear" and not config.tie_embeddings:
        rows.append(entry("lm_head.weight", "unembedding.weight"))
    return rows


def tied_names(config: Config) -> dict[str, str]:
    """The unembedding, if it is tied to the embedding."""
    return {"lm_head.weight": "wte.weight"} if config.tie_embeddings else {}


def settings(c: Config) -> dict[str, Any]:
    """GPT-2's settings for such a config."""
    return {
        "architectures": ["GPT2Model" if c.head == "none" else "GPT2LMHeadModel"],
        "vocab_size": c.vocab,
        "n_embd": c.d_model,
        "n_layer": c.n_layers,
        "n_head": c.n_heads,
        "n_inner": c.neurons,
        "n_positions": c.max_length,
        "layer_norm_epsilon": c.norm_eps,
        "activation_function": named(c.activation, NAMES, "activation"),
        "scale_attn_weights": c.attention_scale != 1.0 or c.head_width == 1,
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.dropout,
        "tie_word_embeddings": c.tie_embeddings,
    }


GPT2 = Family(
    name="gpt2",
    prefix="transformer.",
    derived_tensors=("h.*.attn.bias", "h.*.attn.masked_bias"),
    config_of=config_of,
    entries=entries,
    tied_names=tied_names,
    kind=Decoder,
    settings=settings,
)
