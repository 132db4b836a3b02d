"""T5: `T5ForConditionalGeneration`, and `T5Model` without the head (Raffel et al. 2020).

Version 1.0: ReLU; the unembedding is the embedding and reads the final state divided by sqrt(d_model).
Version 1.1: gated GELU; an unembedding of its own. In both, attention is not scaled, and a learned bias for
each distance, shared by the blocks of a stack, is the only news of positions.
"""

from __future__ import annotations

from collections.abc import Mapping
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
)
from measured_transformer.interop.tensors import Entry, entry
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.feedforward import Activation, is_gated

# Here 'gelu' with a gate stands for its approximation by a tanh.
_GATED_NAMES: dict[Activation, str] = {"geglu": "gelu_python", "geglu_tanh": "gelu"}


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = checkpoint.config
    require(theirs, is_causal=True)
    supported = ("T5ForConditionalGeneration", "T5Model")
    name = architecture(checkpoint, supported, "T5ForConditionalGeneration")
    has_head = name != "T5Model"
    d_model = theirs.get("d_model", 512)
    # Newer settings say outright whether the state is scaled; older ones by calling the weights tied.
    scaled = theirs.get("scale_decoder_outputs", theirs.get("tie_word_embeddings", True))
    n_decoder_layers = theirs.get("num_decoder_layers")
    return Config(
        vocab=theirs.get("vocab_size", 32128),
        d_model=d_model,
        n_layers=theirs.get("num_layers", 6),
        n_decoder_layers=n_decoder_layers,
        n_heads=theirs.get("num_heads", 8),
        d_head=theirs.get("d_kv", 64),
        d_ff=theirs.get("d_ff", 2048),
        positions="relative",
        relative_buckets=theirs.get("relative_attention_num_buckets", 32),
        relative_max_distance=theirs.get("relative_attention_max_distance", 128),
        attention_scale=1.0,
        norm="rms",
        norm_eps=theirs.get("layer_norm_epsilon", 1e-6),
        activation=feedforward(theirs),
        bias=False,
        dropout=theirs.get("dropout_rate", 0.1),
        embedding_scale=1.0,
        head="linear" if has_head else "none",
        logit_scale=d_model**-0.5 if has_head and scaled else 1.0,
        tie_embeddings=has_head and _tied(theirs, tensors),
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
    bend = activation({name: theirs.get("dense_act_fn") or plain}, name, plain)
    has_gate = theirs.get("is_gated_act")
    if name.startswith("gated-") if has_gate is None else has_gate:
        return gated(bend, name)
    return bend


def _tied(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    # The setting alone does not tell: newer versions write tie_word_embeddings=True for every T5.
    own, shared = tensors.get("lm_head.weight"), tensors.get("shared.weight")
    if own is None:
        return theirs.get("tie_word_embeddings", True)
    return shared is not None and own.shape == shared.shape and torch.equal(own, shared)


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    rows = [entry("shared.weight", "encoder.token_embedding.weight")]
    for side, n_layers in (("encoder", config.n_layers), ("decoder", config.decoder_layers)):
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        rows += [
            entry(table, f"{side}.relative.table"),
            entry(f"{side}.final_layer_norm.weight", f"{side}.final_norm.weight"),
        ]
        for i in range(n_layers):
            theirs, ours = f"{side}.block.{i}.layer", f"{side}.blocks.{i}"
            sublayers = [("SelfAttention", "attention")]
            if side == "decoder":
                sublayers.append(("EncDecAttention", "cross_attention"))
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
            maps = {"wi": "up", "wo": "down"}
            if is_gated(config.activation):
                maps = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
            rows += [
                entry(
                    f"{last}.DenseReluDense.{their_map}.weight",
                    f"{ours}.feedforward.{our_map}.weight",
                )
                for their_map, our_map in maps.items()
            ]
            rows.append(entry(f"{last}.layer_norm.weight", f"{ours}.feedforward_norm.weight"))
    if config.head == "linear" and not config.tie_embeddings:
        rows.append(entry("lm_head.weight", "unembedding.weight"))
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


def settings(c: Config) -> dict[str, Any]:
    """T5's settings for such a config."""
    if _reads_scaled(c) and not c.tie_embeddings and c.head != "none":
        raise MisfitError("an unembedding of its own must read a state that is not scaled")
    plain = UNGATED.get(c.activation, c.activation)
    name = _GATED_NAMES.get(c.activation) or NAMES[plain]
    return {
        "architectures": ["T5Model" if c.head == "none" else "T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": c.vocab,
        "d_model": c.d_model,
        "num_layers": c.n_layers,
        "num_decoder_layers": c.decoder_layers,
        "num_heads": c.n_heads,
        "d_kv": c.head_width,
        "d_ff": c.neurons,
        "relative_attention_num_buckets": c.relative_buckets,
        "relative_attention_max_distance": c.relative_max_distance,
        "layer_norm_epsilon": c.norm_eps,
        "feed_forward_proj": f"gated-{name}" if is_gated(c.activation) else name,
        "dropout_rate": c.dropout,
        "tie_word_embeddings": _reads_scaled(c) or c.head == "none",
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }


T5 = Family(
    name="t5",
    prefix="",
    derived_tensors=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    config_of=config_of,
    entries=entries,
    tied_names=tied_names,
    kind=EncoderDecoder,
    settings=settings,
)
