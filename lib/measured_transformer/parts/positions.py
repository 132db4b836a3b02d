r"""Position schemes: how a model learns the order of its tokens.

Six schemes: sinusoidal and learned vectors that are added to the embeddings; rotary angles that turn
queries and keys; ALiBi's penalty that grows with distance; T5's learned bias for each distance; and none.

Sinusoidal: position $p$ has for each pair $i < d/2$ the two entries $\sin(\omega_i p)$ and $\cos(\omega_i p)$
at dimensions $2i$ and $2i+1$, with $\omega_i = \text{base}^{-2i/d}$ (Vaswani et al. 2017, section 3.5). Their
own code, and Marian, have all sines in the first half of the dimensions and all cosines in the second.
Rotary: the pair $i$ of a query or key at position $p$ is turned by the angle $\omega_i p$ (Su et al. 2021).
ALiBi: head $h$ subtracts $m_h |i - j|$ from the score of query $i$ and key $j$ (Press et al. 2022).
Relative: head $h$ adds a learned number for the bucket that $j - i$ falls in (Raffel et al. 2020, section 2.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from measured_transformer.parts.part import Part

if TYPE_CHECKING:
    from measured_transformer.parts.rotary_scaling import RotaryScaling

Pairing = Literal["interleaved", "halves"]
"""Which two entries a rotation turns together, see `Rotation`; which belong to one frequency of a sinusoid."""


def frequencies(d: int, *, base: float = 10000.0) -> Float[Tensor, "pair"]:
    r"""The angular frequencies $\omega_i = \text{base}^{-2i/d}$ in radians per position, float64.

    Raises:
        ValueError: when `d` is odd (each frequency needs two dimensions) or `base` is not above one.

    >>> frequencies(4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    if d < 2 or d % 2:
        raise ValueError(f"sines and cosines come in pairs: the width must be even, got {d}")
    if base <= 1:
        raise ValueError(f"base must be greater than one, got {base}")
    return base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)


def _angles(positions: Tensor, d: int, base: float) -> Tensor:
    # float64 on the CPU: angles of far positions lose their digits in float32, and not every
    # accelerator knows float64.
    return positions.detach().to("cpu", torch.float64)[:, None] * frequencies(d, base=base)


