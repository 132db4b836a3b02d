"""gpt-oss: `GptOssForCausalLM`, and `GptOssModel` without the head (OpenAI 2025).

Every head has a sink, every second layer a window. Published weights of the experts have four bits each
(MXFP4), which are read from GGUF files alone: give safetensors in bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.experts import experts_of
from measured_transformer.interop.family import MisfitError, positive, whole
from measured_transformer.interop.layer_types import (
    FULL,
    SLIDING,
    by_layer,
    layer_types,
    windows,
    write_types,
)
from measured_transformer.interop.llama import (
    TWO_NORMS,
    attention_entries,
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
from measured_transformer.parts.experts import Clamp, Experts

CLASSES = ("GptOssForCausalLM", "GptOssModel")
ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""The rotary settings of a file that has none."""


@dataclass(frozen=True)
class Stacked(Entry):
    """One tensor with the weights, or biases, of all experts of a layer in front of each other.

    Attributes:
        experts: how many there are.
        axis: the axis of our parameters along which they stand.
    """

    experts: int = 1
    axis: int = 0

    def shape(self, ours: Sequence[Tensor]) -> tuple[int, ...]:
        """The shape of the tensor: (expert, input, output), or (expert, output) of biases."""
        return tuple(self.joined([one.new_empty(one.shape, device="meta") for one in ours]).shape)

    def split(self, stored: Tensor, ours: Sequence[Tensor]) -> Sequence[Tensor]:
        """What each parameter gets; several stand in turn in the stored tensor, one column after the other."""
        columns = stored.unflatten(-1, (-1, len(ours))).unbind(-1)
        if stored.ndim == 2:
            return [one.flatten() for one in columns]
        if self.axis:
            return [one.flatten(0, 1).T for one in columns]
        return [one.transpose(1, 2).flatten(0, 1) for one in columns]

    def joined(self, ours: Sequence[Tensor]) -> Tensor:
        """The tensor that holds the parameters."""
        by_expert = [one.unflatten(self.axis, (self.experts, -1)) for one in ours]
        if ours[0].ndim == 2:
            by_expert = [
                one.permute(1, 2, 0) if self.axis else one.transpose(1, 2) for one in by_expert
            ]
        return torch.stack(by_expert, dim=-1).flatten(-2)


def config_of(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Config:
    """The sizes and choices of the checkpoint."""
    theirs = with_defaults(
        checkpoint.config,
        vocab_size=201088,
        hidden_size=2880,
        intermediate_size=2880,
        num_hidden_layers=36,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        sliding_window=128,
        num_local_experts=128,
        num_experts_per_tok=4,
        swiglu_alpha=1.702,
        swiglu_limit=7.0,
        attention_bias=True,
    )
    if not theirs.get("rope_scaling") and theirs.get("rope_parameters") is None:
        theirs["rope_parameters"] = ROPE
    kinds = [FULL if i % 2 else SLIDING for i in range(whole(theirs, "num_hidden_layers"))]
    clamp = Clamp(positive(theirs, "swiglu_limit"), positive(theirs, "swiglu_alpha"))
    experts = Experts(
        whole(theirs, "num_local_experts"),
        whole(theirs, "num_experts_per_tok"),
        normalised=True,
        router_bias=True,
        clamp=clamp,
    )
    return base_config(
        checkpoint,
        theirs,
        CLASSES,
        rope=read_rope(theirs, base=150000.0),
        network=experts,
        activation="swiglu",
        attention_bias=theirs["attention_bias"],
        ffn_bias=True,
        sinks=True,
        **by_layer(window=windows(layer_types(theirs, kinds), theirs["sliding_window"])),
    )


def entries(config: Config) -> list[Entry]:
    """Names of the tensors."""
    rows = outer_entries(config)
    for i in range(config.n_layers):
        theirs, ours = f"layers.{i}", f"blocks.{i}"
        rows += norm_entries(config, i, TWO_NORMS)
        rows += attention_entries(config, i)
        rows.append(entry(f"{theirs}.self_attn.sinks", f"{ours}.attention.sinks"))
        rows += layer(f"{theirs}.mlp.router", f"{ours}.feedforward.router")
        network = config.of_layer(i).network
        n = network.n_experts if isinstance(network, Experts) else 1
        stem, own = f"{theirs}.mlp.experts", f"{ours}.feedforward"
        for kind, suffix in (("weight", ""), ("bias", "_bias")):
            both = (f"{own}.gate.{kind}", f"{own}.up.{kind}")
            rows.append(Stacked(f"{stem}.gate_up_proj{suffix}", both, experts=n))
        rows.append(Stacked(f"{stem}.down_proj", (f"{own}.down.weight",), experts=n, axis=1))
        rows.append(entry(f"{stem}.down_proj_bias", f"{own}.down_bias"))
    return rows


def settings(c: Config) -> dict[str, Any]:
    """gpt-oss's settings for such a config."""
    experts, width, _ = experts_of(c)
    if experts.clamp is None:
        raise MisfitError("clamp of its experts must be a Clamp, is None")
    kinds, window = write_types(c)
    return {
        **base_settings(c, CLASSES),
        "intermediate_size": width,
        "layer_types": kinds,
        "sliding_window": 128
        if window is None
        else window,  # it must be told, whether or not a layer slides
        "num_local_experts": experts.n_experts,
        "num_experts_per_tok": experts.per_token,
        "swiglu_alpha": experts.clamp.slope,
        "swiglu_limit": experts.clamp.limit,
        "attention_bias": c.attention_has_bias,
    }


GPT_OSS = relative("gpt_oss", config_of, settings, entries)
