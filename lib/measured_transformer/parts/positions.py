r"""How a model that sees a set of tokens is told their order.

Five schemes: sinusoidal and learned vectors that are added to the embeddings; rotary angles that turn
queries and keys; ALiBi's penalty that grows with distance; and none.

Sinusoidal: position $p$ has for each pair $i < d/2$ the two entries $\sin(\omega_i p)$ and $\cos(\omega_i p)$
at dimensions $2i$ and $2i+1$, with $\omega_i = \text{base}^{-2i/d}$ (Vaswani et al. 2017, section 3.5).
Rotary: the pair $i$ of a query or key at position $p$ is turned by the angle $\omega_i p$ (Su et al. 2021).
ALiBi: head $h$ subtracts $m_h |i - j|$ from the score of query $i$ and key $j$ (Press et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

Pairing = Literal["interleaved", "halves"]


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
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "position d_model"]:
    """The sinusoidal vectors of the given positions, sines at even dimensions and cosines at odd ones.

    Args:
        positions: a number n, meaning positions 0 to n - 1, or a vector of positions (fractions allowed).
        d_model: width, an even number.
        base: sets the slowest frequency; 10000 in Vaswani et al.
        dtype: of the result; computed in float64 whatever it is. PyTorch's default when not given.

    Raises:
        ValueError: when `d_model` is odd or `positions` is not a vector.

    >>> sinusoidal_encoding(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    if isinstance(positions, int):
        positions = torch.arange(positions)
    if positions.ndim != 1:
        raise ValueError(f"positions must be a vector, got shape {tuple(positions.shape)}")
    angles = _angles(positions, d_model, base)
    encoding = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    return encoding.to(positions.device, dtype or torch.get_default_dtype())


@dataclass(frozen=True)
class Rotation:
    """Rotary angles of a run of positions, ready to be applied to queries and keys.

    Attributes:
        cos, sin: (position, d_head / 2), cosine and sine of each position's angles.
        pairing: which two entries form a pair: neighbours (`interleaved`: 0 with 1, 2 with 3, as in the
            RoFormer paper) or halves (`halves`: 0 with d/2, as in Llama checkpoints). The two differ by a
            fixed permutation of the dimensions; weights trained with one need that one.
    """

    cos: Float[Tensor, "position pair"]
    sin: Float[Tensor, "position pair"]
    pairing: Pairing = "interleaved"

    def apply(
        self, x: Float[Tensor, "batch head position d_head"]
    ) -> Float[Tensor, "batch head position d_head"]:
        """Turn each pair of `x` by the angle of its position. Lengths are kept; `x` is not changed.

        Raises:
            ValueError: when `x` has another number of positions or another width than the angles.
        """
        expected = (self.cos.shape[0], 2 * self.cos.shape[1])
        if tuple(x.shape[-2:]) != expected:
            raise ValueError(
                f"this rotation is for (position, d_head) = {expected}, got {tuple(x.shape[-2:])}"
            )
        cos, sin = self.cos.to(x), self.sin.to(x)
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
    if pairing not in ("interleaved", "halves"):
        raise ValueError(f"pairing must be 'interleaved' or 'halves', got {pairing!r}")
    if isinstance(positions, int):
        positions = torch.arange(positions)
    if positions.ndim != 1:
        raise ValueError(f"positions must be a vector, got shape {tuple(positions.shape)}")
    angles = _angles(positions, d_head, base)
    device, dtype = positions.device, dtype or torch.get_default_dtype()
    return Rotation(angles.cos().to(device, dtype), angles.sin().to(device, dtype), pairing)


def alibi_slopes(n_heads: int) -> Float[Tensor, "head"]:
    """ALiBi's slope of each head, float64: a geometric series that starts at 2^(-8/n) and has that ratio.

    For a head count that is no power of two, the paper's code takes the slopes of the next lower power of
    two and fills up with every other slope of the next higher one; so does this.

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
    queries = keys[n_key - n_query :]
    distance = (queries[:, None] - keys[None, :]).abs()
    return slopes[:, None, None] * (0 - distance)


class SinusoidalPositions(nn.Module):
    """Fixed sinusoidal vectors for any length; nothing is learned and nothing is stored in a checkpoint."""

    def __init__(self, d_model: int, *, base: float = 10000.0) -> None:
        super().__init__()
        self.d_model, self.base = d_model, base
        table = sinusoidal_encoding(1, d_model, base=base)
        self.register_buffer("table", table, persistent=False)
        self.table: Tensor

    def forward(self, n: int, *, offset: int = 0) -> Float[Tensor, "position d_model"]:
        """The vectors of positions `offset` to `offset + n - 1`; the table grows when it must.

        Raises:
            ValueError: when the offset is negative.
        """
        _check_offset(offset)
        needed = offset + n
        if len(self.table) < needed:
            longer = 2 ** (needed - 1).bit_length()
            self.table = sinusoidal_encoding(
                longer, self.d_model, base=self.base, dtype=self.table.dtype
            ).to(self.table.device)
        return self.table[offset:needed]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SinusoidalPositions:
        # .double(), .to(...): drawn anew, so that no entry keeps the rounding of an earlier dtype.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.table = sinusoidal_encoding(
            len(self.table), self.d_model, base=self.base, dtype=self.table.dtype
        ).to(self.table.device)
        return self


class LearnedPositions(nn.Module):
    """One trained vector per position, up to a largest length (Gehring et al. 2017; BERT; GPT-2)."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_length, d_model))

    def forward(self, n: int, *, offset: int = 0) -> Float[Tensor, "position d_model"]:
        """The vectors of positions `offset` to `offset + n - 1`.

        Raises:
            ValueError: when the offset is negative or a position lies beyond the table.
        """
        _check_offset(offset)
        if offset + n > len(self.table):
            raise ValueError(
                f"learned positions reach to {len(self.table) - 1}, got position {offset + n - 1}; "
                "make the model with a larger max_length"
            )
        return self.table[offset : offset + n]


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise ValueError(f"positions are counted from 0, got the offset {offset}")
