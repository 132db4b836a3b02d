"""Llama: `LlamaForCausalLM`, and `LlamaModel` without the head (Touvron et al. 2023).

Many later architectures are Llama but for a few settings. Their files take the common ones from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
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
from measured_transformer.interop.rope import read_rope, write_rope
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder

PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
TWO_NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "feedforward_norm"}

DEFAULTS: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
}
"""What `transformers` takes for a setting that a file of Llama's leaves out."""


def with_defaults(theirs: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """The settings of a checkpoint, with Llama's defaults, or those given, for what it leaves out."""
    return {**DEFAULTS, **defaults, **theirs}


def base_config(
    checkpoint: Checkpoint,
    theirs: Mapping[str, Any],
    classes: tuple[str, str],
    *,
    rope: Mapping[str, Any] | None = None,
    act: str = "hidden_act",
    **choices: Any,
) -> Config:
    """The config of Llama or of a relative.

    Args:
        checkpoint: says which class it was saved from.
        theirs: its settings with all defaults.
        classes: the class with a head and that without.
        rope: the rotary fields, where they are not those that `read_rope` finds.
        act: the name of the setting that tells the activation.
        choices: what a relative has otherwise, as fields of `Config`.

    Raises:
        ValueError: when the class is another one, or a setting is not supported.
    """
    require(theirs, is_causal=True)
    has_head = architecture(checkpoint, classes, classes[0]) == classes[0]
    rope = read_rope(theirs) if rope is None else rope
    common: dict[str, Any] = {
        "vocab": whole(theirs, "vocab_size"),
        "d_model": whole(theirs, "hidden_size"),
        "n_layers": whole(theirs, "num_hidden_layers"),
        "n_heads": whole(theirs, "num_attention_heads"),
        "n_kv_heads": theirs.get("num_key_value_heads"),
        "d_head": theirs.get("head_dim"),
        "d_ff": whole(theirs, "intermediate_size"),
        "max_length": whole(theirs, "max_position_embeddings"),
        "positions": "rotary",
        "rotary_pairing": "halves",
        "norm": "rms",
        "norm_eps": theirs["rms_norm_eps"],
        "activation": gated(activation(theirs, act, "silu"), act),
        "bias": False,
        "dropout": dropout(theirs, "attention_dropout", default=0.0),
        "head": "linear" if has_head else "none",
        "tie_embeddings": has_head and bool(theirs.get("tie_word_embeddings", False)),
        "initialisation": "gpt2",
    }
    width = common["d_head"] or common["d_model"] // common["n_heads"]
    if (share := rope.get("rotary_share", 1)) != 1 and (
        int(width * share) % 2 or width * share < 1
    ):
        raise ValueError(
            f"partial_rotary_factor must turn an even number of the {width} entries of a head, got {share}"
        )
    return Config(**{**common, **rope, **choices})


def base_settings(c: Config, classes: tuple[str, str]) -> dict[str, Any]:
    """The settings that Llama and its relatives share."""
    return {
        "architectures": [classes[1] if c.head == "none" else classes[0]],
        "vocab_size": c.vocab,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_width,
        "intermediate_size": c.neurons,
        **write_rope(c),
        "rms_norm_eps": c.norm_eps,
        "hidden_act": named(UNGATED.get(c.activation, c.activation), NAMES, "activation"),
        "attention_dropout": c.dropout,
        "tie_word_embeddings": c.tie_embeddings,
        **dict.fromkeys(SPECIAL_TOKENS),  # the defaults may lie beyond the vocabulary
    }


def whole_heads(c: Config) -> None:
    """Raise MisfitError when `transformers` would refuse the config for its number of heads."""
    if c.d_model % c.n_heads:
        raise MisfitError(f"d_model must be a multiple of n_heads={c.n_heads}, is {c.d_model}")


def base_entries(
    config: Config,
    norms: Mapping[str, str] = MappingProxyType(TWO_NORMS),
    more: Mapping[str, str] = MappingProxyType({}),
) -> list[Entry]:
    """Names of the tensors of Llama or a relative.

    Args:
        config: tells which there are.
        norms: in each layer, and what they are here.
        more: further tensors of each layer, and what they are here.
    """
    rows = outer_entries(config)
    for i in range(config.n_layers):
        theirs, ours = f"layers.{i}", f"blocks.{i}"
        rows += norm_entries(config, i, norms)
        rows += attention_entries(config, i)
        for name in ("gate", "up", "down"):
            rows += layer(
                f"{theirs}.mlp.{name}_proj", f"{ours}.feedforward.{name}", bias=config.ffn_has_bias
            )
        rows += [entry(f"{theirs}.{name}", f"{ours}.{own}") for name, own in more.items()]
    return rows


def outer_entries(config: Config) -> list[Entry]:
    """The tensors before and after the layers."""
    rows = [entry("embed_tokens.weight", "token_embedding.weight")]
    if config.norm != "layer_plain":
        rows += layer("norm", "final_norm", bias=has_norm_bias(config))
    if config.head == "linear" and not config.tie_embeddings:
        rows.append(entry("lm_head.weight", "unembedding.weight"))
    return rows


def norm_entries(config: Config, i: int, norms: Mapping[str, str]) -> list[Entry]:
    """The norms of a layer."""
    rows: list[Entry] = []
    for theirs, ours in norms.items():
        bias = has_norm_bias(config)
        rows += layer(f"layers.{i}.{theirs}", f"blocks.{i}.{ours}", bias=bias)
    return rows


def attention_entries(config: Config, i: int) -> list[Entry]:
    """The projections of a layer's attention."""
    rows: list[Entry] = []
    for theirs, ours in PROJECTIONS.items():
        bias = config.attention_has_bias if ours == "output" else config.qkv_has_bias
        rows += layer(f"layers.{i}.self_attn.{theirs}", f"blocks.{i}.attention.{ours}", bias=bias)
    return rows


def has_norm_bias(config: Config) -> bool:
    """Return whether norms have biases."""
    return config.norm == "layer" and config.norm_has_bias


def tied_names(config: Config) -> dict[str, str]:
    """The unembedding, if it is tied to the embedding."""
    return {"lm_head.weight": "embed_tokens.weight"} if config.tie_embeddings else {}


def relative(
    name: str,
    config_of: Callable[[Checkpoint, Mapping[str, Tensor]], Config],
    settings: Callable[[Config], dict[str, Any]],
    entries: Callable[[Config], list[Entry]] = base_entries,
) -> Family:
    """A family whose tensors have Llama's prefix and tied head."""
    return Family(
        name=name,
        prefix="model.",
        derived_tensors=("*rotary_emb.inv_freq",),  # stored by old versions
        config_of=config_of,
        entries=entries,
        tied_names=tied_names,
        kind=Decoder,
        settings=settings,
    )


# Llama itself -------------------------------------------------------------------------------------

CLASSES = ("LlamaForCausalLM", "LlamaModel")


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(checkpoint.config)
    return base_config(
        checkpoint,
        theirs,
        CLASSES,
        attention_bias=theirs["attention_bias"],
        ffn_bias=theirs["mlp_bias"],
    )


def settings(c: Config) -> dict[str, Any]:
    """Llama's settings for such a config."""
    whole_heads(c)
    return {
        **base_settings(c, CLASSES),
        "attention_bias": c.attention_has_bias,
        "mlp_bias": c.ffn_has_bias,
    }


LLAMA = relative("llama", config_of, settings)
