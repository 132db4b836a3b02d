"""Scaled dot-product attention as functions, and multi-head attention as the module that owns the weights.

Axes: `batch`; `head`; `query`, the positions that ask; `key`, the positions that are asked; `d_model`, the
width of the stream; `d_head`, the width of one head. Masks are Boolean and say where attention is *allowed*.

The module runs PyTorch's fused kernel as long as nobody looks at its scores or pattern, and the explicit
softmax below as soon as somebody does. Both compute the same function.

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

from measured_transformer.parts.cache import KeyValues
from measured_transformer.parts.derived import show_derived
from measured_transformer.parts.kernels.linear import Linear, linear
from measured_transformer.parts.norms import HeadNorm, make_norm
from measured_transformer.parts.part import Part
from measured_transformer.parts.positions import Rotation
from measured_transformer.parts.tap import Tap

QueryKeyNorm = Literal["none", "head", "heads", "width"]
"""What a norm of queries and keys goes over, see `MultiHeadAttention`."""


def attention_scores(
    queries: Float[Tensor, "*batch query d_head"],
    keys: Float[Tensor, "*batch key d_head"],
    *,
    scale: float | None = None,
) -> Float[Tensor, "*batch query key"]:
    r"""Score each query against each key: $s_{ij} = \text{scale} \cdot q_i \cdot k_j$.

    Args:
        queries: one vector per asking position.
        keys: one vector per position that can be attended to.
        scale: factor on the dot product; $1/\sqrt{d_\text{head}}$ when not given.

    Raises:
        ValueError: when queries and keys have different widths.
    """
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            "queries and keys must have the same width d_head, got shapes "
            f"{tuple(queries.shape)} and {tuple(keys.shape)}"
        )
    if scale is None:
        scale = 1 / math.sqrt(queries.shape[-1])
    return (scale * queries) @ keys.transpose(-2, -1)


def attention_pattern(
    scores: Float[Tensor, "*batch query key"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch query key"]:
    """Turn scores into weights: each row non-negative, summing to one, zero where the mask forbids.

    Args:
        scores: one row per query.
        mask: True where attention is allowed; any shape that broadcasts to that of `scores`. A query
            that may attend to nothing gets a row of zeros (and passes no gradient), not NaN.

    Raises:
        ValueError: when the mask is not Boolean or does not broadcast.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    mask = _checked_mask(mask, scores.shape)
    nothing_allowed = ~mask.any(dim=-1, keepdim=True)
    scores = scores.masked_fill(~mask & ~nothing_allowed, -math.inf)
    return scores.softmax(dim=-1).masked_fill(nothing_allowed, 0.0)


def attend(
    pattern: Float[Tensor, "*batch query key"],
    values: Float[Tensor, "*batch key d_head"],
) -> Float[Tensor, "*batch query d_head"]:
    """Mix the values: each query receives the average of all values, weighted by its row.

    Raises:
        ValueError: when the pattern has not one column for each value.
    """
    if pattern.shape[-1] != values.shape[-2]:
        raise ValueError(
            "the pattern needs one column for each value, got shapes "
            f"{tuple(pattern.shape)} and {tuple(values.shape)}"
        )
    return pattern @ values


def fused_attention(
    queries: Float[Tensor, "*batch query d_head"],
    keys: Float[Tensor, "*batch key d_head"],
    values: Float[Tensor, "*batch key d_value"],
    *,
    causal: bool = False,
    mask: Bool[Tensor, "..."] | None = None,
    score_bias: Float[Tensor, "..."] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    window: int | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """Scores, pattern and mixture in one kernel that never stores the pattern.

    Args:
        queries, keys, values: as in `attention_scores` and `attend`.
        causal: let query i of the last `query` positions see the keys up to its own place.
        window: as in `window_mask`; all keys when None.
        mask: True where attention is allowed, as in `attention_pattern`.
        score_bias: added to the scores before the softmax (ALiBi); broadcasts to `(*batch, query, key)`.
        scale: as in `attention_scores`.
        dropout: probability of dropping a weight.

    Raises:
        ValueError: when batches, widths or numbers do not fit, when the mask is not Boolean, when mask or
            bias does not broadcast, or when there are more queries than keys under `causal`.
    """
    of_queries, of_keys, of_values = queries.shape, keys.shape, values.shape
    if (
        not of_queries[:-2] == of_keys[:-2] == of_values[:-2]
        or of_queries[-1] != of_keys[-1]
        or of_keys[-2] != of_values[-2]
    ):
        raise ValueError(
            "queries, keys and values must share their leading axes, queries and keys their width, keys "
            "and values their number; got shapes "
            f"{tuple(queries.shape)}, {tuple(keys.shape)} and {tuple(values.shape)}"
        )
    n_query, n_key = of_queries[-2], of_keys[-2]
    causal = causal and n_query != 1  # the last position has nothing ahead of it to hide
    shape = torch.Size((*of_queries[:-1], n_key))
    if window is not None and n_key > window:
        near = window_mask(n_query, n_key, window=window, device=queries.device)
        mask = near if mask is None else _checked_mask(mask, shape) & near
    if causal and mask is None and score_bias is None and n_query == n_key:
        return F.scaled_dot_product_attention(
            queries, keys, values, dropout_p=dropout, is_causal=True, scale=scale
        )
    if mask is None and score_bias is None and not causal:
        return F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, scale=scale)
    allowed = None if mask is None else _checked_mask(mask, shape)
    if causal:
        past = causal_mask(n_query, n_key, device=queries.device)
        allowed = past if allowed is None else allowed & past
    nothing_allowed = None
    if allowed is not None:
        # Kernels differ in what they make of a row without keys: let it see all, and drop what it saw.
        nothing_allowed = ~allowed.any(dim=-1, keepdim=True)
        allowed = allowed | nothing_allowed
    added: Tensor | None = allowed
    if score_bias is not None:
        added = _checked_bias(score_bias, shape).to(queries.dtype)
        added = added if allowed is None else added.masked_fill(~allowed, -math.inf)
    mixed = F.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=None if added is None else added.expand(shape),
        dropout_p=dropout,
        scale=scale,
    )
    return mixed if nothing_allowed is None else mixed.masked_fill(nothing_allowed, 0.0)


