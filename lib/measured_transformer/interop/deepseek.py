"""DeepSeek-V2 and V3 (and R1): `DeepseekV2ForCausalLM`, `DeepseekV3ForCausalLM`, and the models without head.

Latent attention, and experts in all but the first layers. The further layers of V3 that predict the token after
the next are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.experts import (
    experts_of,
    network_entries,
    networks,
    plain_width,
    unpacked,
)
from measured_transformer.interop.family import MisfitError, positive, require, whole
from measured_transformer.interop.llama import (
    TWO_NORMS,
    base_config,
    base_settings,
    norm_entries,
    outer_entries,
    relative,
    with_defaults,
)
from measured_transformer.interop.rope import read_rope
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.parts.experts import Experts
from measured_transformer.parts.latent import Latent
from measured_transformer.parts.networks import PLAIN
from measured_transformer.parts.rotary_scaling import Yarn

CLASSES2 = ("DeepseekV2ForCausalLM", "DeepseekV2Model")
CLASSES3 = ("DeepseekV3ForCausalLM", "DeepseekV3Model")
METHODS = ("greedy", "group_limited_greedy")


def config_of_v2(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint.

    Raises:
        ValueError: when a setting is not supported.
    """
    theirs = with_defaults(
        checkpoint.config,
        vocab_size=102400,
        q_lora_rank=1536,
        first_k_dense_replace=0,
        n_routed_experts=64,
        n_shared_experts=2,
        moe_intermediate_size=1407,
        routed_scaling_factor=1.0,
        topk_method="greedy",
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    require(theirs, mlp_bias=False, norm_topk_prob=False)
    if (method := theirs["topk_method"]) not in METHODS:
        raise ValueError(
            f"this checkpoint has topk_method={method!r}, which this library does not compute; supported "
            f"are {' and '.join(METHODS)}"
        )
    groups = _groups(theirs) if method == METHODS[1] else {}
    return _config(checkpoint, theirs, CLASSES2, _experts(theirs, **groups))


def config_of_v3(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint.

    Raises:
        ValueError: when a setting is not supported.
    """
    theirs = with_defaults(
        checkpoint.config,
        vocab_size=129280,
        hidden_size=7168,
        intermediate_size=18432,
        num_hidden_layers=61,
        num_attention_heads=128,
        max_position_embeddings=4096,
        q_lora_rank=1536,
        first_k_dense_replace=3,
        n_routed_experts=256,
        n_shared_experts=1,
        moe_intermediate_size=2048,
        num_experts_per_tok=8,
        routed_scaling_factor=2.5,
        norm_topk_prob=True,
        n_group=8,
        topk_group=4,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        rope_interleave=True,
    )
    experts = _experts(
        theirs,
        scores="sigmoid",
        choice_bias=True,
        normalised=bool(theirs["norm_topk_prob"]),
        group_best=2,
        **_groups(theirs),
    )
    pairing = "interleaved" if theirs["rope_interleave"] else "halves"
    return _config(checkpoint, theirs, CLASSES3, experts, rotary_pairing=pairing)


def _groups(theirs: Mapping[str, Any]) -> dict[str, int]:
    return {"groups": whole(theirs, "n_group"), "asked_groups": whole(theirs, "topk_group")}


def _experts(theirs: Mapping[str, Any], **more: Any) -> Experts:
    width = whole(theirs, "moe_intermediate_size")
    return Experts(
        whole(theirs, "n_routed_experts"),
        whole(theirs, "num_experts_per_tok"),
        width=width,
        shared_width=whole(theirs, "n_shared_experts") * width,
        weight_scale=positive(theirs, "routed_scaling_factor"),
        **more,
    )


def _config(
    checkpoint: Checkpoint,
    theirs: Mapping[str, Any],
    classes: tuple[str, str],
    experts: Experts,
    **choices: Any,
) -> Config:
    n, first = whole(theirs, "num_hidden_layers"), theirs["first_k_dense_replace"]
    if isinstance(first, bool) or not isinstance(first, int) or first < 0:
        raise ValueError(f"first_k_dense_replace must be 0 or a whole number, got {first!r}")
    latent = Latent(
        whole(theirs, "kv_lora_rank"),
        d_rotary=whole(theirs, "qk_rope_head_dim"),
        d_value=whole(theirs, "v_head_dim"),
        query_rank=None if theirs["q_lora_rank"] is None else whole(theirs, "q_lora_rank"),
    )
    rope = read_rope(theirs)
    width = whole(theirs, "qk_nope_head_dim")
    return base_config(
        checkpoint,
        theirs,
        classes,
        rope=rope,
        attention=latent,
        d_head=width,
        n_kv_heads=None,
        attention_bias=theirs["attention_bias"],
        attention_scale=_scale(theirs, rope, width + latent.d_rotary),
        **{
            "rotary_pairing": "interleaved",
            **networks([PLAIN if i < first else experts for i in range(n)]),
            **choices,
        },
    )


def _scale(theirs: Mapping[str, Any], rope: Mapping[str, Any], width: int) -> float:
    """The factor on the scores, which grows with `mscale_all_dim` of a rotary scaling."""
    given = theirs.get("rope_scaling") or theirs.get("rope_parameters") or {}
    share = given.get("mscale_all_dim") or 0.0
    if not share or rope["rotary_scaling"] is None:
        return float(width**-0.5)
    stretch = 0.1 * float(share) * math.log(max(positive(given, "factor"), 1.0)) + 1
    return float(width**-0.5 * stretch**2)


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    rows = outer_entries(config)
    for i in range(config.n_layers):
        rows += norm_entries(config, i, TWO_NORMS)
        rows += _attention_entries(config, i)
        rows += network_entries(config, i, shared="shared_experts")
        network = config.of_layer(i).network
        if isinstance(network, Experts) and network.choice_bias:
            theirs = f"layers.{i}.mlp.gate.e_score_correction_bias"
            rows.append(entry(theirs, f"blocks.{i}.feedforward.choice_bias"))
    return rows


def _attention_entries(config: Config, i: int) -> list[Entry]:
    theirs, ours = f"layers.{i}.self_attn", f"blocks.{i}.attention"
    bias, latent = config.attention_has_bias, config.of_layer(i).attention
    if isinstance(latent, Latent) and latent.query_rank is None:
        rows = [entry(f"{theirs}.q_proj.weight", f"{ours}.query.weight")]
    else:
        rows = layer(f"{theirs}.q_a_proj", f"{ours}.query_down", bias=bias)
        rows += layer(f"{theirs}.q_a_layernorm", f"{ours}.query_norm", bias=False)
        rows.append(entry(f"{theirs}.q_b_proj.weight", f"{ours}.query.weight"))
    for kind in ("weight", "bias") if bias else ("weight",):
        both = (f"{ours}.down.{kind}", f"{ours}.rotary_key.{kind}")
        rows.append(entry(f"{theirs}.kv_a_proj_with_mqa.{kind}", *both))
    rows += layer(f"{theirs}.kv_a_layernorm", f"{ours}.latent_norm", bias=False)
    both = (f"{ours}.up_key.weight", f"{ours}.up_value.weight")
    rows.append(entry(f"{theirs}.kv_b_proj.weight", *both, heads=config.n_heads))
    return rows + layer(f"{theirs}.o_proj", f"{ours}.output", bias=bias)


def v2_settings(c: Config) -> dict[str, Any]:
    """DeepSeek-V2's settings for such a config."""
    experts = experts_of(c)[0]
    grouped = experts.groups > 1
    return {
        **_settings(c, CLASSES2),
        "topk_method": METHODS[grouped],
        "n_group": experts.groups if grouped else None,
        "topk_group": experts.asked_groups if grouped else None,
    }


def v3_settings(c: Config) -> dict[str, Any]:
    """DeepSeek-V3's settings for such a config."""
    experts = experts_of(c)[0]
    return {
        **_settings(c, CLASSES3),
        "norm_topk_prob": experts.normalised,
        "n_group": experts.groups,
        "topk_group": experts.asked_groups,
        "rope_interleave": c.rotary_pairing == "interleaved",
        "num_nextn_predict_layers": 0,
    }


def _settings(c: Config, classes: tuple[str, str]) -> dict[str, Any]:
    experts, width, plain = experts_of(c)
    latent = c.attention
    if not isinstance(latent, Latent):
        raise MisfitError(f"attention must be a Latent, is a {type(latent).__name__}")
    if experts.shared_width % width:
        raise MisfitError(
            f"shared_width must be a multiple of the experts' width {width}, is {experts.shared_width}"
        )
    written = base_settings(c, classes)
    del written["head_dim"]
    asking = c.head_width + latent.d_rotary
    scale = asking**-0.5 if c.attention_scale is None else c.attention_scale
    stretch = math.sqrt(scale * math.sqrt(asking)) if scale > 0 else 0.0
    if isinstance(c.rotary_scaling, Yarn) and c.rotary_scaling.factor > 1 and stretch > 1:
        share = (stretch - 1) / (0.1 * math.log(c.rotary_scaling.factor))
        for name in ("rope_parameters", "rope_scaling"):
            written[name] = {**written[name], "mscale_all_dim": share}
            written[name].setdefault("attention_factor", c.rotary_scaling.factor_of_vectors)
    return {
        **written,
        "num_key_value_heads": c.n_heads,
        "intermediate_size": plain_width(c, plain),
        "moe_intermediate_size": width,
        "n_routed_experts": experts.n_experts,
        "n_shared_experts": experts.shared_width // width,
        "num_experts_per_tok": experts.per_token,
        "routed_scaling_factor": experts.weight_scale,
        "first_k_dense_replace": len(plain),
        "kv_lora_rank": latent.rank,
        "q_lora_rank": latent.query_rank,
        "qk_nope_head_dim": c.head_width,
        "qk_rope_head_dim": latent.d_rotary,
        "v_head_dim": latent.d_value or c.head_width,
        "attention_bias": c.attention_has_bias,
    }


def _tidy(config: Mapping[str, Any], held: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with every expert by itself, without the layers that predict further tokens."""
    n, more = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers") or 0
    beyond = tuple(f"layers.{n + i}." for i in range(more)) if isinstance(n, int) else ()
    kept = {name: one for name, one in held.items() if not (beyond and name.startswith(beyond))}
    return unpacked(kept)


DEEPSEEK_V2, DEEPSEEK_V3 = (
    replace(relative(name, config_of, settings, entries), tidy=_tidy)
    for name, config_of, settings in (
        ("deepseek_v2", config_of_v2, v2_settings),
        ("deepseek_v3", config_of_v3, v3_settings),
    )
)