def sinusoidal_encoding(
    positions: int | Tensor,
    d_model: int,
    *,
    base: float = 10000.0,
    pairing: Pairing = "interleaved",
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "position d_model"]:
    """The sinusoidal vectors of the given positions, sines at even dimensions and cosines at odd ones.

    Args:
        positions: a number n, meaning positions 0 to n - 1, or a vector of positions (fractions allowed).
        d_model: width, an even number.
        base: sets the slowest frequency; 10000 in Vaswani et al.
        pairing: 'interleaved', or 'halves' for all sines first and then all cosines.
        dtype: of the result; computed in float64 whatever it is. PyTorch's default when not given.

    Raises:
        ValueError: when `d_model` is odd, the pairing is unknown, or `positions` is not a vector.

    >>> sinusoidal_encoding(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    if isinstance(positions, int):
        positions = torch.arange(positions)
    if positions.ndim != 1:
        raise ValueError(f"positions must be a vector, got shape {tuple(positions.shape)}")
    _check_pairing(pairing)
    angles = _angles(positions, d_model, base)
    axis = -1 if pairing == "interleaved" else -2
    encoding = torch.stack((angles.sin(), angles.cos()), dim=axis).flatten(-2)
    return encoding.to(positions.device, dtype or torch.get_default_dtype())


@dataclass(frozen=True)
class Rotation:
    """Rotary angles of a run of positions, ready to be applied to queries and keys.

    Attributes:
        cos, sin: (position, d_head / 2), cosine and sine of each position's angles; with one more axis in
            front, (batch, position, d_head / 2), where the rows of a batch stand at different positions.
        pairing: which two entries form a pair: neighbours (`interleaved`: 0 with 1, 2 with 3, as in the
            RoFormer paper and in Meta's own code and weights of Llama) or halves (`halves`: 0 with d/2, as in
            GPT-NeoX and in Llama's weights as converted for Hugging Face). The two differ by a fixed
            permutation of the dimensions: weights trained with one need that one, or their rows of W_Q and
            W_K reordered, see `interop.pairing.convert_pairing`.
        unturned: number of entries at the end of each query and key that are left as they are.
    """

    cos: Float[Tensor, "*batch position pair"]
    sin: Float[Tensor, "*batch position pair"]
    pairing: Pairing = "interleaved"
    unturned: int = 0

    def apply(
        self, x: Float[Tensor, "batch head position d_head"]
    ) -> Float[Tensor, "batch head position d_head"]:
        """Turn each pair of `x` by the angle of its position. Lengths are kept; `x` is not changed.

        Raises:
            ValueError: when `x` has another number of positions or another width than the angles, or
                another number of rows where the angles are given for each row.
        """
        if self.unturned:
            turning, still = x.split((x.shape[-1] - self.unturned, self.unturned), dim=-1)
            turned = Rotation(self.cos, self.sin, self.pairing).apply(turning)
            return torch.cat((turned, still), dim=-1)
        n_positions, n_pairs = self.cos.shape[-2:]
        if x.shape[-2:] != (n_positions, 2 * n_pairs):
            raise ValueError(
                f"this rotation is for (position, d_head) = {(n_positions, 2 * n_pairs)}, "
                f"got {tuple(x.shape[-2:])}"
            )
        cos, sin = self.cos.to(x), self.sin.to(x)
        if cos.ndim == 3:
            if cos.shape[0] not in (1, x.shape[0]):
                raise ValueError(f"this rotation is for a batch of {len(cos)}, got {len(x)} rows")
            cos, sin = cos[:, None], sin[:, None]  # the same for every head
        if self.pairing == "halves":
            first, second = x.chunk(2, dim=-1)
            return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
        first, second = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1)
        return turned.flatten(-2)


def rotation(
    positions: int | Tensor,
    d_head: int,
    *,
    base: float = 10000.0,
    pairing: Pairing = "interleaved",
    dtype: torch.dtype | None = None,
) -> Rotation:
    """The rotary angles of the given positions.

    Args:
        positions: a number n, meaning positions 0 to n - 1, or a vector of positions (fractions allowed:
            dividing them by a factor is position interpolation).
        d_head: width of a head, an even number.
        base, pairing: as in `frequencies` and `Rotation`.
        dtype: of cosines and sines; the angles are computed in float64 whatever it is.

    Raises:
        ValueError: when `d_head` is odd, the pairing is unknown, or `positions` is not a vector.
    """
    _check_pairing(pairing)
    if isinstance(positions, int):
        positions = torch.arange(positions)
    if positions.ndim != 1:
        raise ValueError(f"positions must be a vector, got shape {tuple(positions.shape)}")
    angles = _angles(positions, d_head, base)
    device, dtype = positions.device, dtype or torch.get_default_dtype()
    return Rotation(angles.cos().to(device, dtype), angles.sin().to(device, dtype), pairing)


def alibi_slopes(n_heads: int) -> Float[Tensor, "head"]:
    r"""ALiBi's slope of each head, float64: a geometric series that starts at $2^{-8/n}$ and has that ratio.

    For a head count that is no power of two, the paper's code takes the slopes of the next lower power of
    two and fills up with every other slope of the next higher one; so does this.

    Raises:
        ValueError: when there is not at least one head.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039], dtype=torch.float64)
    """
    if n_heads < 1:
        raise ValueError(f"expected at least one head, got {n_heads}")
    lower = 2 ** (n_heads.bit_length() - 1)
    slopes = 2.0 ** (-8 / lower * torch.arange(1, lower + 1, dtype=torch.float64))
    if lower == n_heads:
        return slopes
    finer = 2.0 ** (-8 / (2 * lower) * torch.arange(1, 2 * lower + 1, 2, dtype=torch.float64))
    return torch.cat((slopes, finer[: n_heads - lower]))


def alibi_bias(
    slopes: Float[Tensor, "head"], n_query: int, n_key: int | None = None
) -> Float[Tensor, "head query key"]:
    """What ALiBi adds to the scores: minus slope times distance. The queries are the last of the keys.

    Raises:
        ValueError: when there are more queries than keys.

    >>> alibi_bias(torch.tensor([1.0]), 3)
    tensor([[[ 0., -1., -2.],
             [-1.,  0., -1.],
             [-2., -1.,  0.]]])
    """
    n_key = n_query if n_key is None else n_key
    if n_query > n_key:
        raise ValueError(
            f"ALiBi's queries are the last of the key positions, so expected at most as many queries as "
            f"keys; got {n_query} queries and {n_key} keys"
        )
    keys = torch.arange(n_key, device=slopes.device)
    return alibi_bias_between(slopes, keys[n_key - n_query :], keys)


def alibi_bias_between(
    slopes: Float[Tensor, "head"],
    queries: Int[Tensor, "*batch query"],
    keys: Int[Tensor, "*batch key"],
) -> Float[Tensor, "*batch head query key"]:
    """ALiBi's bias for queries and keys at any positions, which may differ from row to row."""
    distance = (queries[..., :, None] - keys[..., None, :]).abs()
    return slopes[:, None, None] * (0 - distance[..., None, :, :])