def causal_mask(
    n_query: int, n_key: int | None = None, *, device: torch.device | None = None
) -> Bool[Tensor, "query key"]:
    """Where attention is allowed when nobody may look ahead.

    The queries are the *last* `n_query` of the `n_key` positions, so a block of queries that continues
    earlier keys sees all of them. (`is_causal` of PyTorch's kernel aligns the other way.)

    Raises:
        ValueError: when there are more queries than keys.

    >>> causal_mask(2, 4).int()
    tensor([[1, 1, 1, 0],
            [1, 1, 1, 1]], dtype=torch.int32)
    """
    n_key = n_query if n_key is None else n_key
    if n_query > n_key:
        raise ValueError(
            f"causal attention expects at most as many queries as keys, got {n_query} queries and "
            f"{n_key} keys; queries are the last of the key positions"
        )
    allowed = torch.ones(n_query, n_key, dtype=torch.bool, device=device)
    return allowed.tril(n_key - n_query)


def window_mask(
    n_query: int, n_key: int | None = None, *, window: int, device: torch.device | None = None
) -> Bool[Tensor, "query key"]:
    """Where attention is allowed when a query sees only the keys that are less than `window` away.

    The queries are the *last* `n_query` of the `n_key` positions. Together with a causal mask, a query sees
    `window` keys, itself among them.

    Raises:
        ValueError: when the window is not positive, or there are more queries than keys.

    >>> (causal_mask(4) & window_mask(4, window=2)).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    """
    n_key = n_query if n_key is None else n_key
    if window < 1 or n_query > n_key:
        raise ValueError(
            "expected a positive window and at most as many queries as keys, got "
            f"window={window}, {n_query} queries and {n_key} keys"
        )
    key = torch.arange(n_key, device=device)
    return (key[n_key - n_query :, None] - key).abs() < window


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
            scores = scores + _checked_bias(score_bias, scores.shape).to(scores.dtype)
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
            return self.pattern(_weights(scores, past, allowed, self.sinks))
        # Whoever keeps both may compute the pattern later: from copies, since masks and weights may change.
        allowed = None if allowed is None else allowed.clone()
        sinks = None if self.sinks is None else self.sinks.detach().clone()
        again = partial(_weights, past=past, allowed=allowed, sinks=sinks)
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
            allowed = _checked_mask(mask, shape)
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


def _weights(
    scores: Tensor, past: Tensor | None, allowed: Tensor | None, sinks: Tensor | None
) -> Tensor:
    """The pattern of these scores: of keys that lie in the past and are allowed, where there are such limits.

    With sinks, the keys share a softmax with the sink of their head.
    """
    if past is not None and allowed is None and sinks is None:  # every query sees itself
        return torch.where(past, scores, -math.inf).softmax(dim=-1)
    if past is not None:
        allowed = past if allowed is None else allowed & past
    if sinks is None:
        return attention_pattern(scores, mask=allowed)
    sink = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    if allowed is not None:
        allowed = F.pad(allowed.expand(scores.shape), (1, 0), value=True)
    return attention_pattern(torch.cat((sink, scores), dim=-1), mask=allowed)[..., 1:]


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


def _checked_mask(mask: Tensor, shape: torch.Size) -> Tensor:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"mask must be Boolean, True where attention is allowed; got {mask.dtype}. "
            "Turn a 0/1 mask into one with mask.bool(), an additive one with mask == 0"
        )
    _check_broadcast("mask", mask, shape)
    return mask


def _checked_bias(bias: Tensor, shape: torch.Size) -> Tensor:
    if not bias.is_floating_point():
        raise ValueError(
            f"score_bias must hold floating-point numbers to add to the scores; got {bias.dtype}. "
            "What is allowed goes into mask"
        )
    _check_broadcast("score_bias", bias, shape)
    return bias


def _check_broadcast(name: str, given: Tensor, shape: torch.Size) -> None:
    try:
        fits = torch.broadcast_shapes(given.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} must broadcast to (..., query, key) = {tuple(shape)}, got {tuple(given.shape)}"
        )
