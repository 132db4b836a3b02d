"""ModernBERT: `ModernBertForMaskedLM` and `ModernBertModel` (Warner et al. 2024).

Rotary positions, no token types, gates of exact GELU, and norms without bias. Two of three layers see a window
around each token and turn by angles of another base. The first block's attention reads the embedding as it is,
which a norm has just left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import (
    NAMES,
    UNGATED,
    Family,
    MisfitError,
    activation,
    architecture,
    dropout,
    gated,
    named,
    require,
    whole,
)
from measured_transformer.interop.layer_types import (
    FULL,
    SLIDING,
    by_layer,
    layer_types,
    write_types,
)
from measured_transformer.interop.rope import read_parameters, rope_of, write_parameters
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder

BASES = {FULL: 160000.0, SLIDING: 10000.0}
_SPECIAL = {
    "pad_token_id": 50283,
    "eos_token_id": 50282,
    "bos_token_id": 50281,
    "cls_token_id": 50281,
    "sep_token_id": 50282,
}
_OLDER = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint.

    Raises:
        ValueError: when a setting asks for what is not computed here.
    """
    theirs = checkpoint.config
    supported = ("ModernBertForMaskedLM", "ModernBertModel")
    has_head = architecture(checkpoint, supported, supported[0]) == supported[0]
    require(theirs, is_causal=False)
    norm_bias = theirs.get("norm_bias", False)
    if not isinstance(norm_bias, bool):
        raise ValueError(f"norm_bias must be True or False, got {norm_bias!r}")
    if has_head:
        require(
            {"classifier_bias": theirs.get("classifier_bias", False)}, classifier_bias=norm_bias
        )
    n_layers = whole(theirs, "num_hidden_layers", 22)
    every = whole(theirs, "global_attn_every_n_layers", 3)
    kinds = layer_types(theirs, [SLIDING if i % every else FULL for i in range(n_layers)])
    local = whole(theirs, "local_attention", 128)
    angles = {kind: _angles(theirs, kind) for kind in set(kinds)}
    turned = [angles[kind] for kind in kinds]
    plain = activation(theirs, "hidden_activation", "gelu")
    return Config(
        vocab=theirs.get("vocab_size", 50368),
        d_model=theirs.get("hidden_size", 768),
        n_layers=n_layers,
        n_heads=theirs.get("num_attention_heads", 12),
        d_ff=theirs.get("intermediate_size", 1152),
        max_length=theirs.get("max_position_embeddings", 8192),
        positions="rotary",
        rotary_pairing="halves",
        **by_layer(
            window=[local // 2 + 1 if kind == SLIDING else None for kind in kinds],
            attention_norm=[i > 0 for i in range(n_layers)],
            rotary_base=[one["rotary_base"] for one in turned],
            rotary_scaling=[one["rotary_scaling"] for one in turned],
        ),
        norm_eps=theirs.get("norm_eps", 1e-5),
        norm_bias=norm_bias,
        activation=gated(plain, "hidden_activation"),
        attention_bias=theirs.get("attention_bias", False),
        ffn_bias=theirs.get("mlp_bias", False),
        dropout=dropout(
            theirs, "embedding_dropout", "attention_dropout", "mlp_dropout", default=0.0
        ),
        embedding_norm=True,
        head="mlm" if has_head else "none",
        head_bias=has_head and theirs.get("decoder_bias", True),
        head_activation=activation(theirs, "classifier_activation", "gelu") if has_head else None,
        head_layer_bias=norm_bias if has_head else True,
        tie_embeddings=has_head and theirs.get("tie_word_embeddings", True),
        initialisation="gpt2",
    )


def _angles(theirs: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The rotary settings of one kind of layer, from newer or older settings."""
    given = rope_of(theirs, kind)
    base = theirs.get(_OLDER[kind])
    base = BASES[kind] if base is None else base
    name = f"rope_parameters of {kind}"
    if not given and theirs.get("rope_scaling"):
        given, name = theirs["rope_scaling"], "rope_scaling"
    return read_parameters(theirs, given, name, base=base, nested=True)


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    bias = config.norm_has_bias
    rows = [
        entry("embeddings.tok_embeddings.weight", "token_embedding.weight"),
        *layer("embeddings.norm", "embedding_norm", bias=bias),
        *layer("final_norm", "final_norm", bias=bias),
    ]
    for i in range(config.n_layers):
        theirs, ours = f"layers.{i}", f"blocks.{i}"
        if config.of_layer(i).attention_norm:
            rows += layer(f"{theirs}.attn_norm", f"{ours}.attention_norm", bias=bias)
        rows += layer(f"{theirs}.mlp_norm", f"{ours}.feedforward_norm", bias=bias)
        for kind in ("weight", "bias") if config.attention_has_bias else ("weight",):
            qkv = [f"{ours}.attention.{part}.{kind}" for part in ("query", "key", "value")]
            rows.append(entry(f"{theirs}.attn.Wqkv.{kind}", *qkv))
        rows += layer(
            f"{theirs}.attn.Wo", f"{ours}.attention.output", bias=config.attention_has_bias
        )
        for kind in ("weight", "bias") if config.ffn_has_bias else ("weight",):
            halves = [f"{ours}.feedforward.{part}.{kind}" for part in ("gate", "up")]
            rows.append(entry(f"{theirs}.mlp.Wi.{kind}", *halves))
        rows += layer(f"{theirs}.mlp.Wo", f"{ours}.feedforward.down", bias=config.ffn_has_bias)
    if config.head == "mlm":
        rows += layer("head.dense", "head_layer.dense", bias=config.head_layer_bias)
        rows += layer("head.norm", "head_layer.norm", bias=config.head_layer_bias)
        if config.head_bias:
            rows.append(entry("decoder.bias", "unembedding.bias"))
        if not config.tie_embeddings:
            rows.append(entry("decoder.weight", "unembedding.weight"))
    return rows


def tied_names(config: Config) -> dict[str, str]:
    """The unembedding, if it is tied to the embedding."""
    return {"decoder.weight": "embeddings.tok_embeddings.weight"} if config.tie_embeddings else {}


def settings(c: Config) -> dict[str, Any]:
    """ModernBERT's settings for such a config."""
    kinds, window = write_types(c)
    blocks = [c.of_layer(i) for i in range(c.n_layers)]
    first = {kind: blocks[kinds.index(kind)] for kind in (FULL, SLIDING) if kind in kinds}
    plain = UNGATED.get(c.activation)
    if plain is None:
        raise MisfitError(f"activation must have a gate, is {c.activation!r}")
    head = c.head_activation or c.activation
    written = {
        "architectures": ["ModernBertModel" if c.head == "none" else "ModernBertForMaskedLM"],
        "vocab_size": c.vocab,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "intermediate_size": c.neurons,
        "max_position_embeddings": c.max_length,
        "layer_types": kinds,
        "local_attention": 128 if window is None else 2 * (window - 1),
        "rope_parameters": {kind: write_parameters(block) for kind, block in first.items()},
        **{_OLDER[kind]: block.rotary_base for kind, block in first.items()},
        **{name: None for name, number in _SPECIAL.items() if number >= c.vocab},
        "norm_eps": c.norm_eps,
        "norm_bias": c.norm_has_bias,
        "hidden_activation": NAMES[plain],
        "attention_bias": c.attention_has_bias,
        "mlp_bias": c.ffn_has_bias,
        "embedding_dropout": c.dropout,
        "attention_dropout": c.dropout,
        "mlp_dropout": c.dropout,
        "tie_word_embeddings": c.tie_embeddings or c.head == "none",
    }
    if c.head == "mlm":
        written["decoder_bias"] = c.head_bias
        written["classifier_bias"] = c.head_layer_bias
        written["classifier_activation"] = named(UNGATED.get(head, head), NAMES, "head_activation")
    return written


MODERNBERT = Family(
    name="modernbert",
    prefix="model.",
    derived_tensors=("*inv_freq",),
    heads=("head.", "decoder.", "classifier."),
    config_of=config_of,
    entries=entries,
    tied_names=tied_names,
    kind=Encoder,
    settings=settings,
)
