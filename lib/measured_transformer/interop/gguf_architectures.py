"""What GGUF files call settings and tensors, for each architecture of llama.cpp that is read.

An architecture whose family stands in `interop.huggingface.FAMILIES` is one more entry of `ARCHITECTURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Given = Mapping[str, Any]
"""The settings of a file, without the architecture in front of their keys."""


@dataclass(frozen=True)
class Architecture:
    """How files of one `general.architecture` are read.

    Attributes:
        family: the `model_type` whose family builds the model.
        settings: the file's keys, without the architecture in front, and the settings of `config.json` that
            they give.
        tensors: names in the file and in the family's table, without `.weight` and `.bias`; `{}` is the number
            of a block.
        required: keys without which a file is refused.
        turned: names of the projections whose rows lie in the order of the interleaved pairing.
        norms_plus_one: whether the weights of norms are stored with the one that the family's norms add.
        biases: settings that say whether there are biases, and the tensor of the first block that tells.
        more: further settings, from those of the file.
        derived: the keys that `more` reads.
    """

    family: str
    settings: Mapping[str, str]
    tensors: Mapping[str, str]
    required: tuple[str, ...]
    turned: tuple[str, ...] = ()
    norms_plus_one: bool = False
    biases: Mapping[str, str] = field(default_factory=dict)
    more: Callable[[Given], dict[str, Any]] = lambda given: {}
    derived: tuple[str, ...] = ()


LLAMA = Architecture(
    family="llama",
    settings={
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "block_count": "num_hidden_layers",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "attention.key_length": "head_dim",
        "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        "rope.freq_base": "rope_theta",
    },
    tensors={
        "token_embd": "embed_tokens",
        "output_norm": "norm",
        "output": "lm_head",
        "blk.{}.attn_norm": "layers.{}.input_layernorm",
        "blk.{}.attn_q": "layers.{}.self_attn.q_proj",
        "blk.{}.attn_k": "layers.{}.self_attn.k_proj",
        "blk.{}.attn_v": "layers.{}.self_attn.v_proj",
        "blk.{}.attn_output": "layers.{}.self_attn.o_proj",
        "blk.{}.ffn_norm": "layers.{}.post_attention_layernorm",
        "blk.{}.ffn_gate": "layers.{}.mlp.gate_proj",
        "blk.{}.ffn_up": "layers.{}.mlp.up_proj",
        "blk.{}.ffn_down": "layers.{}.mlp.down_proj",
    },
    required=(
        *("embedding_length", "block_count", "feed_forward_length"),
        *("attention.head_count", "attention.layer_norm_rms_epsilon"),
    ),
    turned=("attn_q", "attn_k"),
    biases={"attention_bias": "attn_output", "mlp_bias": "ffn_down"},
)


def _width(given: Given) -> int:
    """Width of a head."""
    heads = max(given["attention.head_count"], 1)
    return int(given.get("attention.key_length", given["embedding_length"] // heads))


def _head_width(given: Given) -> dict[str, Any]:
    return {"head_dim": _width(given)}


# The relatives below turn halves, as their checkpoints do: their rows lie as they were published.
QWEN2 = replace(LLAMA, family="qwen2", turned=(), biases={}, more=_head_width)
_HEAD_NORMS = {
    "blk.{}.attn_q_norm": "layers.{}.self_attn.q_norm",
    "blk.{}.attn_k_norm": "layers.{}.self_attn.k_norm",
}
QWEN3 = replace(
    QWEN2,
    family="qwen3",
    tensors={**LLAMA.tensors, **_HEAD_NORMS},
    biases={"attention_bias": "attn_output"},
)


def _window(given: Given) -> dict[str, Any]:
    """Some converters write 0 where nothing slides."""
    return {"sliding_window": given.get("attention.sliding_window") or None}


PHI3 = replace(
    QWEN2,
    family="phi3",
    settings={
        **LLAMA.settings,
        "rope.scaling.original_context_length": "original_max_position_embeddings",
    },
    tensors={
        **{name: LLAMA.tensors[name] for name in ("token_embd", "output_norm", "output")},
        "blk.{}.attn_norm": "layers.{}.input_layernorm",
        "blk.{}.attn_qkv": "layers.{}.self_attn.qkv_proj",
        "blk.{}.attn_output": "layers.{}.self_attn.o_proj",
        "blk.{}.ffn_norm": "layers.{}.post_attention_layernorm",
        "blk.{}.ffn_up": "layers.{}.mlp.gate_up_proj",
        "blk.{}.ffn_down": "layers.{}.mlp.down_proj",
    },
    more=_window,
    derived=("attention.sliding_window",),
)


def _gemma(given: Given, largest: int) -> dict[str, Any]:
    """The file does not tell the scale of attention; the largest size, known by its depth, has its own."""
    share = given["embedding_length"] // max(given["attention.head_count"], 1)
    window = given.get("attention.sliding_window")
    return {
        "query_pre_attn_scalar": share if given["block_count"] == largest else _width(given),
        **({"sliding_window": window} if window else {}),
        **_head_width(given),
    }


def _gemma3(given: Given) -> dict[str, Any]:
    """Layers that see everything may have their positions interpolated."""
    scaling = {"rope_type": "linear", "factor": given.get("rope.scaling.factor", 1.0)}
    kind = given.get("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise ValueError(
            f"the file has gemma3.rope.scaling.type={kind!r}, which this library does not compute; "
            "supported are 'none' and 'linear'"
        )
    return {**_gemma(given, 62), **({"rope_scaling": scaling} if kind == "linear" else {})}


GEMMA2 = replace(
    QWEN2,
    family="gemma2",
    settings={
        **LLAMA.settings,
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    tensors={
        **LLAMA.tensors,
        "blk.{}.post_attention_norm": "layers.{}.post_attention_layernorm",
        "blk.{}.ffn_norm": "layers.{}.pre_feedforward_layernorm",
        "blk.{}.post_ffw_norm": "layers.{}.post_feedforward_layernorm",
    },
    norms_plus_one=True,
    more=lambda given: _gemma(given, 46),
    derived=("attention.sliding_window",),
)
GEMMA3 = replace(
    GEMMA2,
    family="gemma3_text",
    settings={
        **LLAMA.settings,
        "rope.freq_base_swa": "rope_local_base_freq",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    tensors={**GEMMA2.tensors, **_HEAD_NORMS},
    more=_gemma3,
    derived=("attention.sliding_window", "rope.scaling.type", "rope.scaling.factor"),
)
GEMMA = replace(QWEN2, family="gemma", norms_plus_one=True)

GPT2 = Architecture(
    family="gpt2",
    settings={
        "context_length": "n_positions",
        "embedding_length": "n_embd",
        "block_count": "n_layer",
        "feed_forward_length": "n_inner",
        "attention.head_count": "n_head",
        "attention.layer_norm_epsilon": "layer_norm_epsilon",
    },
    tensors={
        "token_embd": "wte",
        "position_embd": "wpe",
        "output_norm": "ln_f",
        "output": "lm_head",
        "blk.{}.attn_norm": "h.{}.ln_1",
        "blk.{}.attn_qkv": "h.{}.attn.c_attn",
        "blk.{}.attn_output": "h.{}.attn.c_proj",
        "blk.{}.ffn_norm": "h.{}.ln_2",
        "blk.{}.ffn_up": "h.{}.mlp.c_fc",
        "blk.{}.ffn_down": "h.{}.mlp.c_proj",
    },
    required=(
        *("context_length", "embedding_length", "block_count", "attention.head_count"),
        "attention.layer_norm_epsilon",
    ),
)
ARCHITECTURES: dict[str, Architecture] = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "phi3": PHI3,
}
"""Name of an architecture in `general.architecture` -> how its files are read."""
