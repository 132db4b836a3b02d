r"""The geometry of a table of position vectors: similarities, and the effect of a shift.

Axis words: `position`, the place in the sequence; `distance` $k = |i - j|$; `pair`, two dimensions that
share a frequency. Matrices act on row vectors from the right, `x @ W`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from measured_transformer.parts.positions import frequencies


def similarity_by_distance(n: int, d: int, *, base: float = 10000.0) -> Float[ndarray, "distance"]:
    r"""The dot product of two sinusoidal vectors $k$ apart, $s(k) = \sum_i \cos(\omega_i k)$, k below `n`.

    >>> similarity_by_distance(3, 4).round(4)
    array([2.    , 1.5403, 0.5837])
    """
    distances = torch.arange(n, dtype=torch.float64)
    return (distances[:, None] * frequencies(d, base=base)).cos().sum(1).numpy()


def _diagonals(matrix: Tensor, *, directed: bool) -> tuple[Tensor, Tensor]:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"expected a square matrix, got shape {tuple(matrix.shape)}")
    n = len(matrix)
    where = torch.arange(n, device=matrix.device)
    offset = where[:, None] - where[None, :]
    index = offset + n - 1 if directed else offset.abs()
    sums = torch.zeros(2 * n - 1, dtype=matrix.dtype).index_add(
        0, index.flatten(), matrix.flatten()
    )
    counts = torch.bincount(index.flatten(), minlength=2 * n - 1).clamp(min=1)
    return sums / counts, index


def offset_deviation(matrix: Float[Tensor, "query key"]) -> float:
    """The largest deviation of an entry from the mean at its distance |i - j|; 0 when only distance matters.

    >>> offset_deviation(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    0.0
    >>> offset_deviation(torch.tensor([[2.0, 1.0], [1.0, 4.0]]))
    1.0

    Raises:
        ValueError: when the matrix is not square.
    """
    means, index = _diagonals(matrix, directed=False)
    return (matrix - means[index]).abs().max().item()


def explained_by_offset(matrix: Float[Tensor, "query key"]) -> float:
    """Share of the variance of the entries that the signed offset i - j accounts for, from 0 to 1.

    >>> explained_by_offset(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    1.0

    Raises:
        ValueError: when the matrix is not square, or when all its entries are equal.
    """
    means, index = _diagonals(matrix, directed=True)
    spread = matrix.var(unbiased=False).item()
    if spread == 0:
        raise ValueError("all entries are equal: there is no variance to explain")
    return 1 - ((matrix - means[index]) ** 2).mean().item() / spread


def wrong_order_share(similarity: Float[ndarray, "distance"]) -> float:
    """Share of pairs of distances k < l at which the *farther* one is the more similar.

    >>> wrong_order_share(np.array([3.0, 1.0, 2.0]))
    0.3333333333333333
    """
    near, far = np.triu_indices(len(similarity), 1)
    return float((similarity[far] > similarity[near]).mean())


def rises(similarity: Float[ndarray, "distance"]) -> Int[ndarray, "rise"]:
    """The distances k at which one step farther is more similar: s(k + 1) > s(k).

    >>> rises(np.array([3.0, 1.0, 2.0, 0.0]))
    array([1])
    """
    return np.flatnonzero(np.diff(similarity) > 0)


def largest_climb(similarity: Float[ndarray, "distance"]) -> tuple[float, int, int]:
    """The largest climb without a fall between: (height, distance at its foot, distance at its top).

    >>> largest_climb(np.array([3.0, 1.0, 2.0, 0.0, 0.5]))
    (1.0, 1, 2)
    """
    best, foot = (0.0, 0, 0), 0
    for k in range(1, len(similarity)):
        if similarity[k] <= similarity[k - 1]:
            foot = k
        elif similarity[k] - similarity[foot] > best[0]:
            best = (float(similarity[k] - similarity[foot]), foot, k)
    return best


def turn_rates(encoding: Float[Tensor, "position d_model"]) -> Float[Tensor, "pair"]:
    """The angle in radians by which each (sine, cosine) pair of a table turns per position, as measured.

    Angles of neighbouring rows are subtracted, so rates up to pi are told apart; the mean over the rows is
    the slope of the phase.

    >>> from measured_transformer.parts.positions import sinusoidal_encoding
    >>> turn_rates(sinusoidal_encoding(50, 4, dtype=torch.float64))
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    angles = torch.atan2(encoding[:, 0::2], encoding[:, 1::2])
    steps = torch.remainder(angles.diff(dim=0) + math.pi, 2 * math.pi) - math.pi
    return steps.mean(0)


def smallest_distance(table: Float[Tensor, "position d_model"], *, block: int = 1000) -> float:
    """The Euclidean distance of the two rows that are closest to one another.

    >>> smallest_distance(torch.tensor([[0.0], [3.0], [5.0]]))
    2.0
    """
    smallest = math.inf
    for start in range(0, len(table), block):
        distances = torch.cdist(table[start : start + block], table[start:])
        rows = torch.arange(distances.shape[0])
        distances[rows, rows] = math.inf
        smallest = min(smallest, distances.min().item())
    return smallest


def distinct_rows(table: Float[Tensor, "position d_model"]) -> int:
    """How many different rows a table has."""
    return len(torch.unique(table.float(), dim=0))


def rounded_angles(n: int, d: int, dtype: torch.dtype) -> Float[Tensor, "position d_model"]:
    """The sinusoidal table as code computes it that works in `dtype` from the start.

    Positions, frequencies and their products are rounded to `dtype`; so are sines and cosines. The library
    rounds only the last.
    """
    angles = torch.arange(n).to(dtype)[:, None] * frequencies(d).to(dtype)
    return torch.stack((angles.double().sin(), angles.double().cos()), dim=-1).flatten(1).to(dtype)


def exp_log_table(n: int, d: int, dtype: torch.dtype) -> Float[Tensor, "position d_model"]:
    r"""The table by the route of most published code: $\omega_i = \exp(-2i \ln(10000) / d)$, all in `dtype`.

    An odd `d` fails, as it does there: one more sine than cosines.

    Raises:
        RuntimeError: when `d` is odd, by PyTorch.
    """
    rates = torch.exp(torch.arange(0, d, 2).to(dtype) * (-math.log(10000.0) / d))
    table = torch.empty(n, d, dtype=dtype)
    angles = torch.arange(n).to(dtype)[:, None] * rates
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()
    return table


def shift_matrix(
    k: int | float, d: int, *, base: float = 10000.0
) -> Float[Tensor, "d_model d_model"]:
    """The rotation R with PE(p + k) = PE(p) @ R for every p: one 2 by 2 block per frequency, float64.

    >>> from measured_transformer.parts.positions import sinusoidal_encoding
    >>> table = sinusoidal_encoding(4, 6, dtype=torch.float64)
    >>> bool(torch.allclose(table[3], table[1] @ shift_matrix(2, 6)))
    True
    """
    angles = k * frequencies(d, base=base)
    blocks = [
        torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64)
        for a in angles.tolist()
    ]
    return torch.block_diag(*blocks)
