"""Which attention stands in a block: `Config.attention` holds one of these descriptions.

A kind of attention is a frozen dataclass derived from `AttentionScheme`: it makes the module and counts what
is in it. `MultiHead` is the usual one, with all choices of the config; `parts.latent.Latent` keeps a short
vector in the place of keys and values. Cross-attention is always `MultiHead`.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from measured_transformer.parts.attention import MultiHeadAttention


@dataclass(frozen=True)
class AttentionScheme:
    """A kind of attention. The arguments called `config` are a `models.config.Config`."""

    def make(self, config: Any, *, rotated: bool = False) -> MultiHeadAttention:
        """The module; `rotated` says whether positions are rotary."""
        raise NotImplementedError

    def turned_width(self, config: Any) -> int:
        """Width of the vectors that rotary positions turn."""
        raise NotImplementedError

    def parameters(self, config: Any) -> int:
        """The number of its parameters."""
        raise NotImplementedError

    def products(self, config: Any, n_query: int, n_key: int, n_projected: int) -> int:
        """Multiplications in matrix products.

        Args:
            config: sizes and choices.
            n_query: positions that ask.
            n_key: positions that are asked, with those from a cache.
            n_projected: positions among them whose keys and values are made in this call.
        """
        raise NotImplementedError

    def check(self, config: Any) -> None:
        """Raise ValueError when the description does not fit the config."""


@dataclass(frozen=True)
class MultiHead(AttentionScheme):
    """`MultiHeadAttention` with the sizes and choices of the config."""

    def make(self, config: Any, *, rotated: bool = False) -> MultiHeadAttention:
        """The module; `rotated` says whether positions are rotary."""
        return MultiHeadAttention(
            config.d_model,
            config.n_heads,
            n_kv_heads=config.kv_heads,
            d_head=config.head_width,
            bias=config.attention_has_bias,
            dropout=config.dropout,
            scale=config.attention_scale,
            qkv_bias=config.qkv_has_bias,
            qk_norm=config.qk_norm,
            norm=config.norm,
            norm_eps=config.norm_eps,
            norm_offset=config.norm_offset,
            window=config.window,
            score_cap=config.score_cap,
            sinks=config.sinks,
            shared_kv=config.shared_kv,
            rotated=rotated,
            wide=config.wide_stream,
        )

    def turned_width(self, config: Any) -> int:
        """Width of a head."""
        return int(config.head_width)

    def parameters(self, config: Any) -> int:
        """The number of its parameters."""
        c = config
        queries, keys = c.n_heads * c.head_width, c.kv_heads * c.head_width
        inner = queries + (2 - c.shared_kv) * keys
        count = c.d_model * (queries + inner) + inner * c.qkv_has_bias
        count += c.d_model * c.attention_has_bias + c.n_heads * c.sinks
        if c.norm not in ("layer", "rms") and c.qk_norm != "heads":
            return int(count)
        norms = {"none": 0, "head": 2 * c.head_width}.get(c.qk_norm, queries + keys)
        return int(count + norms)

    def products(self, config: Any, n_query: int, n_key: int, n_projected: int) -> int:
        """Multiplications in matrix products; the arguments are those of `AttentionScheme.products`."""
        c = config
        queries, keys = c.n_heads * c.head_width, c.kv_heads * c.head_width
        made = (
            n_query * 2 * c.d_model * queries + n_projected * (2 - c.shared_kv) * c.d_model * keys
        )
        return int(made + 2 * n_query * n_key * queries)


MULTI_HEAD = MultiHead()
"""The usual attention."""


def whole_or_none(name: str, value: object, *, least: int = 1, optional: bool = True) -> None:
    """Raise ValueError unless this is a whole number from `least` on, or None where it may be."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        other = " or None" if optional else ""
        raise ValueError(f"{name} must be a whole number from {least} on{other}, got {value!r}")
