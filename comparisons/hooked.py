"""A `Decoder` as a `HookedTransformer` of TransformerLens, with the same weights."""

from __future__ import annotations

from typing import Any, cast

import torch
from measured_transformer import Decoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.variants.substitutes import Silent
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.weight_processing import ProcessWeights

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
NORMS = {"layer": "LN", "rms": "RMS", "none": None}
POSITIONS = {"learned": "standard", "rotary": "rotary"}


def hooked(
    model: Decoder, *, length: int, fold_norms: bool = False, centre_unembedding: bool = False
) -> HookedTransformer:
    """The same model in their library.

    What `load_and_process_state_dict` does is done step by step here: it would round all weights to
    float32.

    Args:
        model: with learned or rotary positions, and networks without gate or none at all.
        length: tokens of the longest sequence.
        fold_norms: have the weights of norms in the matrices that read behind them.
        centre_unembedding: take their mean over the vocabulary from the logits.
    """
    c = model.config
    silent = is_silent(model)
    config: dict[str, Any] = {
        "n_layers": c.n_layers,
        "d_model": c.d_model,
        "d_head": c.head_width,
        "n_heads": c.n_heads,
        "n_ctx": c.max_length if c.positions == "learned" else length,
        "d_mlp": c.neurons,
        "d_vocab": c.vocab,
        "act_fn": ACTIVATIONS[c.activation],
        "attn_only": silent,
        "normalization_type": NORMS[c.norm],
        "eps": c.norm_eps,
        "positional_embedding_type": POSITIONS[c.positions],
        "dtype": model.token_embedding.weight.dtype,
        "device": "cpu",
        "default_prepend_bos": False,
        "use_attn_result": True,
        "init_weights": False,
    }
    if c.positions == "rotary":
        config |= {
            "rotary_dim": c.head_width,
            "rotary_base": c.rotary_base,
            "rotary_adjacent_pairs": c.rotary_pairing == "interleaved",
        }
    theirs = HookedTransformer(HookedTransformerConfig(**config))
    state = {**theirs.state_dict(), **weights(model, silent)}
    if fold_norms and c.norm != "none":
        is_layer = c.norm == "layer"
        state = ProcessWeights.fold_layer_norm(
            state, theirs.cfg, fold_biases=is_layer, center_weights=is_layer
        )
    if centre_unembedding:
        state = ProcessWeights.center_unembed(state, theirs.cfg)
    theirs.load_state_dict(state)
    return theirs.eval()


def is_silent(model: Decoder) -> bool:
    """Return whether its blocks have attention alone."""
    return isinstance(cast(Block, model.blocks[0]).feedforward, Silent)


def weights(model: Decoder, silent: bool) -> dict[str, Tensor]:
    """All weights under their names: rows read, columns written, and one matrix for each head."""
    assert model.unembedding is not None
    found = {
        "embed.W_E": model.embedding_scale * model.token_embedding.weight,
        "unembed.W_U": model.config.logit_scale * model.unembedding.weight.T,
        "unembed.b_U": _bias(model.unembedding),
        **_norm("ln_final", model.final_norm),
    }
    if model.config.positions == "learned":
        found["pos_embed.W_pos"] = cast(Any, model.positions).table
    for i, module in enumerate(model.blocks):
        block, own = cast(Block, module), f"blocks.{i}"
        found |= _norm(f"{own}.ln1", block.attention_norm) | _attention(own, block.attention)
        if not silent:
            found |= _norm(f"{own}.ln2", block.feedforward_norm)
            for name, part in (("in", block.feedforward.up), ("out", block.feedforward.down)):
                found[f"{own}.mlp.W_{name}"] = part.weight.T
                found[f"{own}.mlp.b_{name}"] = _bias(part)
    return {name: weight.detach().clone() for name, weight in found.items()}


def _attention(own: str, attention: MultiHeadAttention) -> dict[str, Tensor]:
    found, heads = {}, attention.n_heads
    for letter, part in zip("QKV", (attention.query, attention.key, attention.value), strict=True):
        found[f"{own}.attn.W_{letter}"] = part.weight.unflatten(0, (heads, -1)).mT
        found[f"{own}.attn.b_{letter}"] = _bias(part).unflatten(0, (heads, -1))
    found[f"{own}.attn.W_O"] = attention.output.weight.T.unflatten(0, (heads, -1))
    found[f"{own}.attn.b_O"] = _bias(attention.output)
    return found


def _norm(name: str, norm: Any) -> dict[str, Tensor]:
    found = {}
    if getattr(norm, "weight", None) is not None:
        found[f"{name}.w"] = norm.weight
    if getattr(norm, "bias", None) is not None:
        found[f"{name}.b"] = norm.bias
    return found


def _bias(part: Any) -> Tensor:
    if part.bias is not None:
        return part.bias
    return torch.zeros(len(part.weight), dtype=part.weight.dtype)
