r"""Multi-head latent attention: keys and values of all heads are made from one short vector, which is kept.

$c_j = \text{Norm}(x_j W_{DKV})$ is the latent. Head h reads its keys and values off it, $k_j = c_j W_{UK}^h$
and $v_j = c_j W_{UV}^h$. As a rotation would stand between $W_{UK}$ and the query, a second, narrow key tells
the place: $r_j$ is turned by its position and shared by all heads, whose queries have as many further entries.

A cache holds $c_j$ and the turned $r_j$ alone. For one new position no key and no value of any head is made:
$q (c\,W_{UK})^\top = (q\,W_{UK}^\top)\,c^\top$, so what makes the keys goes to the query, weights mix latents,
and what makes the values comes after the mixture.

Source: DeepSeek-AI (2024), "DeepSeek-V2", section 2.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.attention_schemes import AttentionScheme, whole_or_none
from measured_transformer.parts.cache import KeyValues
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.norms import make_norm
from measured_transformer.parts.positions import Rotation
from measured_transformer.parts.tap import Tap


@dataclass(frozen=True)
class Latent(AttentionScheme):
    """Latent attention, for `Config.attention`.

    The config's `d_head` is the width of queries and keys without the entries that are turned. Every head has
    keys and values of its own: `n_kv_heads` has no part, and `qk_norm`, `shared_kv` and `qkv_bias` no place.
    Scores are scaled by 1/sqrt(d_head + d_rotary) when `attention_scale` is None.

    Attributes:
        rank: numbers of the latent.
        d_rotary: width of the key that is turned, and of the further entries of every query; even with rotary
            positions, else 0.
        d_value: width of a head's values; `d_head` when None.
        query_rank: numbers of a latent that queries are made from; None: they are made from the stream.
        normalised: whether latents are normalised before they are read.
        norm_eps: what is added under the root of those norms (DeepSeek: 1e-6, whatever the other norms have).

    >>> from measured_transformer.models.config import Config
    >>> from measured_transformer.models.decoder import Decoder
    >>> latent = Latent(rank=8, d_rotary=4)
    >>> config = Config(vocab=10, d_model=16, norm="rms", positions="rotary", attention=latent)
    >>> model = Decoder(config).eval()
    >>> cache = model.make_cache()
    >>> _ = model(torch.tensor([[1, 2, 3]]), cache=cache)
    >>> cache.layers[0].keys.shape, cache.layers[0].values.shape
    (torch.Size([1, 1, 3, 8]), torch.Size([1, 1, 3, 4]))
    """

    rank: int
    d_rotary: int = 0
    d_value: int | None = None
    query_rank: int | None = None
    normalised: bool = True
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            ValueError: when one is no whole number, or not positive where it must be.
        """
        whole_or_none("rank", self.rank, optional=False)
        whole_or_none("d_rotary", self.d_rotary, least=0, optional=False)
        whole_or_none("d_value", self.d_value)
        whole_or_none("query_rank", self.query_rank)

    def make(self, config: Any, *, rotated: bool = False) -> LatentAttention:
        """The module."""
        return LatentAttention(
            config.d_model,
            config.n_heads,
            config.head_width,
            self,
            bias=config.attention_has_bias,
            dropout=config.dropout,
            scale=config.attention_scale,
            norm=config.norm,
            norm_offset=config.norm_offset,
            window=config.window,
            score_cap=config.score_cap,
            sinks=config.sinks,
            rotated=rotated,
        )

    def turned_width(self, config: Any) -> int:
        """Width of the vectors that are turned."""
        return self.d_rotary

    def parameters(self, config: Any) -> int:
        """The number of parameters."""
        c, heads, norm = config, config.n_heads, self._norm_parameters
        asking, value = heads * (c.head_width + self.d_rotary), heads * self._value_width(c)
        if self.query_rank is None:
            count = c.d_model * asking
        else:
            count = self.query_rank * (c.d_model + c.attention_has_bias + asking)
            count += norm(c.norm, self.query_rank)
        count += (self.rank + self.d_rotary) * (c.d_model + c.attention_has_bias)
        count += norm(c.norm, self.rank) + self.rank * (heads * c.head_width + value)
        count += value * c.d_model + c.d_model * c.attention_has_bias
        return int(count + heads * c.sinks)

    def products(self, config: Any, n_query: int, n_key: int, n_projected: int) -> int:
        """Multiplications in matrix products, with keys and values of every head made from the latents."""
        c, heads = config, config.n_heads
        asking, value = heads * (c.head_width + self.d_rotary), heads * self._value_width(c)
        queries = c.d_model * asking
        if self.query_rank is not None:
            queries = self.query_rank * (c.d_model + asking)
        latents = n_projected * (self.rank + self.d_rotary) * c.d_model
        made = n_key * self.rank * (heads * c.head_width + value)
        mixing = n_query * n_key * (asking + value)
        return int(n_query * (queries + value * c.d_model) + latents + made + mixing)

    def check(self, config: Any) -> None:
        """Raise ValueError when the description does not fit the config."""
        c = config
        if c.qk_norm != "none" or c.shared_kv or c.qkv_bias:
            raise ValueError(
                "latent attention is for qk_norm='none', shared_kv=False and qkv_bias=None or False; got "
                f"qk_norm={c.qk_norm!r}, shared_kv={c.shared_kv} and qkv_bias={c.qkv_bias}"
            )

    def _value_width(self, config: Any) -> int:
        return int(config.head_width) if self.d_value is None else self.d_value

    def _norm_parameters(self, name: str, width: int) -> int:
        if not self.normalised:
            return 0
        norm = make_norm(name, width, bias=False)
        return sum(parameter.numel() for parameter in norm.parameters())


