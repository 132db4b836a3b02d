"""Small GGUF files of every way of storing weights, written as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import nn

# K-quants: a block of 256 weights is random bytes; the scales of the whole block stand at these places.
SCALES = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
# The largest weight that a block with a scale of one stands for, roughly.
REACH = {"Q2_K": 45, "Q3_K": 128, "Q4_K": 945, "Q5_K": 1953, "Q6_K": 4096}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
LLAMA = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
QWEN3 = {**LLAMA, **HEAD_NORMS}
PHI3 = {**LLAMA, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
GEMMA2 = {
    **LLAMA,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GEMMA3 = {**GEMMA2, **HEAD_NORMS}
_ROUTED = {name: own for name, own in LLAMA.items() if not name.startswith("mlp.")}
MIXTRAL = {**_ROUTED, "mlp.gate": "ffn_gate_inp"}
QWEN2_MOE = {
    **MIXTRAL,
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
QWEN3_MOE = {**MIXTRAL, **HEAD_NORMS}
GPT_OSS = {
    **_ROUTED,
    "post_attention_layernorm": "post_attention_norm",
    "mlp.router": "ffn_gate_inp",
}
GPT2 = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def write_llama(
    path: Path,
    theirs: nn.Module,
    kind: str = "F32",
    *,
    changed: Mapping[str, Any] | None = None,
    without: Sequence[str] = (),
    tokenizer: Mapping[str, Any] | None = None,
    more: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """A file of a LlamaForCausalLM: matrices stored as `kind`, vectors as real numbers.

    `changed` sets or adds metadata, None takes a key away; `without` leaves out tensors, `more` adds some.
    """
    c = theirs.config
    keys = {
        "llama.context_length": c.max_position_embeddings,
        "llama.embedding_length": c.hidden_size,
        "llama.block_count": c.num_hidden_layers,
        "llama.feed_forward_length": c.intermediate_size,
        "llama.attention.head_count": c.num_attention_heads,
        "llama.attention.head_count_kv": c.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "llama.rope.freq_base": float(c.rope_parameters["rope_theta"]),
        "llama.rope.dimension_count": c.head_dim,
        "llama.vocab_size": c.vocab_size,
        **(tokenizer or {}),
        **(changed or {}),
    }
    tensors = {}
    for name, tensor in theirs.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}
        value = tensor.float().numpy()
        for projection, count in heads.items():
            if projection in name:  # as convert_hf_to_gguf.py does
                value = value.reshape(count, 2, -1, *value.shape[1:]).swapaxes(1, 2)
                value = value.reshape(tensor.shape)
        tensors[_name(name, LLAMA)] = value
    return _write(path, "llama", keys, tensors, kind, without, more or {})


def write_relative(
    path: Path,
    theirs: nn.Module,
    architecture: str,
    table: Mapping[str, str],
    changed: Mapping[str, Any],
    *,
    kind: str = "F32",
    single: bool = False,
) -> Path:
    """A file of a relative of Llama whose rows lie as they were published; Gemma's norms with their one.

    `single` writes each expert by itself, as llama.cpp's converter did until April 2024.
    """
    c = theirs.config
    keys = {
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "block_count": c.num_hidden_layers,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        **changed,
    }
    tensors = {}
    for name, tensor in theirs.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        if ".mlp.experts." in name:
            stacked = _experts(name, tensor.float(), turned=architecture == "gpt-oss")
            for told, value in stacked.items():
                if single:
                    stem = told.removesuffix("_exps.weight")
                    tensors |= {f"{stem}.{e}.weight": one for e, one in enumerate(value)}
                else:
                    tensors[told] = value
            continue
        if name.endswith(".sinks"):
            tensors[f"blk.{name.split('.')[2]}.attn_sinks.weight"] = tensor.float().numpy()
            continue
        more = float(architecture.startswith("gemma") and name.endswith("norm.weight"))
        value = tensor.float().numpy() + np.float32(more)
        if architecture == "llama":  # as convert_hf_to_gguf.py does
            for projection, count in (
                ("q_proj", c.num_attention_heads),
                ("k_proj", c.num_key_value_heads),
            ):
                if projection in name:
                    value = value.reshape(count, 2, -1, value.shape[-1]).swapaxes(1, 2)
                    value = value.reshape(tuple(tensor.shape))
        if "shared_expert_gate" in name:
            value = value[0]
        tensors[_name(name, table)] = value
    named = {f"{architecture}.{key}": value for key, value in keys.items()}
    vocabulary = {
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(c.vocab_size)],
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }
    return _write(path, architecture, {**named, **vocabulary}, tensors, kind, (), {})


def _experts(name: str, tensor: torch.Tensor, *, turned: bool) -> dict[str, np.ndarray]:
    """The experts of a block as the converter stacks them: (expert, output, input) for each projection.

    gpt-oss has its maps `turned`, as (input, output), and gate and up column by column in turn.
    """
    block, last = name.split(".")[2], name.rpartition(".")[2]
    stem, kind = last.removesuffix("_bias"), "bias" if last.endswith("_bias") else "weight"
    if turned and kind == "weight":
        tensor = tensor.transpose(1, 2)
    pieces = {"down": tensor}
    if stem == "gate_up_proj":
        halves = (tensor[:, ::2], tensor[:, 1::2]) if turned else tensor.chunk(2, dim=1)
        pieces = dict(zip(("gate", "up"), halves, strict=True))
    return {
        f"blk.{block}.ffn_{own}_exps.{kind}": piece.contiguous().numpy()
        for own, piece in pieces.items()
    }


def write_gpt2(path: Path, theirs: nn.Module, kind: str = "F32") -> Path:
    c = theirs.config
    keys = {
        "gpt2.context_length": c.n_positions,
        "gpt2.embedding_length": c.n_embd,
        "gpt2.block_count": c.n_layer,
        "gpt2.feed_forward_length": c.n_inner or 4 * c.n_embd,
        "gpt2.attention.head_count": c.n_head,
        "gpt2.attention.layer_norm_epsilon": float(c.layer_norm_epsilon),
    }
    tensors = {}
    for name, tensor in theirs.state_dict().items():
        if name == "lm_head.weight":
            continue
        turned = "c_" in name and name.endswith("weight")
        tensors[_name(name, GPT2)] = (tensor.T if turned else tensor).contiguous().numpy()
    return _write(path, "gpt2", keys, tensors, kind, (), {})


def _name(name: str, table: Mapping[str, str]) -> str:
    stem, _, last = name.rpartition(".")
    parts = stem.split(".")
    if len(parts) > 2 and parts[2].isdigit():  # model.layers.3.…, transformer.h.3.…
        return f"blk.{parts[2]}.{table['.'.join(parts[3:])]}.{last}"
    return f"{table[stem]}.{last}"


def _write(
    path: Path,
    architecture: str,
    keys: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    kind: str,
    without: Sequence[str],
    more: Mapping[str, np.ndarray],
) -> Path:
    writer = gguf.GGUFWriter(path, keys.get("general.architecture", architecture))
    for key, value in keys.items():
        if value is None or key == "general.architecture":
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    rng = np.random.default_rng(0)
    for name, value in {**tensors, **more}.items():
        if name in without:
            continue
        if (
            value.ndim == 1
            or kind == "F32"
            or name.endswith(("norm.weight", ".bias", "_inp.weight"))
        ):
            writer.add_tensor(name, np.ascontiguousarray(value, np.float32))
            continue
        stored = gguf.GGMLQuantizationType[kind]
        if kind in SCALES:
            data = _blocks(value.shape, kind, rng)
        else:
            data = gguf.quants.quantize(np.ascontiguousarray(value), stored)
        writer.add_tensor(name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _blocks(shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> np.ndarray:
    """Blocks of random bytes with scales that make their weights as large as one over the width's root."""
    _, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // 256, size), dtype=np.uint8)
    scale = np.float16(2 / REACH[kind] * shape[1] ** -0.5)
    for at in SCALES[kind]:
        blocks[..., at : at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(shape[0], -1)


def tokens_of(vocab: int, rows: int = 3, length: int = 17) -> torch.Tensor:
    return torch.randint(vocab, (rows, length), generator=torch.Generator().manual_seed(7))
