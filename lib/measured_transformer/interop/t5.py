"""T5 (Raffel et al. 2020) and mT5 (Xue et al. 2021): with head, without it, and the encoder alone.

Version 1.0: ReLU; the unembedding is the embedding and reads the final state divided by sqrt(d_model).
Version 1.1 and mT5: gated GELU; an unembedding of its own. In all, attention is not scaled, and a learned
bias for each distance, shared by the blocks of a stack, is the only news of positions. `T5EncoderModel` is read
as an `Encoder` without head, the others as an `EncoderDecoder`.

The stream outgrows float16. There it is float32 here, and so is what the sublayers add to it
(`Config.wide_stream`); `transformers` keeps one weight of each block in float32, with the same effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import (
    NAMES,
    UNGATED,
    Family,
    MisfitError,
    activation,
    architecture,
    gated,
    require,
    whole,
)
from measured_transformer.interop.tensors import Entry, entry
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.feedforward import Activation, is_gated

# Here 'gelu' with a gate stands for its approximation by a tanh.
_GATED_NAMES: dict[Activation, str] = {"geglu": "gelu_python", "geglu_tanh": "gelu"}
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 32128,
    "d_model": 512,
    "num_layers": 6,
    "num_decoder_layers": None,
    "num_heads": 8,
    "d_kv": 64,
    "d_ff": 2048,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
    "dropout_rate": 0.1,
}


@dataclass(frozen=True)
class Dialect:
    """What a relative of T5 has otherwise.

    Attributes:
        name: its `model_type`.
        classes: what the names of its classes begin with.
        scales: whether settings that call the unembedding tied divide what it reads by sqrt(d_model).
        defaults: settings that a checkpoint may leave out, where they are not T5's.
    """

    name: str
    classes: str
    scales: bool = True
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def supported(self) -> tuple[str, str, str]:
        """The classes that are read: with head, without it, the encoder alone."""
        return (
            f"{self.classes}ForConditionalGeneration",
            f"{self.classes}Model",
            f"{self.classes}EncoderModel",
        )


def config_of(dialect: Dialect, checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = {**_DEFAULTS, **dialect.defaults, **checkpoint.config}
    with_head, _, alone = dialect.supported
    name = architecture(checkpoint, dialect.supported, with_head)
    require(theirs, **({"is_decoder": False} if name == alone else {"is_causal": True}))
    d_model = whole(theirs, "d_model")
    # Newer settings say outright whether the state is scaled; older ones by calling the weights tied.
    scaled = theirs.get("scale_decoder_outputs", theirs.get("tie_word_embeddings", True))
    scaled = scaled and dialect.scales and name == with_head
    return Config(
        vocab=theirs["vocab_size"],
        d_model=d_model,
        n_layers=theirs["num_layers"],
        n_decoder_layers=None if name == alone else theirs["num_decoder_layers"],
        n_heads=theirs["num_heads"],
        d_head=theirs["d_kv"],
        d_ff=theirs["d_ff"],
        positions="relative",
        relative_buckets=theirs["relative_attention_num_buckets"],
        relative_max_distance=theirs["relative_attention_max_distance"],
        attention_scale=1.0,
        norm="rms",
        norm_eps=theirs["layer_norm_epsilon"],
        activation=feedforward(theirs),
        bias=False,
        dropout=theirs["dropout_rate"],
        embedding_scale=1.0,
        head="linear" if name == with_head else "none",
        logit_scale=d_model**-0.5 if scaled else 1.0,
        tie_embeddings=name == with_head and _tied(dialect, theirs, tensors),
        wide_stream=True,
        initialisation="gpt2",
    )


def feedforward(theirs: Mapping[str, Any]) -> Activation:
    """The activation that the settings name: `feed_forward_proj`, such as 'relu' or 'gated-gelu'.

    `dense_act_fn` and `is_gated_act` say the same once more; where they say something else, they hold.

    Raises:
        ValueError: when it is unknown here.
    """
    name = theirs.get("feed_forward_proj", "relu")
    if not isinstance(name, str):
        raise ValueError(f"feed_forward_proj must be a name, got {name!r}")
    plain = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")
    asked = f"the activation of feed_forward_proj={name!r}"
    bend = activation({asked: theirs.get("dense_act_fn") or plain}, asked, plain)
    has_gate = theirs.get("is_gated_act")
    if name.startswith("gated-") if has_gate is None else has_gate:
        return gated(bend, asked)
    return bend


def _tied(dialect: Dialect, theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    # The setting alone does not tell: newer versions write tie_word_embeddings=True for every T5, and tie every
    # mT5 that has no unembedding of its own, whatever it says.
    own, shared = tensors.get("lm_head.weight"), tensors.get("shared.weight")
    if own is None:
        return theirs.get("tie_word_embeddings", True) or not dialect.scales
    return shared is not None and own.shape == shared.shape and torch.equal(own, shared)


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    rows = [entry("shared.weight", "encoder.token_embedding.weight")]
    rows += _stack(config, "encoder", "encoder.", config.n_layers)
    rows += _stack(config, "decoder", "decoder.", config.decoder_layers)
    if config.head == "linear" and not config.tie_embeddings:
        rows.append(entry("lm_head.weight", "unembedding.weight"))
    return rows


def entries_alone(config: Config) -> list[Entry]:
    """Names of the tensors of the encoder alone."""
    rows = [entry("shared.weight", "token_embedding.weight")]
    return rows + _stack(config, "encoder", "", config.n_layers)


def _stack(config: Config, side: str, own: str, n_layers: int) -> list[Entry]:
    """Names of the tensors of one side; here they begin with `own`."""
    table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    rows = [
        entry(table, f"{own}relative.table"),
        entry(f"{side}.final_layer_norm.weight", f"{own}final_norm.weight"),
    ]
    sublayers = [("SelfAttention", "attention")]
    if side == "decoder":
        sublayers.append(("EncDecAttention", "cross_attention"))
    network = {"wi": "up", "wo": "down"}
    if is_gated(config.activation):
        network = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
    for i in range(n_layers):
        theirs, ours = f"{side}.block.{i}.layer", f"{own}blocks.{i}"
        maps = {"q": "query", "k": "key", "v": "value", "o": "output"}
        for place, (their_name, our_name) in enumerate(sublayers):
            rows += [
                entry(
                    f"{theirs}.{place}.{their_name}.{their_map}.weight",
                    f"{ours}.{our_name}.{our_map}.weight",
                )
                for their_map, our_map in maps.items()
            ]
            rows.append(
                entry(f"{theirs}.{place}.layer_norm.weight", f"{ours}.{our_name}_norm.weight")
            )
        last = f"{theirs}.{len(sublayers)}"
        rows += [
            entry(
                f"{last}.DenseReluDense.{their_map}.weight", f"{ours}.feedforward.{our_map}.weight"
            )
            for their_map, our_map in network.items()
        ]
        rows.append(entry(f"{last}.layer_norm.weight", f"{ours}.feedforward_norm.weight"))
    return rows


def tied_names(config: Config) -> dict[str, str]:
    """The embedding, which each side stores again, and the unembedding, if it is tied to the embedding."""
    names = {f"{side}.embed_tokens.weight": "shared.weight" for side in ("encoder", "decoder")}
    if config.tie_embeddings:
        names["lm_head.weight"] = "shared.weight"
    return names


def _reads_scaled(c: Config) -> bool:
    """Return whether the unembedding reads the final state divided by the root of its width."""
    return c.logit_scale == c.d_model**-0.5 and c.d_model != 1


def settings(dialect: Dialect, c: Config) -> dict[str, Any]:
    """The settings of such a model for a config."""
    with_head, without, _ = dialect.supported
    scaled = dialect.scales and _reads_scaled(c)
    if scaled and not c.tie_embeddings and c.head != "none":
        raise MisfitError("an unembedding of its own must read a state that is not scaled")
    return {
        "architectures": [without if c.head == "none" else with_head],
        "is_encoder_decoder": True,
        "num_decoder_layers": c.decoder_layers,
        **_sizes(c),
        "tie_word_embeddings": scaled or c.head == "none",
        "decoder_start_token_id": 0,
    }


def settings_alone(dialect: Dialect, c: Config) -> dict[str, Any]:
    """The settings of the encoder alone for a config."""
    return {
        "architectures": [dialect.supported[2]],
        "is_encoder_decoder": False,
        **_sizes(c),
        "tie_word_embeddings": True,
    }


def _sizes(c: Config) -> dict[str, Any]:
    plain = UNGATED.get(c.activation, c.activation)
    name = _GATED_NAMES.get(c.activation) or NAMES[plain]
    return {
        "vocab_size": c.vocab,
        "d_model": c.d_model,
        "num_layers": c.n_layers,
        "num_heads": c.n_heads,
        "d_kv": c.head_width,
        "d_ff": c.neurons,
        "relative_attention_num_buckets": c.relative_buckets,
        "relative_attention_max_distance": c.relative_max_distance,
        "layer_norm_epsilon": c.norm_eps,
        "feed_forward_proj": f"gated-{name}" if is_gated(c.activation) else name,
        "dropout_rate": c.dropout,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }


def t5_family(dialect: Dialect) -> Family:
    """The family of a dialect."""
    free = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    alone = Family(
        name=dialect.name,
        prefix="",
        classes=(dialect.supported[2],),
        derived_tensors=("decoder.*",),  # of files that hold the whole
        config_of=partial(config_of, dialect),
        entries=entries_alone,
        tied_names=lambda _: {"encoder.embed_tokens.weight": "shared.weight"},
        kind=Encoder,
        settings=partial(settings_alone, dialect),
        free=free,
    )
    return Family(
        name=dialect.name,
        prefix="",
        derived_tensors=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
        config_of=partial(config_of, dialect),
        entries=entries,
        tied_names=tied_names,
        kind=EncoderDecoder,
        settings=partial(settings, dialect),
        free=free,
        forms=(alone,),
    )


T5 = t5_family(Dialect("t5", "T5"))
MT5 = t5_family(
    Dialect(
        "mt5",
        "MT5",
        scales=False,
        defaults={
            "vocab_size": 250112,
            "num_layers": 8,
            "num_heads": 6,
            "d_ff": 1024,
            "feed_forward_proj": "gated-gelu",
        },
    )
)
