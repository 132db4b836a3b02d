"""Multi-head attention: the module that owns the weights and shows what the heads do.

It runs PyTorch's fused kernel as long as nobody looks at its scores or pattern, and the explicit softmax of
`attention_functions` as soon as somebody does. Both compute the same function.

Axes: `batch`; `head`; `query`, the positions that ask; `key`, the positions that are asked; `d_model`, the
width of the stream; `d_head`, the width of one head. Masks are Boolean and say where attention is *allowed*.

Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2; grouped-query attention: Ainslie et
al. (2023), "GQA".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.parts.attention_functions import attend as attend
from measured_transformer.parts.attention_functions import attention_pattern as attention_pattern
from measured_transformer.parts.attention_functions import attention_scores as attention_scores
from measured_transformer.parts.attention_functions import fused_attention as fused_attention
from measured_transformer.parts.attention_functions import pattern_of
from measured_transformer.parts.cache import KeyValues
from measured_transformer.parts.derived import show_derived
from measured_transformer.parts.kernels.linear import Linear, linear
from measured_transformer.parts.masks import causal_mask as causal_mask
from measured_transformer.parts.masks import checked_bias, checked_mask
from measured_transformer.parts.masks import window_mask as window_mask
from measured_transformer.parts.norms import HeadNorm, make_norm
from measured_transformer.parts.part import Part
from measured_transformer.parts.positions import Rotation
from measured_transformer.parts.tap import Tap

QueryKeyNorm = Literal["none", "head", "heads", "width"]
"""What a norm of queries and keys goes over, see `MultiHeadAttention`."""


class MultiHeadAttention(Part):
    """Several heads that read the stream, attend each on its own, and write their sum back.

    Self-attention when called with one sequence, cross-attention when called with a `memory` as well.
    With fewer key-value heads than query heads, each of them serves a group of query heads in order
    (grouped-query attention; one key-value head: multi-query attention).

    Weights, (output, input) as in `nn.Linear`: rows `h * d_head` to `(h + 1) * d_head` of `query.weight`, and
    of `key.weight` and `value.weight` for a key-value head, belong to head h, as do these columns of
    `output.weight`. Query head h asks key-value head `h // (n_heads // n_kv_heads)`.

    Taps: `queries`, `keys`, `values` (batch head position d_head, after their norm where there is one and
    before any rotation), `rotated_queries`, `rotated_keys` (the same after it, in a model with rotary
    positions), `scores` (before masking) and `pattern` (batch head query key), ``mixed`` (batch head query
    d_head), `head_outputs` (batch head query d_model, each head's own contribution) and `out` (batch query
    d_model). In half precision scores and pattern are float32, as in PyTorch's kernel.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        scale: float | None = None,
        qkv_bias: bool | None = None,
        qk_norm: QueryKeyNorm = "none",
        norm: str = "rms",
        norm_eps: float = 1e-5,
        norm_offset: float = 0.0,
        window: int | None = None,
        score_cap: float | None = None,
        sinks: bool = False,
        shared_kv: bool = False,
        rotated: bool = False,
        wide: bool = False,
    ) -> None:
        """Make the projections.

        Args:
            d_model: width of the stream read and written.
            n_heads: number of query heads.
            n_kv_heads: number of key-value heads, a divisor of `n_heads`; `n_heads` when not given.
            d_head: width of a head; `d_model / n_heads` when not given.
            bias: whether the projections have biases.
            dropout: probability of dropping an attention weight in training.
            scale: factor on the dot products; 1/sqrt(d_head) when not given.
            qkv_bias: whether those to queries, keys and values have biases; `bias` when not given.
            qk_norm: 'none'; or queries and keys are normalised, each head by the same weights ('head') or by
                its own ('heads'), or all heads of a position as one vector ('width').
            norm, norm_eps, norm_offset: which norm that is, see `parts.norms.make_norm`.
            window: number of keys that a query sees, see `window_mask`; all when None.
            score_cap: scores become `score_cap * tanh(scores / score_cap)`.
            sinks: whether each head has a learned score that takes part in the softmax and has no value.
            shared_kv: whether values are what the key projection gives.
            rotated: whether there are taps for rotated queries and keys.
            wide: whether what the heads write is float32 where the weights are float16.

        Raises:
            ValueError: when head counts or widths do not divide, or a size is not positive.
        """
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if n_heads < 1 or n_kv_heads < 1:
            raise ValueError(
                f"expected at least one head, got n_heads={n_heads} and n_kv_heads={n_kv_heads}"
            )
        if n_heads % n_kv_heads:
            raise ValueError(
                f"n_kv_heads must divide n_heads, got n_heads={n_heads} and n_kv_heads={n_kv_heads}"
            )
        if d_head is None:
            if d_model % n_heads:
                raise ValueError(
                    f"n_heads must divide d_model, got d_model={d_model} and n_heads={n_heads}; "
                    "choose another number of heads or give d_head"
                )
            d_head = d_model // n_heads
        if d_model < 1 or d_head < 1:
            raise ValueError(f"widths must be positive, got d_model={d_model} and d_head={d_head}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        self.d_model, self.n_heads, self.n_kv_heads, self.d_head = (
            d_model,
            n_heads,
            n_kv_heads,
            d_head,
        )
        self.dropout, self.scale = dropout, scale
        self.window, self.score_cap, self.qk_norm = window, score_cap, qk_norm
        self.rotated = rotated
        qkv_bias = bias if qkv_bias is None else qkv_bias
        self._make_projections(qkv_bias, shared_kv)
        self.output = Linear(n_heads * d_head, d_model, bias=bias)
        self.output.wide = wide
        self.query_norm: nn.Module | None = None
        self.key_norm: nn.Module | None = None
        if qk_norm != "none":
            self.query_norm, self.key_norm = (
                _head_norm(qk_norm, n, d_head, norm, norm_eps, norm_offset)
                for n in (n_heads, n_kv_heads)
            )
        self.sinks = nn.Parameter(torch.zeros(n_heads)) if sinks else None
        self.queries, self.keys, self.values = Tap(), Tap(), Tap()
        if rotated:
            self.rotated_queries, self.rotated_keys = Tap(), Tap()
        self.scores, self.pattern, self.mixed = Tap(), Tap(), Tap()
        self.head_outputs, self.out = Tap(), Tap()

    def _make_projections(self, bias: bool, shared_kv: bool) -> None:
        """Make the maps to queries, keys and values."""
        width, kv_width = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
        self.query = Linear(self.d_model, width, bias=bias)
        self.key = Linear(self.d_model, kv_width, bias=bias)
        self.value = self.key if shared_kv else Linear(self.d_model, kv_width, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        memory: Float[Tensor, "batch key d_model"] | None = None,
        *,
        causal: bool = False,
        padding_mask: Bool[Tensor, "batch key"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        rotation: Rotation | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        cache: KeyValues | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """The sum that all heads add to the stream.

        With a cache, `x` continues a sequence whose earlier keys and values it holds: they are attended to
        as well (the axis `key` counts both) and those of `x` are added. In cross-attention the cache holds
        the memory's keys and values, projected when it is first used. The taps `keys` and `values` see
        what is projected in this call.

        Args:
            x: the sequence that asks.
            memory: the sequence that is asked (cross-attention); `x` itself when not given.
            causal: forbid looking ahead; self-attention only.
            padding_mask: True where a key is a real token, False where it is padding.
            mask: True where attention is allowed; broadcasts to (batch, head, query, key).
            rotation: rotary angles for the queries and keys; self-attention only.
            score_bias: added to the scores; broadcasts to (batch, head, query, key).
            cache: keys and values of earlier positions, or of the memory.

        Raises:
            ValueError: when widths, masks or their kinds do not fit.
        """
        self._check(x, memory, causal, rotation)
        joined = None if cache is None or memory is not None else cache.joined
        if joined is not None:  # one product for all three
            asked, new, carried = joined(x)
        else:
            asked = self.query(x)
        queries = self._queries(asked, rotation)
        if joined is not None:
            keys, values = self._keys_and_values(new, carried, rotation, cache)
        elif memory is None:
            keys, values = self._keys_and_values(*self._projected(x), rotation, cache)
        else:
            keys, values = self._memory(memory, cache)
        if mask is None and self._folds(queries):
            mixed = self._folded(queries, keys, values, padding_mask, score_bias)
            return self.out(self._merge(self.mixed(mixed)))
        if self.n_kv_heads != self.n_heads:
            keys, values = self._share(keys), self._share(values)
        allowed = self._allowed(queries, keys, padding_mask, mask)
        mixed = self._mix(queries, keys, values, causal, allowed, score_bias)
        return self.out(self._merge(self.mixed(mixed)))

    def join_projections(
        self, make: Callable[[Tensor, Tensor | None], Callable[[Tensor], Tensor]] | None = None
    ) -> Callable[[Tensor], Sequence[Tensor]] | None:
        """Queries, keys and values by one product in the place of three, for a cache's `joined`.

        It has copies of the weights. None where the projections are more than three linear maps.

        Args:
            make: gives the map of a weight and a bias; `linear` with them when not given.
        """
        parts = (self.query, self.key, self.value)
        if self.value is self.key or any(_is_changed(part) for part in parts):
            return None
        weight = torch.cat([part.weight.detach() for part in parts])
        biases = [part.bias for part in parts if part.bias is not None]
        bias = torch.cat([one.detach() for one in biases]) if biases else None
        widths = [part.out_features for part in parts]
        product = partial(linear, weight=weight, bias=bias) if make is None else make(weight, bias)

        def joined(x: Tensor) -> Sequence[Tensor]:
            return torch.split_with_sizes(product(x), widths, -1)

        return joined

    @property
    def _written_out(self) -> bool:
        """True if scores are to be computed that PyTorch's kernel does not know, or never shows."""
        extended = self.score_cap is not None or self.sinks is not None
        return extended or self.scores.watched or self.pattern.watched

    def _projected(self, source: Tensor) -> tuple[Tensor, Tensor]:
        keys = self.key(source)
        return keys, keys if self.value is self.key else self.value(source)

    def _queries(self, projected: Tensor, rotation: Rotation | None) -> Tensor:
        queries = self._normed(projected, self.n_heads, self.query_norm)
        queries = self.queries(queries)
        if rotation is None:
            return queries
        queries = rotation.apply(queries)
        return self.rotated_queries(queries) if self.rotated else queries

    def _keys_and_values(
        self, new: Tensor, carried: Tensor, rotation: Rotation | None, cache: KeyValues | None
    ) -> tuple[Tensor, Tensor]:
        """The keys and values of the key-value heads, those already in the cache included."""
        keys = self.keys(self._normed(new, self.n_kv_heads, self.key_norm))
        values = self.values(self._split(carried, self.n_kv_heads))
        if rotation is not None:
            keys = rotation.apply(keys)
            keys = self.rotated_keys(keys) if self.rotated else keys
        return (keys, values) if cache is None else cache.extend(keys, values)

    def _normed(self, projected: Tensor, n_heads: int, norm: nn.Module | None) -> Tensor:
        """Queries or keys by head, normalised where there is a norm for them."""
        if norm is None:
            return self._split(projected, n_heads)
        if self.qk_norm == "width":
            return self._split(norm(projected), n_heads)
        normed: Tensor = norm(self._split(projected, n_heads))
        return normed

    def _memory(self, memory: Tensor, cache: KeyValues | None) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory, which is projected once and then kept."""
        if cache is not None and cache.length:
            return cache.keys, cache.values
        return self._keys_and_values(*self._projected(memory), None, cache)

    def _folds(self, queries: Tensor) -> bool:
        """Return whether the heads of a group can stand where else several positions would."""
        return (
            self.n_heads != self.n_kv_heads
            and queries.shape[2] == 1
            and not self._written_out
            and type(self)._mix is MultiHeadAttention._mix
        )

    def _folded(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        padding_mask: Tensor | None,
        score_bias: Tensor | None,
    ) -> Tensor:
        """What one position mixes; all heads of a group ask the same keys, which need no copies."""
        rows, kv_heads, _, _ = keys.shape
        group = self.n_heads // kv_heads
        if self.window is not None and keys.shape[2] > self.window:
            keys, values = keys[:, :, -self.window :], values[:, :, -self.window :]
            padding_mask = None if padding_mask is None else padding_mask[:, -self.window :]
            score_bias = None if score_bias is None else score_bias[..., -self.window :]
        asked = queries.reshape(rows, kv_heads, group, -1)
        if score_bias is not None:
            score_bias = score_bias.expand(*score_bias.shape[:-3], self.n_heads, 1, -1)
            score_bias = score_bias.unflatten(-3, (kv_heads, group)).squeeze(-2)
        allowed = self._allowed(asked, keys, padding_mask, None)
        mixed = fused_attention(
            asked,
            keys,
            values,
            mask=allowed,
            score_bias=score_bias,
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
        )
        return mixed.reshape(rows, self.n_heads, 1, -1)

    def _mix(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        causal: bool,
        allowed: Tensor | None,
        score_bias: Tensor | None,
    ) -> Tensor:
        """The mixture of each head; written out when a tap is watched, in one kernel otherwise."""
        if self._written_out:
            scores = self._scores(queries, keys, score_bias)
            if self.window is not None:
                near = window_mask(*scores.shape[-2:], window=self.window, device=scores.device)
                allowed = near if allowed is None else allowed & near
            pattern = self._pattern(scores, causal, allowed)
            dropped = F.dropout(pattern, self.dropout, self.training)
            return attend(dropped, values.to(pattern.dtype).contiguous()).to(values.dtype)
        return fused_attention(
            queries,
            keys,
            values,
            causal=causal,
            mask=allowed,
            score_bias=score_bias,
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
            window=self.window,
        )

    def _scores(self, queries: Tensor, keys: Tensor, score_bias: Tensor | None) -> Tensor:
        if queries.dtype in (torch.float16, torch.bfloat16):  # as the kernel does
            queries, keys = queries.float(), keys.float()
        # Laid out head by head before the products: the kernel would copy them so, more slowly.
        scores = attention_scores(queries.contiguous(), keys.contiguous(), scale=self.scale)
        if score_bias is not None:
            scores = scores + checked_bias(score_bias, scores.shape).to(scores.dtype)
        if self.score_cap is not None:
            scores = self.score_cap * (scores / self.score_cap).tanh()
        return scores

    def _pattern(self, scores: Tensor, causal: bool, allowed: Tensor | None) -> Tensor:
        past = causal_mask(*scores.shape[-2:], device=scores.device) if causal else None
        if past is not None and allowed is None and self.sinks is None and not self.scores.watched:
            # Every query sees itself: no row is without keys.
            hidden = torch.zeros_like(past, dtype=scores.dtype).masked_fill(~past, -math.inf)
            scores = scores.add_(hidden)  # in place: nobody else holds these scores
            return self.pattern(scores.softmax(dim=-1))
        scores = self.scores(scores)
        if not (self.scores.watched and self.pattern.watched):
            return self.pattern(pattern_of(scores, past, allowed, self.sinks))
        # Whoever keeps both may compute the pattern later: from copies, since masks and weights may change.
        allowed = None if allowed is None else allowed.clone()
        sinks = None if self.sinks is None else self.sinks.detach().clone()
        again = partial(pattern_of, past=past, allowed=allowed, sinks=sinks)
        return show_derived(self.pattern, scores, again)

    def _split(self, projected: Tensor, n_heads: int) -> Tensor:
        if projected.shape[1] == 1:  # one position: both axes lie as they should
            return projected.view(projected.shape[0], n_heads, 1, self.d_head)
        return projected.view(*projected.shape[:-1], n_heads, self.d_head).transpose(1, 2)

    def _share(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)

    def _merge(self, mixed: Tensor) -> Tensor:
        if not self.head_outputs.watched:
            if mixed.shape[2] == 1:  # one position: nothing to transpose
                return self.output(mixed.reshape(mixed.shape[0], 1, -1))
            return self.output(mixed.transpose(1, 2).flatten(2))
        by_head = self.output.weight.unflatten(1, (self.n_heads, self.d_head))
        if self.output.wide and by_head.dtype == torch.float16:
            mixed, by_head = mixed.float(), by_head.float()
        outputs = self.head_outputs(torch.einsum("bhqe,dhe->bhqd", mixed, by_head))
        total = outputs.sum(dim=1)
        return total if self.output.bias is None else total + self.output.bias

    def _allowed(
        self, queries: Tensor, keys: Tensor, padding_mask: Tensor | None, mask: Tensor | None
    ) -> Tensor | None:
        allowed = None
        if mask is not None:
            shape = torch.Size((*queries.shape[:-1], keys.shape[-2]))
            allowed = checked_mask(mask, shape)
        if padding_mask is None:
            return allowed
        expected = (keys.shape[0], keys.shape[-2])
        if padding_mask.dtype != torch.bool or padding_mask.shape != expected:
            raise ValueError(
                f"padding_mask must be Boolean of shape (batch, key) = {expected}, True for real tokens; "
                f"got {padding_mask.dtype} of shape {tuple(padding_mask.shape)}"
            )
        real = padding_mask[:, None, None, :]
        return real if allowed is None else allowed & real

    def _check(
        self, x: Tensor, memory: Tensor | None, causal: bool, rotation: Rotation | None
    ) -> None:
        self._check_stream("x", x)
        if memory is None:
            return
        self._check_stream("memory", memory)
        if memory.shape[0] != x.shape[0]:
            raise ValueError(
                f"x and memory must hold the same batch, got {x.shape[0]} and {memory.shape[0]}"
            )
        if causal:
            raise ValueError("causal is for self-attention; cross-attention sees the whole memory")
        if rotation is not None:
            raise ValueError("rotation is for self-attention; a memory has positions of its own")

    def _check_stream(self, name: str, given: Tensor) -> None:
        if given.ndim != 3 or given.shape[-1] != self.d_model:
            raise ValueError(
                f"{name} must have shape (batch, position, d_model={self.d_model}), "
                f"got {tuple(given.shape)}"
            )


def _head_norm(
    kind: QueryKeyNorm, n_heads: int, d_head: int, norm: str, eps: float, offset: float
) -> nn.Module:
    """The norm of queries or keys."""
    if kind == "width":
        return make_norm(norm, n_heads * d_head, eps=eps, bias=False, offset=offset)
    if kind == "head":
        return make_norm(norm, d_head, eps=eps, bias=False, offset=offset)
    if kind == "heads":
        if norm not in ("layer", "layer_plain"):
            raise ValueError(f"qk_norm='heads' is for LayerNorm, got norm={norm!r}")
        return HeadNorm(make_norm("layer_plain", d_head, eps=eps), n_heads, d_head)
    raise ValueError(f"qk_norm must be 'none', 'head', 'heads' or 'width', got {kind!r}")


def _is_changed(part: nn.Module) -> bool:
    """Return whether calling a projection does more than its linear map."""
    hooked = part._forward_hooks or part._forward_pre_hooks
    return bool(type(part) is not Linear or hooked or "forward" in vars(part))
