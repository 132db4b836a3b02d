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

# With experts: those of a block are one tensor for each projection, (expert, output, input), see
# `gguf_models.EXPERTS`.
_NO_NETWORK = {name: own for name, own in LLAMA.tensors.items() if ".mlp." not in own}
_COUNTS = {"expert_used_count": "num_experts_per_tok"}
_OF_EXPERTS = ("expert_count", "expert_used_count")
_WIDTH_OF_EXPERTS = "expert_feed_forward_length"
MIXTRAL = replace(
    LLAMA,
    family="mixtral",
    settings={**LLAMA.settings, **_COUNTS, "expert_count": "num_local_experts"},
    tensors={**_NO_NETWORK, "blk.{}.ffn_gate_inp": "layers.{}.block_sparse_moe.gate"},
    required=(*LLAMA.required, *_OF_EXPERTS),
    biases={},
)


def _many(given: Given) -> dict[str, Any]:
    """Qwen's experts have a width of their own; a file that does not tell it divides that of the network."""
    asked = max(given["expert_used_count"], 1)
    width = given.get(_WIDTH_OF_EXPERTS) or given["feed_forward_length"] // asked
    return {"moe_intermediate_size": width, **_head_width(given)}


def _shared(given: Given) -> dict[str, Any]:
    width = given.get("expert_shared_feed_forward_length") or given["feed_forward_length"]
    return {"shared_expert_intermediate_size": width, **_many(given)}


_ROUTER = {"blk.{}.ffn_gate_inp": "layers.{}.mlp.gate"}
QWEN2_MOE = replace(
    QWEN2,
    family="qwen2_moe",
    settings={**LLAMA.settings, **_COUNTS, "expert_count": "num_experts"},
    tensors={
        **_NO_NETWORK,
        **_ROUTER,
        "blk.{}.ffn_gate_inp_shexp": "layers.{}.mlp.shared_expert_gate",
        "blk.{}.ffn_gate_shexp": "layers.{}.mlp.shared_expert.gate_proj",
        "blk.{}.ffn_up_shexp": "layers.{}.mlp.shared_expert.up_proj",
        "blk.{}.ffn_down_shexp": "layers.{}.mlp.shared_expert.down_proj",
    },
    required=MIXTRAL.required,
    biases={"qkv_bias": "attn_q"},
    more=_shared,
    derived=(_WIDTH_OF_EXPERTS, "expert_shared_feed_forward_length"),
)
QWEN3_MOE = replace(
    QWEN3,
    family="qwen3_moe",
    settings=QWEN2_MOE.settings,
    tensors={**_NO_NETWORK, **_ROUTER, **_HEAD_NORMS},
    required=MIXTRAL.required,
    # llama.cpp divides by what the chosen experts have together, whatever the file says.
    more=lambda given: {"norm_topk_prob": True, **_many(given)},
    derived=(_WIDTH_OF_EXPERTS,),
)
OLMOE = replace(
    QWEN3_MOE,
    family="olmoe",
    biases={},
    more=_head_width,
    derived=(),
)


def _gpt_oss(given: Given) -> dict[str, Any]:
    """The ramp of its angles begins and ends within pairs, as in the published models; no key tells it."""
    kind = given.get("rope.scaling.type", "none")
    if kind not in ("none", "yarn"):
        raise ValueError(
            f"the file has gpt-oss.rope.scaling.type={kind!r}, which this library does not compute; "
            "supported are 'none' and 'yarn'"
        )
    rope: dict[str, Any] = {"rope_type": "default"}
    if kind == "yarn":
        rope = {
            "rope_type": "yarn",
            "factor": given.get("rope.scaling.factor", 1.0),
            "original_max_position_embeddings": given.get("rope.scaling.original_context_length"),
            "truncate": False,
        }
    return {
        "intermediate_size": given.get(_WIDTH_OF_EXPERTS) or given["feed_forward_length"],
        "sliding_window": given.get("attention.sliding_window") or 128,
        "rope_parameters": rope,
        **_head_width(given),
    }


GPT_OSS = replace(
    QWEN2,
    family="gpt_oss",
    settings=MIXTRAL.settings,
    tensors={
        **{name: own for name, own in _NO_NETWORK.items() if "ffn_norm" not in name},
        "blk.{}.post_attention_norm": "layers.{}.post_attention_layernorm",
        "blk.{}.attn_sinks": "layers.{}.self_attn.sinks",
        "blk.{}.ffn_gate_inp": "layers.{}.mlp.router",
    },
    required=MIXTRAL.required,
    biases={"attention_bias": "attn_output"},
    more=_gpt_oss,
    derived=(
        *(_WIDTH_OF_EXPERTS, "attention.sliding_window"),
        *("rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length"),
    ),
)

WITH_EXPERTS = "{} with experts"
"""What an architecture is called here whose files may have experts or not, where they do."""
ARCHITECTURES: dict[str, Architecture] = {
    "llama": LLAMA,
    WITH_EXPERTS.format("llama"): MIXTRAL,
    "gpt2": GPT2,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "phi3": PHI3,
    "qwen2moe": QWEN2_MOE,
    "qwen3moe": QWEN3_MOE,
    "olmoe": OLMOE,
    "gpt-oss": GPT_OSS,
}
"""Name of an architecture in `general.architecture` -> how its files are read."""
UNREAD = {"deepseek2": "DeepSeek-V2 or V3"}
"""Architectures of families that are computed here, but of whose files no other reader tells what they give."""