class LatentAttention(MultiHeadAttention):
    """Attention whose keys and values are made from a latent, which is what a cache holds of a position.

    Weights: `down` makes the latent and `rotary_key` the key that is turned; rows `h * d_head` to
    `(h + 1) * d_head` of `up_key.weight` (and those of width `d_value` of `up_value.weight`) belong to head h,
    as do rows `h * (d_head + d_rotary)` to `(h + 1) * (d_head + d_rotary)` of `query.weight`, of which the last
    `d_rotary` are turned. With a latent for queries, `query_down` makes it and `query` reads it. Biases stand
    at what reads the stream into a latent and at the output.

    Taps: those of `MultiHeadAttention`, and `latent` (batch position rank; as it is kept). `queries` are of
    width d_head + d_rotary, `keys` of width d_head and `values` of width d_value; the latter two are made anew
    in every call, also for positions from a cache. `rotated_queries` and `rotated_keys` (batch head position
    d_head + d_rotary) are those whose products are the scores.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int,
        settings: Latent,
        *,
        bias: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
        norm: str = "rms",
        norm_offset: float = 0.0,
        window: int | None = None,
        score_cap: float | None = None,
        sinks: bool = False,
        rotated: bool = False,
    ) -> None:
        """Make the projections.

        Args:
            d_model: width of the stream read and written.
            n_heads: number of heads.
            d_head: width of a head's queries and keys without what is turned.
            settings: further sizes.
            bias: whether what reads the stream into a latent, and the output, have biases.
            scale: factor on the dot products; 1/sqrt(d_head + d_rotary) when not given.
            norm, norm_offset: which norm the latents have, see `parts.norms.make_norm`.
            dropout, window, score_cap, sinks, rotated: as in `MultiHeadAttention`.

        Raises:
            ValueError: when a size is not positive.
        """
        d_value = d_head if settings.d_value is None else settings.d_value
        asking = d_head + settings.d_rotary
        super().__init__(
            d_model,
            n_heads,
            d_head=d_value,
            bias=bias,
            dropout=dropout,
            scale=1 / math.sqrt(asking) if scale is None else scale,
            window=window,
            score_cap=score_cap,
            sinks=sinks,
            rotated=rotated,
        )
        self.rank, self.d_rotary, self.d_key = settings.rank, settings.d_rotary, d_head
        source, self.query_down, self.query_norm = d_model, None, None
        if settings.query_rank is not None:
            source = settings.query_rank
            self.query_down = Linear(d_model, source, bias=bias)
            self.query_norm = _latent_norm(norm, source, settings, norm_offset)
        self.query = Linear(source, n_heads * asking, bias=False)
        self.down = Linear(d_model, self.rank, bias=bias)
        self.latent_norm = _latent_norm(norm, self.rank, settings, norm_offset)
        self.rotary_key = Linear(d_model, self.d_rotary, bias=bias) if self.d_rotary else None
        self.up_key = Linear(self.rank, n_heads * d_head, bias=False)
        self.up_value = Linear(self.rank, n_heads * d_value, bias=False)
        self.latent = Tap()

    def _make_projections(self, bias: bool, shared_kv: bool) -> None:
        """None of these: keys and values are made from the latent."""

    def join_projections(
        self, make: Callable[[Tensor, Tensor | None], Callable[[Tensor], Tensor]] | None = None
    ) -> Callable[[Tensor], Sequence[Tensor]] | None:
        """None: there is no product that could be one for queries, keys and values."""
        return None

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
        """The sum that all heads add to the stream; arguments and errors as in `MultiHeadAttention.forward`.

        Raises:
            ValueError: also when there is a memory: latent attention reads its own sequence.
        """
        self._check(x, memory, causal, rotation)
        if memory is not None:
            raise ValueError("latent attention reads its own sequence, got a memory")
        queries = self._asking(x, rotation)
        latents, turned = self.latent(self.latent_norm(self.down(x)))[:, None], self._turned(x)
        if rotation is not None:
            turned = rotation.apply(turned)
        if cache is not None:
            latents, turned = cache.extend(latents, turned)
        if mask is None and self._absorbs(queries):
            return self._absorbed(queries, latents, turned, padding_mask, score_bias)
        keys, values = (
            layer(latents[:, 0]).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for layer in (self.up_key, self.up_value)
        )
        keys, values = self.keys(keys), self.values(values)
        keys = torch.cat((keys, turned.expand(-1, self.n_heads, -1, -1)), dim=-1)
        keys = self.rotated_keys(keys) if self.rotated else keys
        allowed = self._allowed(queries, keys, padding_mask, mask)
        # The kernel takes values as wide as keys: what is missing is filled with zeros and cut off again.
        wide = F.pad(values, (0, max(0, keys.shape[-1] - self.d_head)))
        mixed = self._mix(queries, keys, wide, causal, allowed, score_bias)
        return self.out(self._merge(self.mixed(mixed[..., : self.d_head])))

    def _asking(self, x: Tensor, rotation: Rotation | None) -> Tensor:
        if self.query_down is not None:
            x = self.query_down(x)
            x = x if self.query_norm is None else self.query_norm(x)
        queries = self.query(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        queries = self.queries(queries)
        if rotation is not None:
            still, turning = queries.split((self.d_key, self.d_rotary), dim=-1)
            queries = torch.cat((still, rotation.apply(turning)), dim=-1)
        return self.rotated_queries(queries) if self.rotated else queries

    def _turned(self, x: Tensor) -> Tensor:
        """The key that all heads share, before its rotation: (batch, 1, position, d_rotary)."""
        if self.rotary_key is None:
            return x.new_empty(len(x), 1, x.shape[1], 0)
        key: Tensor = self.rotary_key(x)[:, None]
        return key

    def _absorbs(self, queries: Tensor) -> bool:
        """Whether nobody wants keys and values of the heads, and one position alone asks."""
        watched = self.keys.watched or self.values.watched
        watched = watched or (self.rotated and self.rotated_keys.watched)
        return queries.shape[2] == 1 and not watched and not self._written_out

    def _absorbed(
        self,
        queries: Tensor,
        latents: Tensor,
        turned: Tensor,
        padding_mask: Tensor | None,
        score_bias: Tensor | None,
    ) -> Tensor:
        """What one position writes: all heads ask the latents, which are keys and values at once."""
        still, turning = queries.split((self.d_key, self.d_rotary), dim=-1)
        by_head = self.up_key.weight.unflatten(0, (self.n_heads, self.d_key))
        asking = torch.cat((torch.einsum("bhqe,her->bhqr", still, by_head), turning), dim=-1)
        both = torch.cat((latents, turned), dim=-1)
        mixed = self._folded(asking, both, both, padding_mask, score_bias)[..., : self.rank]
        by_head = self.up_value.weight.unflatten(0, (self.n_heads, self.d_head))
        values = torch.einsum("bhqr,her->bhqe", mixed, by_head)
        return self.out(self._merge(self.mixed(values)))


def _latent_norm(name: str, width: int, settings: Latent, offset: float) -> nn.Module:
    if not settings.normalised:
        return nn.Identity()
    return make_norm(name, width, eps=settings.norm_eps, bias=False, offset=offset)
