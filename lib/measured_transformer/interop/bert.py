"""BERT with all its heads (Devlin et al. 2019), and what its relatives share with it.

A `Dialect` says what a relative calls its tensors and settings; `bert_family` makes a `Family` of it. The heads
of `transformers` are these of `Config`:

- `...ForMaskedLM`: ``head="mlm"``; `...ForPreTraining` has a pooler and ``labels=2`` beside it.
- `...ForTokenClassification`, `...ForQuestionAnswering` (start and end: two labels): ``head="tokens"``.
- `...ForSequenceClassification`, `...ForNextSentencePrediction` (two labels), `...ForMultipleChoice` (one
  label: a row of tokens for each choice): ``head="sequence"``.

They are written as the first of each line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
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
    whole,
)
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.factorised import FactorisedConfig
from measured_transformer.parts.feedforward import Activation
from measured_transformer.parts.heads import PoolerActivation

_DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
_BLOCK = {
    "attention.self.query": "attention.query",
    "attention.self.key": "attention.key",
    "attention.self.value": "attention.value",
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feedforward.up",
    "output.dense": "feedforward.down",
    "output.LayerNorm": "feedforward_norm",
}
_GROUPS = ("num_hidden_groups", "inner_group_num")
_TYPES, _PLACES = "embeddings.token_type_embeddings.weight", "embeddings.position_embeddings.weight"


@dataclass(frozen=True)
class Dialect:
    """What a relative of BERT calls its parts.

    Attributes:
        name: its `model_type`.
        classes: what the names of its classes begin with.
        prefix, heads: as in `Family`.
        blocks: what comes before the number of a block.
        block: the maps and norms of a block by their names.
        mlm: names of the head's layer, its norm, its map to logits and of the bias beside that map; no bias
            beside where the last is None.
        pooled: names of pooler and classifier of `...ForSequenceClassification`.
        pooler: name of the pooler in a model without head.
        other_poolers: names that other heads give the pooler.
        pooler_activation: of that pooler.
        mlm_activation: of the head's layer; None: as in the blocks.
        answers: names of the classifier in other heads.
        defaults: settings that a checkpoint may leave out.
        keys: its names of settings, where they are not BERT's; None for a setting it does not have.
        offset: the setting `pad_token_id` of a model whose first position has the row after it; None: row 0.
        positions: its scheme.
        needed: settings that must have one value.
        embedding_size: what the setting of that name is where it is left out; None where there is none.
        widening: name of the map from that width to the stream's.
        widens: whether that map is there even where both have one width.
        groups: name of the blocks of a group, where groups of blocks share their weights (ALBERT).
        pairs: the head that classifies pairs of sequences beside naming tokens, and the name of its classifier.
        choices: whether `...ForMultipleChoice` has the pooler of other heads.
    """

    name: str
    classes: str
    prefix: str
    heads: tuple[str, ...]
    blocks: str = "encoder.layer"
    block: Mapping[str, str] = field(default_factory=lambda: _BLOCK)
    mlm: tuple[str, str, str, str | None] = (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
    )
    pooled: tuple[str, str] = ("pooler.dense", "classifier")
    pooler: str = "pooler.dense"
    other_poolers: tuple[str, ...] = ("pooler.dense",)
    pooler_activation: PoolerActivation = "tanh"
    mlm_activation: Activation | None = None
    answers: tuple[str, ...] = ("qa_outputs",)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str | None] = field(default_factory=dict)
    offset: int | None = None
    positions: str = "learned"
    needed: Mapping[str, Any] = field(default_factory=dict)
    embedding_size: int | None = None
    widening: str = ""
    widens: bool = False
    groups: str = ""
    pairs: tuple[str, str] | None = None
    choices: bool = True

    def setting(self, theirs: Mapping[str, Any], name: str) -> Any:
        """A setting by BERT's name for it."""
        default = {**_DEFAULTS, **self.defaults}[name]
        own = self.keys.get(name, name)
        return default if own is None else theirs.get(own, theirs.get(name, default))

    @property
    def bias(self) -> str:
        """The tensor that holds the bias of the logits over the vocabulary."""
        return self.mlm[3] or f"{self.mlm[2]}.bias"

    def entries(self, config: Config) -> list[Entry]:
        """Names of the tensors."""
        factorised = isinstance(config, FactorisedConfig)
        norm = "embedding_norm.norm" if factorised else "embedding_norm"
        rows = [
            entry("embeddings.word_embeddings.weight", "token_embedding.weight"),
            *layer("embeddings.LayerNorm", norm),
        ]
        if factorised:
            rows += layer(self.widening, "embedding_norm.map")
        skipped = 0 if self.offset is None else self.offset + 1
        rows.append(entry(_PLACES, "positions.table", skipped=skipped))
        if config.token_types:
            rows.append(entry(_TYPES, "token_type_embedding.weight"))
        if "relative" in self.positions:
            rows.append(entry("encoder.relative_attention_bias.weight", "relative.table"))
        for i, place in enumerate(self.places(config)):
            for theirs, ours in self.block.items():
                rows += layer(f"{place}.{theirs}", f"blocks.{i}.{ours}") if place else []
        pooler, classifier = self.pooled
        if config.pooler:
            rows += layer(pooler if config.head == "sequence" else self.pooler, "pooler.dense")
        if config.head == "sequence":
            rows += layer(classifier, "classifier")
        if config.head == "tokens":
            rows += layer("classifier", "classifier")
        if config.head == "mlm":
            dense, norm, decoder, _ = self.mlm
            rows += layer(dense, "head_layer.dense")
            rows += layer(norm, "head_layer.norm")
            rows.append(entry(self.bias, "unembedding.bias"))
            if not config.tie_embeddings:
                rows.append(entry(f"{decoder}.weight", "unembedding.weight"))
            if config.labels and self.pairs is not None:
                rows += layer(self.pairs[1], "classifier")
        return rows

    def places(self, config: Config) -> list[str]:
        """What the names of each block's tensors begin with; empty where it has those of an earlier block."""
        if not isinstance(config, FactorisedConfig) or not config.shared_groups:
            return [f"{self.blocks}.{i}" for i in range(config.n_layers)]
        found = []
        for i, first in enumerate(config.weights_of):
            group, inner = config.place_of(i)
            found.append(f"{self.blocks}.{group}.{self.groups}.{inner}" if i == first else "")
        return found

    def tied_names(self, config: Config) -> dict[str, str]:
        """The bias, where it is stored twice, and the unembedding, if it is tied to the embedding."""
        names, decoder = {}, self.mlm[2]
        if self.mlm[3] is not None:
            names[f"{decoder}.bias"] = self.mlm[3]
        if config.tie_embeddings:
            names[f"{decoder}.weight"] = "embeddings.word_embeddings.weight"
        return names if config.head == "mlm" else {}

    def tidy(self, theirs: Mapping[str, Any], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names of `entries`.

        The gamma and beta of old norms are renamed, and the heads that answer with classes get the names of two
        of them. A head that is not tied reads the bias of its map, and leaves the one beside it unread.

        Raises:
            ValueError: when `pad_token_id` is no number of a token, where positions begin after it.
        """
        tensors = {
            name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
                "LayerNorm.beta", "LayerNorm.bias"
            ): tensor
            for name, tensor in tensors.items()
        }
        second = f"{self.mlm[2]}.bias"
        if not theirs.get("tie_word_embeddings", True) and self.mlm[3] and second in tensors:
            tensors[self.mlm[3]] = tensors.pop(second)
        pair = "" if self.pairs is None else self.pairs[1]
        if f"{pair}.weight" in tensors and self.bias not in tensors:
            tensors = _renamed(tensors, pair, "classifier")
        for name in self.answers:
            tensors = _renamed(tensors, name, "classifier")
        pooler, classifier = self.pooled
        if "classifier.weight" in tensors and pooler != self.pooler:
            for name in self.other_poolers:
                if f"{name}.weight" in tensors:  # the head of choices
                    tensors = _renamed(tensors, "classifier", classifier)
                    tensors = _renamed(tensors, name, pooler)
        if self.offset is not None and _PLACES in tensors:
            table, read = tensors[_PLACES], _offset(self, theirs) + 1
            unread = table.new_zeros(self.offset + 1, *table.shape[1:])
            tensors[_PLACES] = torch.cat((unread, table[read:]))
        return tensors


def config_of(dialect: Dialect, checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint; with a pooler where that has one.

    Raises:
        ValueError: when a setting asks for what is not computed here.
    """
    theirs = checkpoint.config
    require(
        theirs,
        position_embedding_type="absolute",
        is_decoder=False,
        add_cross_attention=False,
        **dialect.needed,
    )
    get = partial(dialect.setting, theirs)
    head, labels = _head(dialect, checkpoint, tensors)
    tied = head == "mlm" and theirs.get("tie_word_embeddings", True)
    offset = 0 if dialect.offset is None else _offset(dialect, theirs) + 1
    act_key = dialect.keys.get("hidden_act") or "hidden_act"
    plain = activation({act_key: get("hidden_act")}, act_key, "gelu")
    rates = {
        dialect.keys.get(name) or name: get(name)
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")
    }
    pooler = head == "sequence" or (head != "tokens" and f"{dialect.pooler}.weight" in tensors)
    places = {"max_position_embeddings": get("max_position_embeddings")}
    plain_config = Config(
        vocab=get("vocab_size"),
        d_model=get("hidden_size"),
        n_layers=get("num_hidden_layers"),
        n_heads=get("num_attention_heads"),
        d_ff=get("intermediate_size"),
        max_length=whole(places, "max_position_embeddings") - offset,
        positions=dialect.positions,
        norm_eps=get("layer_norm_eps"),
        placement="post",
        activation=plain,
        dropout=dropout(rates, *rates, default=0.1),
        token_types=get("type_vocab_size"),
        embedding_norm=True,
        head=head,
        head_bias=head == "mlm",
        head_activation=dialect.mlm_activation if head == "mlm" else None,
        labels=labels,
        pooler=pooler,
        pooler_activation=dialect.pooler_activation if head == "sequence" else "tanh",
        tie_embeddings=tied,
        initialisation="gpt2",
    )
    return _factorised(dialect, theirs, plain_config)


def _factorised(dialect: Dialect, theirs: Mapping[str, Any], found: Config) -> Config:
    """The config with a narrower embedding and shared blocks, where the settings say so."""
    if dialect.embedding_size is None:
        return found
    sizes = {"embedding_size": dialect.embedding_size, **theirs}
    narrow = whole(sizes, "embedding_size")
    if narrow == found.d_model and not dialect.widens:
        return found
    given: dict[str, Any] = {one.name: getattr(found, one.name) for one in fields(found)}
    if dialect.groups:
        n = {name: whole({name: 1, **theirs}, name) for name in _GROUPS}
        if n["num_hidden_groups"] > found.n_layers:
            raise ValueError(
                f"num_hidden_groups must be at most num_hidden_layers={found.n_layers}, or some are not read; "
                f"got {n['num_hidden_groups']}"
            )
        inner = n["inner_group_num"]
        given |= {"shared_groups": n["num_hidden_groups"], "group_layers": inner}
        given["n_layers"] *= inner
    return FactorisedConfig(**given, d_embedding=narrow)


def settings(dialect: Dialect, c: Config) -> dict[str, Any]:
    """The settings of such an architecture for a config."""
    kinds = {
        "none": "Model",
        "mlm": dialect.pairs[0] if c.pooler and dialect.pairs else "ForMaskedLM",
        "tokens": "ForTokenClassification",
        "sequence": "ForSequenceClassification",
    }
    if not c.token_types and dialect.keys.get("type_vocab_size", "type_vocab_size"):
        raise MisfitError("token_types must be 1 or more, is 0")
    offset = 0 if dialect.offset is None else dialect.offset + 1
    found = {
        "vocab_size": c.vocab,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "intermediate_size": c.neurons,
        "max_position_embeddings": c.max_length + offset,
        "type_vocab_size": c.token_types,
        "layer_norm_eps": c.norm_eps,
        "hidden_act": named(c.activation, NAMES, "activation"),
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.dropout,
    }
    own = {dialect.keys.get(name, name): value for name, value in found.items()}
    written = {
        "architectures": [dialect.classes + named(c.head, kinds, "head")],
        **{name: value for name, value in own.items() if name is not None},
        **dialect.needed,
        "tie_word_embeddings": c.tie_embeddings or c.head != "mlm",
    }
    if dialect.offset is not None:
        written["pad_token_id"] = dialect.offset
    factorised = isinstance(c, FactorisedConfig)
    if factorised and dialect.embedding_size is None:
        raise MisfitError("its embedding must be as wide as its stream, is factorised")
    if dialect.widens and not factorised:
        raise MisfitError("its config must be a FactorisedConfig, is a Config")
    if dialect.embedding_size is not None:
        written["embedding_size"] = c.d_embedding if isinstance(c, FactorisedConfig) else c.d_model
    if isinstance(c, FactorisedConfig) and dialect.groups:
        written |= dict(zip(_GROUPS, (c.shared_groups, c.group_layers), strict=True))
        written["num_hidden_layers"] = c.passes
    if c.labels and (c.head != "mlm" or dialect.groups):
        written["id2label"] = {str(i): f"LABEL_{i}" for i in range(c.labels)}
        written["label2id"] = {f"LABEL_{i}": i for i in range(c.labels)}
    return written


def bert_family(dialect: Dialect) -> Family:
    """The family of a dialect."""
    return Family(
        name=dialect.name,
        prefix=dialect.prefix,
        derived_tensors=("embeddings.position_ids", "embeddings.token_type_ids"),
        heads=dialect.heads,
        config_of=partial(config_of, dialect),
        entries=dialect.entries,
        tied_names=dialect.tied_names,
        kind=Encoder,
        settings=partial(settings, dialect),
        tidy=dialect.tidy,
    )


def _head(
    dialect: Dialect, checkpoint: Checkpoint, tensors: Mapping[str, Tensor]
) -> tuple[Any, int]:
    """The head of a checkpoint and the number of its classes."""
    theirs, names = checkpoint.config, dialect.classes
    told = theirs.get("id2label")
    labels = len(told) if isinstance(told, Mapping) else theirs.get("num_labels", 2)
    both, pair = dialect.pairs or ("", "")
    following = {f"{pair}.weight", f"{dialect.pooler}.weight"} <= tensors.keys()
    pairs = (labels if dialect.groups else 2) if following else 0
    heads = {
        f"{names}ForMaskedLM": ("mlm", pairs),
        f"{names}Model": ("none", 0),
        f"{names}ForSequenceClassification": ("sequence", labels),
        f"{names}ForTokenClassification": ("tokens", labels),
        f"{names}ForQuestionAnswering": ("tokens", labels),
    }
    if dialect.choices:
        heads[f"{names}ForMultipleChoice"] = ("sequence", 1)
    if both:
        heads[names + both] = heads[f"{names}ForMaskedLM"]
    if names == "Bert":
        heads["BertForNextSentencePrediction"] = ("sequence", 2)
    default = f"{names}ForMaskedLM" if dialect.bias in tensors else f"{names}Model"
    return heads[architecture(checkpoint, heads, default)]


def _offset(dialect: Dialect, theirs: Mapping[str, Any]) -> int:
    """The row before that of the first position."""
    if dialect.name == "mpnet":  # whatever its pad_token_id is
        return 1
    pad = theirs.get("pad_token_id", dialect.offset)
    if isinstance(pad, bool) or not isinstance(pad, int) or pad < 0:
        raise ValueError(
            f"pad_token_id must be a token's number, since positions begin after it; got {pad!r}"
        )
    return pad


def _renamed(tensors: dict[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    """The tensors, with those of one map under another name."""
    return {
        new + name.removeprefix(old) if name.startswith(f"{old}.") else name: tensor
        for name, tensor in tensors.items()
    }


BERT = bert_family(
    Dialect(
        name="bert",
        classes="Bert",
        prefix="bert.",
        heads=("cls.", "classifier.", "qa_outputs."),
        pairs=("ForPreTraining", "cls.seq_relationship"),
    )
)