def relative_buckets(
    distance: Int[Tensor, "..."],
    *,
    n_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Int[Tensor, "..."]:
    """T5's bucket of each distance: one for each small distance, wider and wider ones for larger.

    Half of the buckets hold one distance each; the other half grow geometrically up to `max_distance`,
    and the last one takes everything beyond.

    Args:
        distance: position of the key minus position of the query.
        n_buckets: number of buckets.
        max_distance: from here on all distances are one.
        bidirectional: whether keys after the query have half of the buckets for themselves; otherwise they
            count as distance zero (a causal mask hides them).

    Raises:
        ValueError: when the buckets are too few or `max_distance` lies among the single distances.

    >>> relative_buckets(torch.tensor([0, -1, -7, -20, -500, 1]), n_buckets=16, bidirectional=False)
    tensor([ 0,  1,  7, 10, 15,  0])
    """
    n_exact = n_buckets // (4 if bidirectional else 2)
    if n_exact < 1 or max_distance <= n_exact:
        raise ValueError(
            f"expected at least {4 if bidirectional else 2} buckets and a max_distance beyond the "
            f"{n_exact} single distances, got n_buckets={n_buckets} and max_distance={max_distance}"
        )
    later = torch.zeros_like(distance)
    if bidirectional:
        n_buckets //= 2
        later = (distance > 0) * n_buckets
        behind = distance.abs()
    else:
        behind = (0 - distance).clamp(min=0)
    # float32 like the models that were trained with it: a boundary may fall one off in exact arithmetic.
    ratio = torch.log(behind.clamp(min=1).to(torch.float32) / n_exact) / math.log(
        max_distance / n_exact
    )
    wide = (n_exact + (ratio * (n_buckets - n_exact)).to(distance.dtype)).clamp(max=n_buckets - 1)
    return later + torch.where(behind < n_exact, behind, wide)


class RelativeBias(Part):
    """A learned number for each head and bucket of distances, added to the scores (T5)."""

    def __init__(
        self, n_heads: int, *, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool
    ) -> None:
        """Make the table; the arguments are those of `relative_buckets`, which checks them."""
        super().__init__()
        self.max_distance, self.bidirectional = max_distance, bidirectional
        self.table = nn.Parameter(torch.randn(n_buckets, n_heads))
        self.forward(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))

    def forward(
        self, queries: Int[Tensor, "*batch query"], keys: Int[Tensor, "*batch key"]
    ) -> Float[Tensor, "*batch head query key"]:
        """The bias for queries and keys at these positions, which may differ from row to row."""
        buckets = relative_buckets(
            keys[..., None, :] - queries[..., :, None],
            n_buckets=len(self.table),
            max_distance=self.max_distance,
            bidirectional=self.bidirectional,
        )
        return self.table[buckets].movedim(-1, -3)


