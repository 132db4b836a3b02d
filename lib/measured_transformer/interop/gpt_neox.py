"""Decoders with parallel blocks and partly turned heads: GPT-NeoX and Pythia, GPT-J, Phi.

GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023) store queries, keys and values head by head in
one matrix and turn the first quarter of each head. GPT-J (Wang and Komatsuzaki 2021) and Phi (Gunasekar et al.
2023) have one norm for both branches; GPT-J turns neighbours.
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
    activation,
    dropout,
    named,
    require,
    whole,
)
from measured_transformer.interop.rope import read_rope, write_rope
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder

_QKV = ("query", "key", "value")


# GPT-NeoX -------------------------------------------------------------------------------------------


def neox_config(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of a GPT-NeoX checkpoint."""
    theirs = checkpoint.config
    d_model = whole(theirs, "hidden_size", 6144)
    n_heads = whole(theirs, "num_attention_heads", 64)
    require(theirs, is_causal=True, head_dim=d_model // n_heads)
    # Beside the rotary settings only these names are read, and not those of other architectures.
    own = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
    settings = {**theirs, **{name: theirs.get(other) for name, other in own.items()}}
    return Config(
        vocab=theirs.get("vocab_size", 50432),
        d_model=d_model,
        n_layers=theirs.get("num_hidden_layers", 44),
        n_heads=n_heads,
        d_ff=theirs.get("intermediate_size", 24576),
        max_length=theirs.get("max_position_embeddings", 2048),
        positions="rotary",
        rotary_pairing="halves",
        **read_rope(settings, share=0.25),
        norm_eps=theirs.get("layer_norm_eps", 1e-5),
        parallel=theirs.get("use_parallel_residual", True),
        activation=activation(theirs, "hidden_act", "gelu"),
        attention_bias=theirs.get("attention_bias", True),
        dropout=dropout(theirs, "hidden_dropout", "attention_dropout", default=0.0),
        **head_fields(theirs, is_causal_lm(checkpoint, "GPTNeoX"), tied=False),
    )


def neox_entries(c: Config) -> list[Entry]:
    """Names of GPT-NeoX's tensors."""
    rows = [
        entry("embed_in.weight", "token_embedding.weight"),
        *layer("final_layer_norm", "final_norm"),
    ]
    for i in range(c.n_layers):
        theirs, ours = f"layers.{i}", f"blocks.{i}"
        rows += layer(f"{theirs}.input_layernorm", f"{ours}.attention_norm")
        rows += layer(f"{theirs}.post_attention_layernorm", f"{ours}.feedforward_norm")
        for kind in ("weight", "bias") if c.attention_has_bias else ("weight",):
            names = [f"{ours}.attention.{part}.{kind}" for part in _QKV]
            rows.append(
                entry(f"{theirs}.attention.query_key_value.{kind}", *names, heads=c.n_heads)
            )
        rows += layer(
            f"{theirs}.attention.dense", f"{ours}.attention.output", bias=c.attention_has_bias
        )
        rows += layer(f"{theirs}.mlp.dense_h_to_4h", f"{ours}.feedforward.up")
        rows += layer(f"{theirs}.mlp.dense_4h_to_h", f"{ours}.feedforward.down")
    return rows + head_entries(c, "embed_out")


def neox_settings(c: Config) -> dict[str, Any]:
    """GPT-NeoX's settings for such a config."""
    rope = write_rope(c)
    rope["rope_parameters"]["partial_rotary_factor"] = c.rotary_share
    return {
        "architectures": class_of(c, "GPTNeoX"),
        "vocab_size": c.vocab,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "intermediate_size": c.neurons,
        **rope,
        "rotary_emb_base": c.rotary_base,
        "rotary_pct": c.rotary_share,
        "layer_norm_eps": c.norm_eps,
        "hidden_act": named(c.activation, NAMES, "activation"),
        "use_parallel_residual": c.parallel,
        "attention_bias": c.attention_has_bias,
        "hidden_dropout": c.dropout,
        "attention_dropout": c.dropout,
        "tie_word_embeddings": c.tie_embeddings,
    }


# GPT-J ----------------------------------------------------------------------------------------------


def gptj_config(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of a GPT-J checkpoint.

    Raises:
        ValueError: when a setting asks for what is not computed here.
    """
    theirs = checkpoint.config
    require(theirs, is_causal=True)
    has_head = is_causal_lm(checkpoint, "GPTJ")
    d_model, n_heads = whole(theirs, "n_embd", 4096), whole(theirs, "n_head", 16)
    width, turned = d_model // n_heads, theirs.get("rotary_dim", 64)
    known = isinstance(turned, int) and not isinstance(turned, bool)
    if not known or not 0 < turned <= width or turned % 2:
        raise ValueError(
            f"this checkpoint has rotary_dim={turned!r}, which this library does not compute; supported is "
            f"an even number up to the {width} entries of a head"
        )
    return Config(
        vocab=theirs.get("vocab_size", 50400),
        d_model=d_model,
        n_layers=theirs.get("n_layer", 28),
        n_heads=n_heads,
        d_ff=theirs.get("n_inner"),
        max_length=theirs.get("n_positions", 2048),
        positions="rotary",
        rotary_share=turned / width,
        norm_eps=theirs.get("layer_norm_epsilon", 1e-5),
        parallel=True,
        shared_norm=True,
        activation=activation(theirs, "activation_function", "gelu_new"),
        attention_bias=False,
        dropout=dropout(theirs, "resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.0),
        head_bias=has_head,
        **head_fields(theirs, has_head, tied=False),
    )


def gptj_entries(c: Config) -> list[Entry]:
    """Names of GPT-J's tensors."""
    rows = [entry("wte.weight", "token_embedding.weight"), *layer("ln_f", "final_norm")]
    for i in range(c.n_layers):
        theirs, ours = f"h.{i}", f"blocks.{i}"
        rows += layer(f"{theirs}.ln_1", f"{ours}.attention_norm")
        maps = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
        for name, part in maps.items():
            rows += layer(f"{theirs}.attn.{name}", f"{ours}.attention.{part}", bias=False)
        rows += layer(f"{theirs}.mlp.fc_in", f"{ours}.feedforward.up")
        rows += layer(f"{theirs}.mlp.fc_out", f"{ours}.feedforward.down")
    return rows + head_entries(c, "lm_head")


def gptj_settings(c: Config) -> dict[str, Any]:
    """GPT-J's settings for such a config."""
    return {
        "architectures": class_of(c, "GPTJ"),
        "vocab_size": c.vocab,
        "n_embd": c.d_model,
        "n_layer": c.n_layers,
        "n_head": c.n_heads,
        "n_inner": c.neurons,
        "n_positions": c.max_length,
        "rotary_dim": c.rotary_width,
        "layer_norm_epsilon": c.norm_eps,
        "activation_function": named(c.activation, NAMES, "activation"),
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.dropout,
        "tie_word_embeddings": c.tie_embeddings,
    }


# Phi ------------------------------------------------------------------------------------------------


def phi_config(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of a checkpoint of Phi 1, 1.5 or 2."""
    theirs = checkpoint.config
    require(theirs, is_causal=True, qk_layernorm=False)
    has_head = is_causal_lm(checkpoint, "Phi")
    return Config(
        vocab=theirs.get("vocab_size", 51200),
        d_model=theirs.get("hidden_size", 2048),
        n_layers=theirs.get("num_hidden_layers", 24),
        n_heads=theirs.get("num_attention_heads", 32),
        n_kv_heads=theirs.get("num_key_value_heads"),
        d_head=theirs.get("head_dim"),
        d_ff=theirs.get("intermediate_size", 8192),
        max_length=theirs.get("max_position_embeddings", 2048),
        positions="rotary",
        rotary_pairing="halves",
        **read_rope(theirs, share=0.5),
        norm_eps=theirs.get("layer_norm_eps", 1e-5),
        parallel=True,
        shared_norm=True,
        activation=activation(theirs, "hidden_act", "gelu_new"),
        dropout=dropout(theirs, "resid_pdrop", "embd_pdrop", "attention_dropout", default=0.0),
        head_bias=has_head,
        **head_fields(theirs, has_head, tied=False),
    )


def phi_entries(c: Config) -> list[Entry]:
    """Names of Phi's tensors."""
    rows = [
        entry("embed_tokens.weight", "token_embedding.weight"),
        *layer("final_layernorm", "final_norm"),
    ]
    for i in range(c.n_layers):
        theirs, ours = f"layers.{i}", f"blocks.{i}"
        rows += layer(f"{theirs}.input_layernorm", f"{ours}.attention_norm")
        maps = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "dense": "output"}
        for name, part in maps.items():
            rows += layer(f"{theirs}.self_attn.{name}", f"{ours}.attention.{part}")
        rows += layer(f"{theirs}.mlp.fc1", f"{ours}.feedforward.up")
        rows += layer(f"{theirs}.mlp.fc2", f"{ours}.feedforward.down")
    return rows + head_entries(c, "lm_head")


def phi_settings(c: Config) -> dict[str, Any]:
    """Phi's settings for such a config."""
    rope = write_rope(c)
    rope["rope_parameters"]["partial_rotary_factor"] = c.rotary_share
    return {
        "architectures": class_of(c, "Phi"),
        "vocab_size": c.vocab,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.kv_heads,
        **({} if c.head_width * c.n_heads == c.d_model else {"head_dim": c.head_width}),
        "intermediate_size": c.neurons,
        **rope,
        "partial_rotary_factor": c.rotary_share,
        "layer_norm_eps": c.norm_eps,
        "hidden_act": named(c.activation, NAMES, "activation"),
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attention_dropout": c.dropout,
        "tie_word_embeddings": c.tie_embeddings,
    }


GPT_NEOX = Family(
    name="gpt_neox",
    prefix="gpt_neox.",
    derived_tensors=MASKS,
    config_of=neox_config,
    entries=neox_entries,
    tied_names=tied_head("embed_in.weight", "embed_out.weight"),
    kind=Decoder,
    settings=neox_settings,
    heads=("embed_out.", "lm_head."),
    tidy=lambda _, held: {  # a live model of transformers calls it by the second name
        name.replace("lm_head.", "embed_out."): tensor for name, tensor in held.items()
    },
)
GPTJ = Family(
    name="gptj",
    prefix="transformer.",
    derived_tensors=(*MASKS, "*.embed_positions"),
    config_of=gptj_config,
    entries=gptj_entries,
    tied_names=tied_head("wte.weight"),
    kind=Decoder,
    settings=gptj_settings,
)
PHI = Family(
    name="phi",
    prefix="model.",
    derived_tensors=MASKS,
    config_of=phi_config,
    entries=phi_entries,
    tied_names=tied_head("embed_tokens.weight"),
    kind=Decoder,
    settings=phi_settings,
)
