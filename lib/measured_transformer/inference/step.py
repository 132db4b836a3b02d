"""Runs one more token through the blocks with plain arithmetic, bypassing the modules' overhead.

A step of decoding multiplies a few vectors by each matrix. Calling modules, asking taps who watches and
checking shapes then takes a good part of the time. So the weights of each block are gathered once, and a step
is a plain run of tensor operations: the same ones as in `parts`, and the same result. Where somebody watches
a tap, or a block holds anything else than the library's own parts, the modules themselves are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.stack import Stack
from measured_transformer.models.token_positions import find_positions
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.cache import KeyValues
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.kernels.linear import Linear, chosen_kernel
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from measured_transformer.parts.positions import Rotation
from measured_transformer.parts.tap import Tap

_KNOWN = {Block, MultiHeadAttention, FeedForward, LayerNorm, RMSNorm, Linear, nn.Identity, Tap}
_Function = Callable[[Tensor], Tensor]
_LARGE_WEIGHT = 2**17  # smaller ones are multiplied as fast as they are
# Stream, rotation, mask of self-attention, mask of the memory, and the two caches; the stream again.
_Layer = Callable[
    [Tensor, Rotation | None, Tensor | None, Tensor | None, KeyValues, KeyValues | None], Tensor
]


def flat_layers(stack: Stack) -> list[_Layer] | None:
    """Each block as one function of the stream; None when only the modules themselves will do."""
    for module in stack.blocks.modules():
        if module is stack.blocks:
            continue
        watched = isinstance(module, Tap) and module.watched
        if type(module) not in _KNOWN or watched or module.training:
            return None
        if module._forward_hooks or module._forward_pre_hooks:
            return None
    return [_layer(block) for block in stack.blocks if isinstance(block, Block)]


def one_step(
    stack: Stack,
    layers: Sequence[_Layer],
    tokens: Int[Tensor, "row"],
    cache: KeyValueCache,
    memory_real: Bool[Tensor, "row memory"] | None = None,
) -> Float[Tensor, "row 1 d_model"]:
    """The result of `stack.stream` for one more token in each row.

    Args:
        stack: the model's stack.
        layers: its blocks, from `flat_layers`.
        tokens: known to lie in the vocabulary.
        cache: of a call that has read at least one token, and the memory where there is one.
        memory_real: where the memory's tokens are real; None: everywhere.
    """
    positions = find_positions(tokens[:, None], earlier=cache.positions)
    x, rotation, bias = stack.embed(tokens[:, None], positions)
    mask = None if positions.padding_mask is None else positions.padding_mask[:, None, None]
    if bias is not None:
        heads = stack.config.kv_heads
        bias = bias.to(x.dtype).reshape(-1, heads, bias.shape[-3] // heads, bias.shape[-1])
        mask = bias if mask is None else bias.masked_fill(~mask, -float("inf"))
    memory_mask = None if memory_real is None else memory_real[:, None, None]
    crossed = cache.cross_layers or [None] * len(layers)
    for layer, kept, memory in zip(layers, cache.layers, crossed, strict=True):
        x = layer(x, rotation, mask, memory_mask, kept, memory)
    cache.positions = positions
    return x


def _layer(block: Block) -> _Layer:
    pre, residual = block.placement == "pre", block.residual
    attention, feedforward = _attention(block.attention), _feedforward(block.feedforward)
    attention_norm, feedforward_norm = _norm(block.attention_norm), _norm(block.feedforward_norm)
    cross = None if block.cross_attention is None else _attention(block.cross_attention)
    cross_norm = _norm(block.cross_attention_norm)

    def add(x: Tensor, branch: Tensor, norm: _Function) -> Tensor:
        total = x + branch if residual else branch
        return total if pre else norm(total)

    def layer(
        x: Tensor,
        rotation: Rotation | None,
        mask: Tensor | None,
        memory_mask: Tensor | None,
        kept: KeyValues,
        memory: KeyValues | None,
    ) -> Tensor:
        branch = attention(attention_norm(x) if pre else x, rotation, mask, kept, True)
        x = add(x, branch, attention_norm)
        if cross is not None and memory is not None:
            branch = cross(cross_norm(x) if pre else x, None, memory_mask, memory, False)
            x = add(x, branch, cross_norm)
        branch = feedforward(feedforward_norm(x) if pre else x)
        return add(x, branch, feedforward_norm)

    return layer


def _attention(
    part: MultiHeadAttention,
) -> Callable[[Tensor, Rotation | None, Tensor | None, KeyValues, bool], Tensor]:
    query, everything = _linear(part.query), _linear(part.query, part.key, part.value)
    output, scale, width = _linear(part.output), part.scale, part.d_head
    heads, kv_heads = part.n_heads, part.n_kv_heads
    group = heads // kv_heads
    widths = [heads * width, kv_heads * width, kv_heads * width]

    def attention(
        x: Tensor, rotation: Rotation | None, mask: Tensor | None, kept: KeyValues, extend: bool
    ) -> Tensor:
        rows = x.shape[0]
        if extend:  # one product for all three
            asked, new, carried = everything(x).split(widths, dim=-1)
            queries = asked.reshape(rows, heads, 1, width)
            new = new.reshape(rows, kv_heads, 1, width)
            if rotation is not None:
                queries, new = rotation.apply(queries), rotation.apply(new)
            keys, values = kept.extend(new, carried.reshape(rows, kv_heads, 1, width))
        else:
            queries = query(x).view(rows, heads, 1, width)
            keys, values = kept.keys, kept.values
        # All heads of a group ask the same keys: they stand where else several positions would.
        queries = queries.view(rows, kv_heads, group, width)
        mixed = F.scaled_dot_product_attention(queries, keys, values, mask, scale=scale)
        return output(mixed.reshape(rows, 1, heads * width))

    return attention


def _feedforward(part: FeedForward) -> _Function:
    up, down, activate = _linear(part.up), _linear(part.down), part.activate
    if part.gate is None:
        return lambda x: down(activate(up(x)))
    gate = _linear(part.gate)
    return lambda x: down(activate(gate(x)) * up(x))


def _norm(part: nn.Module | None) -> _Function:
    if isinstance(part, LayerNorm):
        shape, weight, bias, eps = part.weight.shape, part.weight, part.bias, part.eps
        return lambda x: F.layer_norm(x, shape, weight, bias, eps)
    if isinstance(part, RMSNorm):
        return partial(
            F.rms_norm, normalized_shape=part.weight.shape, weight=part.weight, eps=part.eps
        )
    return lambda x: x


def _linear(*parts: nn.Linear) -> _Function:
    """The map of one projection, or of several side by side."""
    first = parts[0]
    weight: Tensor = first.weight
    bias: Tensor | None = first.bias
    if len(parts) > 1:
        weight = torch.cat([part.weight for part in parts])
        bias = None if bias is None else torch.cat([part.bias for part in parts])
    if _packing_pays(weight):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return lambda x: F.linear(x, weight, bias)


def _packing_pays(weight: Tensor) -> bool:
    """Whether oneDNN with prepacked weights multiplies a few vectors faster."""
    return (
        chosen_kernel() != "product"
        and weight.numel() >= _LARGE_WEIGHT
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkldnn.is_available()
        and torch._C._get_mkldnn_enabled()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