class AlibiBias(Part):
    """ALiBi's penalty for distance, added to the scores; nothing is learned."""

    def __init__(self, n_heads: int) -> None:
        """Keep the number of heads. Raises ValueError when there is none."""
        super().__init__()
        alibi_slopes(n_heads)
        self.n_heads = n_heads
        self.register_buffer("like", torch.empty(0), persistent=False)  # tells dtype and device
        self.like: Tensor

    def forward(
        self, queries: Int[Tensor, "*batch query"], keys: Int[Tensor, "*batch key"]
    ) -> Float[Tensor, "*batch head query key"]:
        """The bias for queries and keys at these positions, which may differ from row to row."""
        slopes = alibi_slopes(self.n_heads).to(self.like)
        return alibi_bias_between(slopes, queries, keys)


class _FixedRows(Part):
    """Rows computed from their number on first use and cached, but never saved or copied."""

    keeps_state = True

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("like", torch.empty(0), persistent=False)  # tells dtype and device
        self.like: Tensor
        self.table: Tensor | None = None

    def make(self, n: int, dtype: torch.dtype) -> Float[Tensor, "position width"]:
        """Rows 0 to n - 1 at full precision, on the CPU."""
        raise NotImplementedError

    def rows(self, positions: int | Tensor, offset: int, below: int | None) -> Tensor:
        """The rows of `positions`; the table grows when it must."""
        if below is None or isinstance(positions, int):
            below = _end(positions, offset)
        table = self.table
        if table is None or table.shape[0] < below:
            with torch.inference_mode(False):  # what inference makes, training may use
                longer = 2 ** max(0, below - 1).bit_length()
                table = self.make(longer, self.like.dtype).to(self.like.device)
            self.table = table
        return table[offset:below] if isinstance(positions, int) else table[positions]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _FixedRows:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.table = None  # rows of another precision are made anew, not converted
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "table": None}


class SinusoidalPositions(_FixedRows):
    """Fixed sinusoidal vectors for any length; nothing is learned and nothing is stored in a checkpoint."""

    def __init__(
        self, d_model: int, *, base: float = 10000.0, pairing: Pairing = "interleaved"
    ) -> None:
        super().__init__()
        self.d_model, self.base, self.pairing = d_model, base, pairing
        self.make(1, torch.float64)

    def make(self, n: int, dtype: torch.dtype) -> Float[Tensor, "position width"]:
        """The vectors of positions 0 to n - 1. Raises ValueError when `d_model` is odd."""
        return sinusoidal_encoding(
            n, self.d_model, base=self.base, pairing=self.pairing, dtype=dtype
        )

    def forward(
        self,
        positions: int | Int[Tensor, "*batch position"],
        *,
        offset: int = 0,
        below: int | None = None,
    ) -> Float[Tensor, "*batch position d_model"]:
        """The vectors of the given positions.

        Args:
            positions: a number n, meaning positions `offset` to `offset + n - 1`, or the positions.
            offset: the first position, where `positions` is a number.
            below: a number that no position reaches, where the caller knows one; saves looking.

        Raises:
            ValueError: when a position is negative.
        """
        return self.rows(positions, offset, below)


