"""SmolLM3: `SmolLM3ForCausalLM`, and `SmolLM3Model` without the head.

Every fourth layer, or those that the settings name, turns neither queries nor keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import whole
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
    base_settings,
    relative,
    with_defaults,
)
from measured_transformer.interop.rope import read_rope
from measured_transformer.models.config import Config

CLASSES = ("SmolLM3ForCausalLM", "SmolLM3Model")


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint.

    Raises:
        ValueError: when a setting asks for what is not computed here.
    """
    theirs = with_defaults(
        checkpoint.config,
        vocab_size=128256,
        hidden_size=2048,
        num_hidden_layers=36,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        use_sliding_window=False,
        sliding_window=None,
        no_rope_layer_interval=4,
        tie_word_embeddings=True,
    )
    n = whole(theirs, "num_hidden_layers")
    turning = theirs.get("no_rope_layers")  # 1 for layers that turn, in spite of the name
    if turning is None:
        every = whole(theirs, "no_rope_layer_interval")
        turning = [int((i + 1) % every != 0) for i in range(n)]
    if not isinstance(turning, list | tuple) or len(turning) != n:
        raise ValueError(
            f"no_rope_layers must hold one number for each of the {n} layers, got {turning!r}"
        )
    window = theirs["sliding_window"]
    slide = theirs["use_sliding_window"] and window is not None
    kinds = [SLIDING if slide and not one else FULL for one in turning]
    return base_config(
        checkpoint,
        theirs,
        CLASSES,
        rope=read_rope(theirs, base=2000000.0),
        attention_bias=theirs["attention_bias"],
        ffn_bias=theirs["mlp_bias"],
        **by_layer(
            positions=["rotary" if one else "none" for one in turning],
            window=windows(layer_types(theirs, kinds), window),
        ),
    )


def settings(c: Config) -> dict[str, Any]:
    """SmolLM3's settings for such a config."""
    kinds, window = write_types(c)
    return {
        **base_settings(c, CLASSES),
        "attention_bias": c.attention_has_bias,
        "mlp_bias": c.ffn_has_bias,
        "no_rope_layers": [int(c.of_layer(i).positions == "rotary") for i in range(c.n_layers)],
        "layer_types": kinds,
        "use_sliding_window": window is not None,
        "sliding_window": window,
    }


SMOLLM3 = relative("smollm3", config_of, settings)
