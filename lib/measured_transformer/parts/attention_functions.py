"""Scaled dot-product attention as functions: scores, the pattern of weights, and the mixture of values.

Axes: `query`, the positions that ask; `key`, the positions that are asked; `d_head`, the width of one head.
`fused_attention` computes all three in one kernel, and `pattern_of` the pattern under all limits that a model
has.

Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.parts.masks import causal_mask, checked_bias, checked_mask, window_mask


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
    mask = checked_mask(mask, scores.shape)
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
        mask = near if mask is None else checked_mask(mask, shape) & near
    if causal and mask is None and score_bias is None and n_query == n_key:
        return F.scaled_dot_product_attention(
            queries, keys, values, dropout_p=dropout, is_causal=True, scale=scale
        )
    if mask is None and score_bias is None and not causal:
        return F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, scale=scale)
    allowed = None if mask is None else checked_mask(mask, shape)
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
        added = checked_bias(score_bias, shape).to(queries.dtype)
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


def pattern_of(
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
