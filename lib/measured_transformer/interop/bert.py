"""BERT: `BertForMaskedLM`, `BertForPreTraining` and `BertModel` (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
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
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint; with a pooler where that has one."""
    theirs = checkpoint.config
    require(theirs, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    supported = ("BertForMaskedLM", "BertForPreTraining", "BertModel")
    has_head = "cls.predictions.bias" in tensors
    default = "BertForMaskedLM" if has_head else "BertModel"
    has_head = architecture(checkpoint, supported, default) != "BertModel"
    return Config(
        vocab=theirs.get("vocab_size", 30522),
        d_model=theirs.get("hidden_size", 768),
        n_layers=theirs.get("num_hidden_layers", 12),
        n_heads=theirs.get("num_attention_heads", 12),
        d_ff=theirs.get("intermediate_size", 3072),
        max_length=theirs.get("max_position_embeddings", 512),
        positions="learned",
        norm_eps=theirs.get("layer_norm_eps", 1e-12),
        placement="post",
        activation=activation(theirs, "hidden_act", "gelu"),
        dropout=dropout(theirs, "hidden_dropout_prob", "attention_probs_dropout_prob", default=0.1),
        token_types=theirs.get("type_vocab_size", 2),
        embedding_norm=True,
        head="mlm" if has_head else "none",
        head_bias=has_head,
        pooler="pooler.dense.weight" in tensors,
        tie_embeddings=has_head and theirs.get("tie_word_embeddings", True),
        initialisation="gpt2",
    )


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    rows = [
        entry("embeddings.word_embeddings.weight", "token_embedding.weight"),
        entry("embeddings.position_embeddings.weight", "positions.table"),
        entry("embeddings.token_type_embeddings.weight", "token_type_embedding.weight"),
        *layer("embeddings.LayerNorm", "embedding_norm"),
    ]
    for i in range(config.n_layers):
        theirs, ours = f"encoder.layer.{i}", f"blocks.{i}"
        for name in ("query", "key", "value"):
            rows += layer(f"{theirs}.attention.self.{name}", f"{ours}.attention.{name}")
        rows += layer(f"{theirs}.attention.output.dense", f"{ours}.attention.output")
        rows += layer(f"{theirs}.attention.output.LayerNorm", f"{ours}.attention_norm")
        rows += layer(f"{theirs}.intermediate.dense", f"{ours}.feedforward.up")
        rows += layer(f"{theirs}.output.dense", f"{ours}.feedforward.down")
        rows += layer(f"{theirs}.output.LayerNorm", f"{ours}.feedforward_norm")
    if config.pooler:
        rows += layer("pooler.dense", "pooler.dense")
    if config.head == "mlm":
        rows += layer("cls.predictions.transform.dense", "head_layer.dense")
        rows += layer("cls.predictions.transform.LayerNorm", "head_layer.norm")
        rows.append(entry("cls.predictions.bias", "unembedding.bias"))
        if not config.tie_embeddings:
            rows.append(entry("cls.predictions.decoder.weight", "unembedding.weight"))
    return rows


def tied_names(config: Config) -> dict[str, str]:
    """The bias, which is stored twice, and the unembedding, if it is tied to the embedding."""
    names = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
    if config.tie_embeddings:
        names["cls.predictions.decoder.weight"] = "embeddings.word_embeddings.weight"
    return names if config.head == "mlm" else {}


def tidy(theirs: Mapping[str, Any], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the gamma and beta of old norms, and keep the bias that is read.

    A head that is not tied reads the bias of its map, and leaves the one beside it unread.
    """
    tensors = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): tensor
        for name, tensor in tensors.items()
    }
    if not theirs.get("tie_word_embeddings", True) and "cls.predictions.decoder.bias" in tensors:
        tensors["cls.predictions.bias"] = tensors.pop("cls.predictions.decoder.bias")
    return tensors


def settings(c: Config) -> dict[str, Any]:
    """BERT's settings for such a config."""
    if not c.token_types:
        raise MisfitError("token_types must be 1 or more, is 0")
    with_head = "BertForPreTraining" if c.pooler else "BertForMaskedLM"
    return {
        "architectures": ["BertModel" if c.head == "none" else with_head],
        "vocab_size": c.vocab,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "intermediate_size": c.neurons,
        "max_position_embeddings": c.max_length,
        "type_vocab_size": c.token_types,
        "layer_norm_eps": c.norm_eps,
        "hidden_act": named(c.activation, NAMES, "activation"),
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.dropout,
        "tie_word_embeddings": c.tie_embeddings or c.head == "none",
    }


BERT = Family(
    name="bert",
    prefix="bert.",
    derived_tensors=("embeddings.position_ids", "embeddings.token_type_ids"),
    config_of=config_of,
    entries=entries,
    tied_names=tied_names,
    kind=Encoder,
    settings=settings,
    tidy=tidy,
)
