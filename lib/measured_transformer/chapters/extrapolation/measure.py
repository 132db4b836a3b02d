"""Longer sequences than those of training: angles that are slowed down, and how far a model gets.

Axis words: `position`, the place in the sequence; `bucket`, a run of neighbouring positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from measured_transformer.analysis.extrapolation import Model
from measured_transformer.parts.positions import RotaryPositions, rotation


@contextmanager
def interpolated(
    model: Model, factor: int | float, *, how: Literal["positions", "base"] = "positions"
) -> Iterator[None]:
    r"""While the block runs, a rotary model turns more slowly, so that longer sequences keep to trained angles.

    Args:
        model: with rotary positions.
        factor: how many times longer than in training the sequences are.
        how: 'positions' divides all positions by the factor (position interpolation, Chen et al. 2023);
            'base' multiplies the base by $\text{factor}^{d/(d-2)}$ for heads of width $d$, so that the slowest
            pair turns more slowly by the factor and the fastest as before ("NTK-aware" scaling).

    Raises:
        ValueError: when the model has no rotary positions, or 'base' is asked of heads with a single pair.
    """
    own = model.rotary
    if own is None:
        raise ValueError(
            f"interpolation slows rotary angles down, got a model with {model.config.positions} positions"
        )
    model.rotary = _Slower(own, factor, how).to(next(model.parameters()).device)
    try:
        yield
    finally:
        model.rotary = own


class _Slower(RotaryPositions):
    """The rotary angles of another module, slowed down."""

    def __init__(
        self, own: RotaryPositions, factor: int | float, how: Literal["positions", "base"]
    ) -> None:
        self.divisor, base = float(factor), own.base
        if how == "base":
            if own.d_head == 2:
                raise ValueError("a head of width 2 has one pair: its fastest is its slowest")
            self.divisor, base = 1.0, own.base * factor ** (own.d_head / (own.d_head - 2))
        super().__init__(own.d_head, base=base, pairing=own.pairing)

    def make(self, n: int, dtype: torch.dtype) -> Float[Tensor, "position width"]:
        """Cosines, then sines, of positions 0 to n - 1 divided by the factor."""
        positions = torch.arange(n, dtype=torch.float64) / self.divisor
        angles = rotation(positions, self.d_head, base=self.base, pairing=self.pairing, dtype=dtype)
        return torch.cat((angles.cos, angles.sin), dim=-1)


def by_bucket(
    values: Float[ndarray, "*seed position"], width: int
) -> Float[ndarray, "*seed bucket"]:
    """Means over runs of `width` positions, leaving out what is not scored; NaN where nothing is.

    >>> by_bucket(np.array([np.nan, 1.0, 2.0, 4.0]), 2).tolist()
    [1.0, 3.0]

    Raises:
        ValueError: when the positions do not divide into such runs.
    """
    if values.shape[-1] % width:
        raise ValueError(f"{values.shape[-1]} positions do not divide into buckets of {width}")
    runs = values.reshape(*values.shape[:-1], -1, width)
    scored = np.isfinite(runs).sum(axis=-1)
    return np.where(scored, np.nansum(runs, axis=-1) / np.maximum(scored, 1), math.nan)


def longest_within(
    excess: Float[ndarray, "position"], limit: float, *, trained: int, bucket: int = 8
) -> int:
    """The longest length up to which no bucket of positions beyond training costs more than `limit`.

    At least the trained length, at most that of `excess`. Divided by the trained length it is the factor by
    which a model extrapolates.

    >>> longest_within(np.array([0.1, 0.1, 0.1, 0.1, 0.3, 0.1]), 0.2, trained=2, bucket=1)
    4

    Raises:
        ValueError: when the positions, or those of training, do not divide into such buckets.
    """
    if trained % bucket:
        raise ValueError(f"{trained} trained positions do not divide into buckets of {bucket}")
    beyond = by_bucket(excess, bucket)[trained // bucket :]
    bad = np.flatnonzero(~(beyond <= limit))
    return trained + bucket * int(bad[0] if len(bad) else len(beyond))
