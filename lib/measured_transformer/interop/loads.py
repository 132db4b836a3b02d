"""What loads: each family's classes, settings, rope types, refusals and GGUF files, asked of the families.

Nothing here is a list to be kept by hand but `TRIED`, the settings that are tried on each family: what a
family says to them is its own sentence. The page *What loads* prints these tables.

>>> about = {one.name: one for one in what_loads()}
>>> about["llama"].classes, about["llama"].gguf
(('LlamaForCausalLM', 'LlamaModel'), ('llama',))
>>> about["olmo"].refused["clip_qkv=8.0"]
'this checkpoint has clip_qkv=8.0, which this library does not compute; supported is clip_qkv=None'

A live model of any other kind is watched and changed by the names of its own modules::

    import torch
    from transformers import FalconConfig, FalconForCausalLM
    from measured_transformer import capture, intervene
    from measured_transformer.internals.at import at
    from measured_transformer.internals.modules import by_head, called_modules

    config = FalconConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=4)
    model = FalconForCausalLM(config).eval()
    tokens = torch.randint(40, (1, 9))
    list(called_modules(model))    # the names to choose from

    with torch.no_grad(), capture(model, "transformer.h.*.mlp") as seen:
        logits = model(tokens).logits
    seen["transformer.h.1.mlp"].shape    # (1, 9, 16)

    second_head = by_head(at(0.0, heads=1), n_heads=4)
    with torch.no_grad(), intervene(
        model, {"transformer.h.0.self_attention.dense:input": second_head}
    ):
        without = model(tokens).logits
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import Family
from measured_transformer.interop.gguf_architectures import ARCHITECTURES
from measured_transformer.interop.huggingface import FAMILIES
from measured_transformer.interop.rope import READERS
from measured_transformer.models.encoder import Encoder

Settings = Mapping[str, Any]
"""Settings of a `config.json`."""

_UNKNOWN = "another class"  # so that a family says which classes it reads
_NO_CHOICE = frozenset(
    (
        *("architectures", "is_encoder_decoder", "decoder_start_token_id"),
        *("bos_token_id", "eos_token_id", "pad_token_id"),
    )
)

BEYOND_DEFAULTS: dict[str, Settings] = {
    "deepseek_v2": {"num_experts_per_tok": 2},
}
"""Settings without which a checkpoint that leaves all others out is refused."""

OF_ALL: tuple[Settings, ...] = (
    {"quantization_config": {"bits": 4}},
    {"per_layer_config": {"0": {}}},
)
"""Settings that every family refuses."""

_DECODER: tuple[Settings, ...] = ({"is_causal": False},)
_ROTARY: tuple[Settings, ...] = (
    *_DECODER,
    {"rope_parameters": {"rope_type": "mrope"}},
    {"rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24]}},
)
_WHOLE: tuple[Settings, ...] = (*_ROTARY, {"partial_rotary_factor": 0.5})
_SLIDING: tuple[Settings, ...] = (
    {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
)
_BERT: tuple[Settings, ...] = (
    {"position_embedding_type": "relative_key"},
    {"is_decoder": True},
    {"add_cross_attention": True},
    {"hidden_act": "mish"},
)
_GATED: tuple[Settings, ...] = ({"hidden_act": "relu2"},)
_PLAIN: tuple[Settings, ...] = ({"hidden_act": "mish"},)

TRIED: dict[str, tuple[Settings, ...]] = {
    "gpt2": (*_DECODER, {"add_cross_attention": True}, {"activation_function": "mish"}),
    "llama": (*_WHOLE, *_GATED),
    "mistral": (*_WHOLE, *_GATED, *_SLIDING),
    "qwen2": (*_WHOLE, *_GATED, *_SLIDING),
    "qwen3": (*_WHOLE, *_GATED, *_SLIDING),
    "smollm3": (*_WHOLE, *_GATED, *_SLIDING, {"no_rope_layers": [1]}),
    "gemma": (*_WHOLE, *_GATED, {"use_bidirectional_attention": True}),
    "gemma2": (
        *_WHOLE,
        *_SLIDING,
        {"hidden_activation": "relu2"},
        {"use_bidirectional_attention": True},
        {"query_pre_attn_scalar": 0},
    ),
    "gemma3_text": (
        *_DECODER,
        *_SLIDING,
        {"hidden_activation": "relu2"},
        {"use_bidirectional_attention": True},
        {"query_pre_attn_scalar": 0},
    ),
    "phi3": (
        *_ROTARY,
        *_GATED,
        {"partial_rotary_factor": 0.35},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    ),
    "olmo": (*_WHOLE, *_GATED, {"clip_qkv": 8.0}),
    "olmo2": (*_WHOLE, *_GATED),
    "granite": (*_WHOLE, *_GATED, {"logits_scaling": 0}),
    "stablelm": (*_ROTARY, *_GATED, {"head_dim": 14}),
    "cohere": (*_WHOLE, *_GATED, {"logit_scale": None}),
    "mixtral": (*_WHOLE, *_GATED, {"router_jitter_noise": 0.1}),
    "qwen3_moe": (*_WHOLE, *_GATED, {"decoder_sparse_step": 0}),
    "gpt_oss": (*_ROTARY, *_GATED),
    "qwen2_moe": (*_WHOLE, *_GATED, {"decoder_sparse_step": 0}),
    "olmoe": (*_WHOLE, *_GATED, {"clip_qkv": 8.0}),
    "deepseek_v3": (*_ROTARY, *_GATED, {"first_k_dense_replace": -1}),
    "deepseek_v2": (
        *_ROTARY,
        *_GATED,
        {"mlp_bias": True},
        {"norm_topk_prob": True},
        {"topk_method": "noaux_tc"},
    ),
    "gpt_neox": (*_ROTARY, *_PLAIN, {"head_dim": 14}),
    "opt": (*_DECODER, {"activation_function": "mish"}, {"word_embed_proj_dim": 5}),
    "phi": (*_ROTARY, *_PLAIN, {"qk_layernorm": True}),
    "gpt_neo": (
        *_DECODER,
        {"activation_function": "mish"},
        {"attention_types": [[["dilated"], 24]]},
    ),
    "gptj": (*_DECODER, {"activation_function": "mish"}, {"rotary_dim": None}, {"rotary_dim": 3}),
    "t5": (
        {"is_causal": False},
        {"feed_forward_proj": "gated-mish"},
        {"feed_forward_proj": "gated-quick_gelu"},
    ),
    "mt5": (
        {"is_causal": False},
        {"feed_forward_proj": "gated-mish"},
    ),
    "bart": (
        *_DECODER,
        {"is_decoder": True},
        {"add_cross_attention": True},
        {"activation_function": "mish"},
    ),
    "marian": (
        *_DECODER,
        {"is_decoder": True},
        {"add_cross_attention": True},
        {"activation_function": "mish"},
        {"decoder_vocab_size": 5},
    ),
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "electra": (*_BERT, {"embedding_size": 0}),
    "albert": (*_BERT, {"num_hidden_groups": 13}, {"inner_group_num": 0}, {"embedding_size": None}),
    "distilbert": ({"activation": "mish"},),
    "mpnet": (*_BERT, {"relative_attention_num_buckets": 40}),
    "modernbert": (
        {"is_causal": True},
        {"hidden_activation": "quick_gelu"},
        {"classifier_bias": True},
        *_SLIDING,
    ),
}
"""Model type -> settings that it is asked for, beside `OF_ALL`, and refuses."""

_ROPE_EXAMPLES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 1024},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    "longrope": {
        "short_factor": [1.0],
        "long_factor": [2.0],
        "original_max_position_embeddings": 1024,
    },
}


@dataclass(frozen=True)
class Loadable:
    """What is read of one `model_type`.

    Attributes:
        name: the `model_type`.
        classes: the classes of `transformers` whose checkpoints are read.
        kind: what they become here: 'Decoder', 'Encoder' or 'EncoderDecoder'.
        settings: what is computed as the checkpoint says, by the names that an export writes.
        rope_types: the kinds of rotary scaling; empty where nothing is rotary.
        refused: a setting that was tried, as text -> the sentence that refuses it.
        gguf: architectures of GGUF files that are built by this family.
    """

    name: str
    classes: tuple[str, ...]
    kind: str
    settings: tuple[str, ...]
    rope_types: tuple[str, ...]
    refused: Mapping[str, str]
    gguf: tuple[str, ...]


@cache
def what_loads() -> tuple[Loadable, ...]:
    """Every family of `interop.huggingface.FAMILIES`, as it answers.

    Raises:
        ValueError: when a family computes what `TRIED` says that it refuses, and is to be tried no more.
    """
    return tuple(_about(family) for family in FAMILIES.values())


def setting_text(settings: Settings) -> str:
    """Settings as one writes them: `hidden_act='mish'`.

    >>> setting_text({"clip_qkv": 8.0})
    'clip_qkv=8.0'
    """
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _about(family: Family) -> Loadable:
    refused = {}
    for settings in (*OF_ALL, *TRIED.get(family.name, ())):
        sentence = _refusal(family, settings)
        if sentence is None:
            raise ValueError(
                f"{family.name} computes {setting_text(settings)}: take it out of TRIED"
            )
        refused[setting_text(settings)] = sentence
    written = family.settings(family.read(_checkpoint(family), {}))
    # Positions of RoBERTa and its like begin behind the row of this token.
    passed_over = _NO_CHOICE - ({"pad_token_id"} if family.kind is Encoder else set())
    return Loadable(
        name=family.name,
        classes=_classes(family),
        kind=family.kind.__name__,
        settings=tuple(sorted(written.keys() - passed_over)),
        rope_types=_rope_types(family) if "rope_parameters" in written else (),
        refused=refused,
        gguf=tuple(name for name, how in ARCHITECTURES.items() if how.family == family.name),
    )


def _checkpoint(
    family: Family, settings: Settings | None = None, architecture: str | None = None
) -> Checkpoint:
    """What a file says that leaves out all settings but these."""
    beyond = BEYOND_DEFAULTS.get(family.name, {})
    held = {"model_type": family.name, **beyond, **(settings or {})}
    return Checkpoint(held, {}, architecture)


def _refusal(family: Family, settings: Settings) -> str | None:
    """The sentence with which a family refuses settings; None when it computes them."""
    try:
        family.read(_checkpoint(family, settings), {})
    except ValueError as error:
        return str(error)
    return None


def _classes(family: Family) -> tuple[str, ...]:
    """The classes that a family names when it gets another one."""
    try:
        family.read(_checkpoint(family, architecture=_UNKNOWN), {})
    except ValueError as error:
        named, found, _ = str(error).partition(f"; got one of {_UNKNOWN}")
        if found:
            return tuple(named.removeprefix("expected a checkpoint of ").split(", "))
        raise
    raise ValueError(f"{family.name} reads a checkpoint of {_UNKNOWN}, and does not say of which")


def _rope_types(family: Family) -> tuple[str, ...]:
    """The rope types that a family computes."""

    def asked(kind: str) -> Settings:
        rope = {"rope_type": kind, "rope_theta": 1e4, **_ROPE_EXAMPLES[kind]}
        written = family.settings(family.read(_checkpoint(family), {}))
        per_kind = [key for key in written["rope_parameters"] if key.endswith("_attention")]
        rotary = dict.fromkeys(per_kind, rope) if per_kind else rope
        beside = {"original_max_position_embeddings": 1024} if kind == "longrope" else {}
        return {"rope_parameters": rotary, "max_position_embeddings": 4096, **beside}

    return tuple(kind for kind in READERS if _refusal(family, asked(kind)) is None)
