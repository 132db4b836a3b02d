"""Gemma 1, 2 and 3 (text): `GemmaForCausalLM`, `Gemma2ForCausalLM`, `Gemma3ForCausalLM`, and without head.

All scale the embedding and store the weights of norms less one. The second has norms on both sides of a
sublayer, windows in every other layer, and caps; the third norms of queries and keys in place of the caps, and
two rotary bases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import (
    NAMES,
    UNGATED,
    MisfitError,
    named,
    positive,
    require,
    whole,
)
from measured_transformer.interop.layer_types import (
    FULL,
    SLIDING,
    by_layer,
    layer_types,
    windows,
    write_types,
)
from measured_transformer.interop.llama import (
    base_config,
    base_entries,
    base_settings,
    relative,
    whole_heads,
    with_defaults,
)
from measured_transformer.interop.qwen import HEAD_NORMS
from measured_transformer.interop.rope import (
    longest,
    read_parameters,
    rope_of,
    write_parameters,
)
from measured_transformer.interop.tensors import Entry
from measured_transformer.models.config import Config

CLASSES1 = ("GemmaForCausalLM", "GemmaModel")
CLASSES2 = ("Gemma2ForCausalLM", "Gemma2Model")
CLASSES3 = ("Gemma3ForCausalLM", "Gemma3TextModel")
FOUR_NORMS = {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "attention_written_norm",
    "pre_feedforward_layernorm": "feedforward_norm",
    "post_feedforward_layernorm": "feedforward_written_norm",
}


def config_of_gemma(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(
        checkpoint.config,
        vocab_size=256000,
        hidden_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=256,
        intermediate_size=24576,
        max_position_embeddings=8192,
        hidden_act="gelu_pytorch_tanh",
        tie_word_embeddings=True,
    )
    if theirs["hidden_act"] == "gelu":  # written into the first files, and never meant
        theirs["hidden_act"] = "gelu_pytorch_tanh"
    return base_config(checkpoint, theirs, CLASSES1, **_common(theirs))


def config_of_gemma2(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = _with_defaults(
        checkpoint,
        vocab_size=256000,
        max_position_embeddings=8192,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
    )
    n = whole(theirs, "num_hidden_layers")
    kinds = layer_types(theirs, [FULL if i % 2 else SLIDING for i in range(n)])
    return base_config(
        checkpoint,
        theirs,
        CLASSES2,
        act="hidden_activation",
        score_cap=_cap(theirs, "attn_logit_softcapping"),
        **_sandwich(theirs),
        **by_layer(window=windows(kinds, theirs["sliding_window"])),
    )


def config_of_gemma3(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint.

    Raises:
        ValueError: when a setting asks for what is not computed here.
    """
    # There is a setting attn_logit_softcapping here too, which nothing in transformers reads.
    theirs = _with_defaults(
        checkpoint,
        vocab_size=262208,
        max_position_embeddings=131072,
        final_logit_softcapping=None,
        sliding_window_pattern=6,
    )
    n, every = (whole(theirs, name) for name in ("num_hidden_layers", "sliding_window_pattern"))
    kinds = layer_types(theirs, [SLIDING if (i + 1) % every else FULL for i in range(n)])
    ropes = [_rope3(theirs, kind) for kind in kinds]
    return base_config(
        checkpoint,
        theirs,
        CLASSES3,
        rope={},
        act="hidden_activation",
        qk_norm="head",
        **_sandwich(theirs),
        **by_layer(
            window=windows(kinds, theirs["sliding_window"]),
            rotary_base=[one["rotary_base"] for one in ropes],
            rotary_scaling=[one["rotary_scaling"] for one in ropes],
        ),
    )


