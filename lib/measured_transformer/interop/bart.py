"""BART (Lewis et al. 2020) and Marian (Junczys-Dowmunt et al. 2018): encoder-decoders with post-norm.

BART has learned positions, whose first two rows nobody reads, and a norm of the embedding; Marian has fixed
sinusoids, all sines before all cosines, and no such norm. A table of positions in a file of Marian that holds
other numbers is read as learned positions. Both add a bias to the logits.

Where the settings tie nothing, each side may have an embedding of its own; Marian's
`share_encoder_decoder_embeddings=False` says so as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.positions import sinusoidal_encoding

_SIDES = ("encoder", "decoder")
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 50265,
    "max_position_embeddings": 1024,
    "encoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_layers": 12,
    "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "activation_function": "gelu",
    "d_model": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
_ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}


@dataclass(frozen=True)
class Dialect:
    """What one of the two has otherwise.

    Attributes:
        name: its `model_type`.
        with_head, without: the classes of its models.
        fixed: whether positions are sinusoids; learned otherwise, after a norm of the embedding.
        needed: settings of older files that must have one value.
        defaults: settings that a checkpoint may leave out, where they are not BART's.
    """

    name: str
    with_head: str
    without: str
    fixed: bool
    needed: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def config_of(self, checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
        """The sizes and choices of the checkpoint."""
        theirs = {**_DEFAULTS, **self.defaults, **checkpoint.config}
        require(theirs, is_decoder=False, add_cross_attention=False, is_causal=True, **self.needed)
        if self.fixed:
            require(theirs, decoder_vocab_size=theirs["vocab_size"])
        name = architecture(checkpoint, (self.with_head, self.without), self.with_head)
        has_head = name == self.with_head
        rates = ("dropout", "attention_dropout", "activation_dropout")
        d_model = whole(theirs, "d_model")
        fixed = self.fixed and _table("encoder") not in tensors
        return Config(
            vocab=theirs["vocab_size"],
            d_model=d_model,
            n_layers=theirs["encoder_layers"],
            n_decoder_layers=theirs["decoder_layers"],
            n_heads=theirs["encoder_attention_heads"],
            n_decoder_heads=_unless_equal(theirs, "{}_attention_heads"),
            d_ff=theirs["encoder_ffn_dim"],
            d_decoder_ff=_unless_equal(theirs, "{}_ffn_dim"),
            max_length=theirs["max_position_embeddings"],
            positions="sinusoidal_halves" if fixed else "learned",
            placement="post",
            activation=activation(theirs, "activation_function", "gelu"),
            dropout=dropout(theirs, *rates, default=0.0),
            embedding_norm=not self.fixed,
            embedding_scale=d_model**0.5 if theirs["scale_embedding"] else 1.0,
            head="linear" if has_head else "none",
            head_bias=has_head and "final_logits_bias" in tensors,
            tie_embeddings=has_head and theirs["tie_word_embeddings"],
            shared_embedding=_shared(tensors),
            initialisation="gpt2",
        )

    def entries(self, c: Config) -> list[Entry]:
        """Names of the tensors."""
        if c.shared_embedding:
            rows = [entry("shared.weight", "encoder.token_embedding.weight")]
        else:
            rows = [entry(_tokens(side), f"{side}.token_embedding.weight") for side in _SIDES]
        for side, n_layers in zip(_SIDES, (c.n_layers, c.decoder_layers), strict=True):
            if c.positions == "learned":
                skipped = 0 if self.fixed else 2
                rows.append(entry(_table(side), f"{side}.positions.table", skipped=skipped))
            if c.embedding_norm:
                rows += layer(f"{side}.layernorm_embedding", f"{side}.embedding_norm")
            sublayers = {"self_attn": "attention"}
            if side == "decoder":
                sublayers["encoder_attn"] = "cross_attention"
            for i in range(n_layers):
                theirs, ours = f"{side}.layers.{i}", f"{side}.blocks.{i}"
                for their_name, our_name in sublayers.items():
                    for their_map, our_map in _ATTENTION.items():
                        rows += layer(
                            f"{theirs}.{their_name}.{their_map}", f"{ours}.{our_name}.{our_map}"
                        )
                    rows += layer(f"{theirs}.{their_name}_layer_norm", f"{ours}.{our_name}_norm")
                rows += layer(f"{theirs}.fc1", f"{ours}.feedforward.up")
                rows += layer(f"{theirs}.fc2", f"{ours}.feedforward.down")
                rows += layer(f"{theirs}.final_layer_norm", f"{ours}.feedforward_norm")
        if c.head == "linear" and not c.tie_embeddings:
            rows.append(entry("lm_head.weight", "unembedding.weight"))
        if c.head_bias:
            rows.append(entry("final_logits_bias", "unembedding.bias", one_row=True))
        return rows

    def tied_names(self, c: Config) -> dict[str, str]:
        """The embedding, which is stored again for each side, and the unembedding, where it is tied."""
        if c.shared_embedding:
            names = {_tokens(side): "shared.weight" for side in _SIDES}
        else:
            # BART holds a third table then, which nobody reads.
            names = {} if self.fixed else {"shared.weight": _tokens("encoder")}
        if c.tie_embeddings:
            names["lm_head.weight"] = "shared.weight" if c.shared_embedding else _tokens("decoder")
        return names

    def tidy(self, theirs: Mapping[str, Any], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors without those that are not read.

        That is a table beside those of the two sides, and tables of positions that hold sinusoids.
        """
        kept = dict(tensors)
        if all(_tokens(side) in kept for side in _SIDES):
            kept.pop("shared.weight", None)
        tables = [kept[_table(side)] for side in _SIDES if _table(side) in kept]
        if self.fixed and all(_are_sinusoids(table) for table in tables):
            for side in _SIDES:
                kept.pop(_table(side), None)
        return kept

    def settings(self, c: Config) -> dict[str, Any]:
        """The settings of such a model for a config."""
        if c.tie_embeddings and not c.shared_embedding and not self.fixed:
            raise MisfitError("with an embedding for each side, the unembedding must not be tied")
        scaled = c.embedding_factor == c.d_model**0.5
        last = c.vocab - 1
        tokens = {"pad_token_id": min(1, last), "bos_token_id": 0, "eos_token_id": min(2, last)}
        if self.fixed:
            tokens = {"pad_token_id": last, "eos_token_id": 0, "decoder_start_token_id": last}
        found = {
            "architectures": [self.without if c.head == "none" else self.with_head],
            "is_encoder_decoder": True,
            "vocab_size": c.vocab,
            "d_model": c.d_model,
            "max_position_embeddings": c.max_length,
            "encoder_layers": c.n_layers,
            "decoder_layers": c.decoder_layers,
            "encoder_attention_heads": c.n_heads,
            "decoder_attention_heads": c.decoder_heads,
            "encoder_ffn_dim": c.neurons,
            "decoder_ffn_dim": c.decoder_neurons,
            "activation_function": named(c.activation, NAMES, "activation"),
            "scale_embedding": scaled,
            "dropout": c.dropout,
            "attention_dropout": c.dropout,
            "tie_word_embeddings": c.tie_embeddings or (c.head == "none" and c.shared_embedding),
            "forced_eos_token_id": tokens["eos_token_id"],
            **tokens,
        }
        if self.fixed:
            found["decoder_vocab_size"] = c.vocab
            found["share_encoder_decoder_embeddings"] = c.shared_embedding
        return found

    def family(self) -> Family:
        """The family of this dialect."""
        return Family(
            name=self.name,
            prefix="model.",
            derived_tensors=("encoder.version", "decoder.version"),
            heads=("lm_head.", "final_logits_bias"),
            repeated=("encoder.embed_tokens.", "decoder.embed_tokens.", "shared."),
            free=(
                *("pad_token_id", "bos_token_id", "eos_token_id"),
                *("decoder_start_token_id", "forced_eos_token_id"),
            ),
            config_of=self.config_of,
            entries=self.entries,
            tied_names=self.tied_names,
            kind=EncoderDecoder,
            settings=self.settings,
            tidy=self.tidy,
        )