class RotaryPositions(_FixedRows):
    """Rotary angles for any length: cosines and sines are computed once and handed to every block."""

    def __init__(
        self,
        d_head: int,
        *,
        base: float = 10000.0,
        pairing: Pairing = "interleaved",
        turned: int | None = None,
        scaling: RotaryScaling | None = None,
    ) -> None:
        """Keep the settings.

        Args:
            d_head: width of a head.
            base, pairing: as in `rotation`.
            turned: number of entries of a head that are turned, the first ones; all when None.
            scaling: what changes the frequencies.

        Raises:
            ValueError: when an odd number of entries is to be turned, or more than there are.
        """
        super().__init__()
        self.d_head, self.base, self.pairing = d_head, base, pairing
        self.turned, self.scaling = d_head if turned is None else turned, scaling
        if not 0 < self.turned <= d_head:
            raise ValueError(f"expected 1 to {d_head} entries of a head to be turned, got {turned}")
        self.make(1, torch.float64)

    def make(self, n: int, dtype: torch.dtype) -> Float[Tensor, "position width"]:
        """Cosines, then sines, of positions 0 to n - 1; errors as in `rotation`."""
        if self.scaling is None:
            angles = rotation(n, self.turned, base=self.base, pairing=self.pairing, dtype=dtype)
            return torch.cat((angles.cos, angles.sin), dim=-1)
        omega = self.scaling.frequencies(self.turned, self.base, n)
        turns = torch.arange(n, dtype=torch.float64)[:, None] * omega
        table = torch.cat((turns.cos(), turns.sin()), dim=-1)
        return (self.scaling.factor_of_vectors * table).to(dtype)

    def forward(
        self,
        positions: int | Int[Tensor, "*batch position"],
        *,
        offset: int = 0,
        below: int | None = None,
    ) -> Rotation:
        """The rotation of the given positions; the arguments are those of `SinusoidalPositions`.

        Raises:
            ValueError: when a position is negative.
        """
        if self.scaling is not None and self.scaling.grows:
            length = _end(
                positions, offset
            )  # the frequencies are those of this length, no longer one
            table = self.make(length, self.like.dtype).to(self.like.device)
            rows = table[offset:] if isinstance(positions, int) else table[positions]
        else:
            rows = self.rows(positions, offset, below)
        cos, sin = rows.chunk(2, dim=-1)
        return Rotation(cos, sin, self.pairing, self.d_head - self.turned)


class LearnedPositions(Part):
    """One trained vector per position, up to a largest length (Gehring et al. 2017; BERT; GPT-2)."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_length, d_model))

    def forward(
        self,
        positions: int | Int[Tensor, "*batch position"],
        *,
        offset: int = 0,
        below: int | None = None,
    ) -> Float[Tensor, "*batch position d_model"]:
        """The vectors of the given positions; the arguments are those of `SinusoidalPositions`.

        Raises:
            ValueError: when a position is negative or lies beyond the table.
        """
        if below is None or below > self.table.shape[0] or isinstance(positions, int):
            below = _end(positions, offset)
        if below > self.table.shape[0]:
            raise ValueError(
                f"learned positions reach to {len(self.table) - 1}, got position {below - 1}; "
                "make the model with a larger max_length"
            )
        rows = self.table[offset:below] if isinstance(positions, int) else self.table[positions]
        # Even without a graph, a slice of a parameter says that it requires gradients.
        return rows if torch.is_grad_enabled() else rows.detach()


def _check_pairing(pairing: str) -> None:
    if pairing not in ("interleaved", "halves"):
        raise ValueError(f"pairing must be 'interleaved' or 'halves', got {pairing!r}")


def _end(positions: int | Tensor, offset: int) -> int:
    """One more than the largest position."""
    if isinstance(positions, int):
        if offset < 0:
            raise ValueError(f"positions are counted from 0, got the offset {offset}")
        return offset + positions
    if not positions.numel():
        return 0
    if (first := int(positions.min())) < 0:
        raise ValueError(f"positions are counted from 0, got the position {first}")
    return int(positions.max()) + 1