def _rope3(theirs: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The rotary fields of one kind of layer; the older settings are those of layers that see everything."""
    given = dict(rope_of(theirs, kind))
    base = "rope_local_base_freq" if kind == SLIDING else "rope_theta"
    name = f"rope_parameters[{kind!r}]"
    if kind == FULL and (scaling := theirs.get("rope_scaling")):
        if not isinstance(scaling, Mapping):
            raise ValueError(f"rope_scaling must be a dictionary, got {scaling!r}")
        given, name = {**given, **scaling}, "rope_scaling"
    if given.get("rope_theta") is None and theirs.get(base) is not None:
        given["rope_theta"] = theirs[base]
    default = 10000.0 if kind == SLIDING else 1000000.0
    return read_parameters(theirs, given, name, base=default, nested=True)


def _with_defaults(checkpoint: Checkpoint, **more: Any) -> dict[str, Any]:
    return with_defaults(
        checkpoint.config,
        hidden_size=2304,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        intermediate_size=9216,
        hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=256,
        sliding_window=4096,
        tie_word_embeddings=True,
        **more,
    )


def _common(theirs: Mapping[str, Any]) -> dict[str, Any]:
    require(theirs, use_bidirectional_attention=False)
    return {
        "norm_offset": 1.0,
        "embedding_scale": whole(theirs, "hidden_size") ** 0.5,
        "attention_bias": theirs["attention_bias"],
    }


def _sandwich(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """What the second and the third share."""
    return {
        **_common(theirs),
        "placement": "sandwich",
        "attention_scale": positive(theirs, "query_pre_attn_scalar") ** -0.5,
        "logit_cap": _cap(theirs, "final_logit_softcapping"),
    }


def _cap(theirs: Mapping[str, Any], name: str) -> float | None:
    return None if theirs[name] is None else positive(theirs, name)


def sandwich_entries(config: Config) -> list[Entry]:
    """Names of the tensors of Gemma 2 and 3."""
    return base_entries(config, FOUR_NORMS, {} if config.qk_norm == "none" else HEAD_NORMS)


def gemma_settings(c: Config) -> dict[str, Any]:
    """Gemma's settings for such a config."""
    settings = {**base_settings(c, CLASSES1), "attention_bias": c.attention_has_bias}
    if settings["hidden_act"] == "gelu":  # which would be read as the approximation
        settings["hidden_act"] = "gelu_python"
    return settings


def gemma2_settings(c: Config) -> dict[str, Any]:
    """Gemma 2's settings for such a config."""
    return {
        **base_settings(c, CLASSES2),
        **_sandwich_settings(c),
        "attn_logit_softcapping": c.score_cap,
    }


def gemma3_settings(c: Config) -> dict[str, Any]:
    """Gemma 3's settings for such a config."""
    kinds, _ = write_types(c)
    settings = {**base_settings(c, CLASSES3), **_sandwich_settings(c)}
    for name in ("rope_theta", "rope_scaling", "original_max_position_embeddings"):
        settings.pop(name, None)
    ropes = {
        kind: write_parameters(c.of_layer(kinds.index(kind)))
        for kind in (FULL, SLIDING)
        if kind in kinds
    }
    return {**settings, "rope_parameters": ropes, "max_position_embeddings": longest(c)}


def _sandwich_settings(c: Config) -> dict[str, Any]:
    whole_heads(c)
    kinds, window = write_types(c)
    scale = c.head_width**-0.5 if c.attention_scale is None else c.attention_scale
    if not scale:
        raise MisfitError("attention_scale must be another number than 0")
    return {
        "hidden_activation": named(UNGATED.get(c.activation, c.activation), NAMES, "activation"),
        "attention_bias": c.attention_has_bias,
        "query_pre_attn_scalar": round(scale**-2),
        "final_logit_softcapping": c.logit_cap,
        "layer_types": kinds,
        "sliding_window": 4096 if window is None else window,  # asked for even where nothing slides
    }


GEMMA = relative("gemma", config_of_gemma, gemma_settings)
GEMMA2 = relative("gemma2", config_of_gemma2, gemma2_settings, sandwich_entries)
GEMMA3 = relative("gemma3_text", config_of_gemma3, gemma3_settings, sandwich_entries)