def _tokens(side: str) -> str:
    return f"{side}.embed_tokens.weight"


def _table(side: str) -> str:
    return f"{side}.embed_positions.weight"


def _unless_equal(theirs: Mapping[str, Any], name: str) -> Any:
    """A setting of the decoder; None where it is the encoder's."""
    one, other = (theirs[name.format(side)] for side in _SIDES)
    return None if one == other else other


def _shared(tensors: Mapping[str, Tensor]) -> bool:
    """Whether both sides have one embedding."""
    one, other = (tensors.get(_tokens(side)) for side in _SIDES)
    if one is None or other is None:
        return True
    return one.shape == other.shape and torch.equal(one, other)


def _are_sinusoids(table: Tensor) -> bool:
    """Whether a table holds the sinusoids of its positions, up to the rounding of its numbers."""
    if table.is_meta or table.ndim != 2 or not table.is_floating_point():
        return False
    rows, width = table.shape
    expected = sinusoidal_encoding(rows, width, pairing="halves", dtype=torch.float64)
    close = max(1e-6, torch.finfo(table.dtype).eps)
    return torch.allclose(table.double().cpu(), expected, rtol=0, atol=close)


BART = Dialect(
    name="bart",
    with_head="BartForConditionalGeneration",
    without="BartModel",
    fixed=False,
    needed={
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    },
).family()
MARIAN = Dialect(
    name="marian",
    with_head="MarianMTModel",
    without="MarianModel",
    fixed=True,
    needed={
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    },
    defaults={"vocab_size": 58101},
).family()
