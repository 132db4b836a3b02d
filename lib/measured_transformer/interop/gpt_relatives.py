"""GPT-NeoX and Pythia, GPT-J, GPT-Neo, OPT and Phi: LayerNorm decoders after GPT-2.

GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023) store queries, keys and values by head in one
matrix, turn the first quarter of each head and have parallel blocks. GPT-J (Wang and Komatsuzaki 2021) and Phi
(Gunasekar et al. 2023) have parallel blocks with one norm; GPT-J turns neighbours. GPT-Neo (Black et al. 2021)
sees 256 tokens in every second layer and does not scale its scores. OPT (Zhang et al. 2022) has learned
positions whose table begins with two rows that no position reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import (
    NAMES,
    Family,
    MisfitError,
    activation,
    architecture,
    dropout,
    named,
    require,
)
from measured_transformer.interop.layer_types import FULL, SLIDING, by_layer, write_types
from measured_transformer.interop.rope import read_rope, write_rope
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder

_QKV = ("query", "key", "value")
_OPT_SKIPPED = 2


def _has_head(checkpoint: Checkpoint, classes: str) -> bool:
    """Whether the checkpoint is one of a model with a head."""
    with_head = f"{classes}ForCausalLM"
    return architecture(checkpoint, (with_head, f"{classes}Model"), with_head) == with_head


def _class(c: Config, classes: str) -> list[str]:
    return [f"{classes}Model" if c.head == "none" else f"{classes}ForCausalLM"]


def _head(c: Config, name: str) -> list[Entry]:
    """The entries of an unembedding and its bias."""
    rows = []
    if c.head == "linear" and not c.tie_embeddings:
        rows.append(entry(f"{name}.weight", "unembedding.weight"))
    if c.head_bias:
        rows.append(entry(f"{name}.bias", "unembedding.bias"))
    return rows


def _shared(theirs: Mapping[str, Any], has_head: bool, *, tied: bool) -> dict[str, Any]:
    """The fields of the head."""
    return {
        "head": "linear" if has_head else "none",
        "tie_embeddings": has_head and theirs.get("tie_word_embeddings", tied),
        "initialisation": "gpt2",
    }


# GPT-NeoX -------------------------------------------------------------------------------------------


def neox_config(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of a GPT-NeoX checkpoint."""
    theirs = checkpoint.config
    require(theirs, is_causal=True)
    settings = dict(theirs)
    for old, new in (("rotary_emb_base", "rope_theta"), ("rotary_pct", "partial_rotary_factor")):
        if settings.get(new) is None:
            settings[new] = settings.get(old)
    return Config(
        vocab=theirs.get("vocab_size", 50432),
        d_model=theirs.get("hidden_size", 6144),
        n_layers=theirs.get("num_hidden_layers", 44),
        n_heads=theirs.get("num_attention_heads", 64),
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
        **_shared(theirs, _has_head(checkpoint, "GPTNeoX"), tied=False),
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
    return rows + _head(c, "embed_out")


def neox_settings(c: Config) -> dict[str, Any]:
    """GPT-NeoX's settings for such a config."""
    rope = write_rope(c)
    rope["rope_parameters"]["partial_rotary_factor"] = c.rotary_share
    return {
        "architectures": _class(c, "GPTNeoX"),
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
    """The sizes and choices of a GPT-J checkpoint."""
    theirs = checkpoint.config
    require(theirs, is_causal=True)
    has_head = _has_head(checkpoint, "GPTJ")
    width = theirs.get("n_embd", 4096) // theirs.get("n_head", 16)
    turned = theirs.get("rotary_dim", 64)
    if turned is None or isinstance(turned, bool) or not 0 < turned <= width or turned % 2:
        raise ValueError(
            f"this checkpoint has rotary_dim={turned!r}, which this library does not compute; supported is "
            f"an even number up to the {width} entries of a head"
        )
    return Config(
        vocab=theirs.get("vocab_size", 50400),
        d_model=theirs.get("n_embd", 4096),
        n_layers=theirs.get("n_layer", 28),
        n_heads=theirs.get("n_head", 16),
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
        **_shared(theirs, has_head, tied=False),
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
    return rows + _head(c, "lm_head")


def gptj_settings(c: Config) -> dict[str, Any]:
    """GPT-J's settings for such a config."""
    return {
        "architectures": _class(c, "GPTJ"),
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


# GPT-Neo --------------------------------------------------------------------------------------------


def neo_config(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of a GPT-Neo checkpoint."""
    theirs = checkpoint.config
    require(theirs, is_causal=True)
    n_layers, window = theirs.get("num_layers", 24), theirs.get("window_size", 256)
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
        **_shared(theirs, _has_head(checkpoint, "GPTNeo"), tied=True),
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
    return rows + _head(c, "lm_head")


def neo_settings(c: Config) -> dict[str, Any]:
    """GPT-Neo's settings for such a config."""
    kinds, window = write_types(c)
    names = {FULL: "global", SLIDING: "local"}
    return {
        "architectures": _class(c, "GPTNeo"),
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
        **_shared(theirs, _has_head(checkpoint, "OPT"), tied=True),
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
    return [Entry(f"decoder.{row.theirs}", row.ours, skipped=row.skipped) for row in rows] + _head(
        c, "lm_head"
    )


def opt_settings(c: Config) -> dict[str, Any]:
    """OPT's settings for such a config."""
    if c.placement not in ("pre", "post"):
        raise MisfitError(f"placement must be 'pre' or 'post', is {c.placement!r}")
    return {
        "architectures": _class(c, "OPT"),
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


# Phi ------------------------------------------------------------------------------------------------


def phi_config(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of a checkpoint of Phi 1, 1.5 or 2."""
    theirs = checkpoint.config
    require(theirs, is_causal=True, qk_layernorm=False)
    has_head = _has_head(checkpoint, "Phi")
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
        **_shared(theirs, has_head, tied=False),
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
    return rows + _head(c, "lm_head")


def phi_settings(c: Config) -> dict[str, Any]:
    """Phi's settings for such a config."""
    rope = write_rope(c)
    rope["rope_parameters"]["partial_rotary_factor"] = c.rotary_share
    return {
        "architectures": _class(c, "Phi"),
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


def _tied(embedding: str, head: str = "lm_head.weight") -> Callable[[Config], dict[str, str]]:
    def tied_names(c: Config) -> dict[str, str]:
        return {head: embedding} if c.tie_embeddings else {}

    return tied_names


_MASKS = ("*.attention.bias", "*.attn.bias", "*.masked_bias", "*rotary_emb.inv_freq")
GPT_NEOX = Family(
    name="gpt_neox",
    prefix="gpt_neox.",
    derived_tensors=_MASKS,
    config_of=neox_config,
    entries=neox_entries,
    tied_names=_tied("embed_in.weight", "embed_out.weight"),
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
    derived_tensors=(*_MASKS, "*.embed_positions"),
    config_of=gptj_config,
    entries=gptj_entries,
    tied_names=_tied("wte.weight"),
    kind=Decoder,
    settings=gptj_settings,
)
GPT_NEO = Family(
    name="gpt_neo",
    prefix="transformer.",
    derived_tensors=_MASKS,
    config_of=neo_config,
    entries=neo_entries,
    tied_names=_tied("wte.weight"),
    kind=Decoder,
    settings=neo_settings,
)
OPT = Family(
    name="opt",
    prefix="model.",
    config_of=opt_config,
    entries=opt_entries,
    tied_names=_tied("decoder.embed_tokens.weight"),
    kind=Decoder,
    settings=opt_settings,
)
PHI = Family(
    name="phi",
    prefix="model.",
    derived_tensors=_MASKS,
    config_of=phi_config,
    entries=phi_entries,
    tied_names=_tied("embed_tokens.weight"),
    kind=Decoder,
    settings=phi_settings,
)
