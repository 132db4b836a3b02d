"""Drawn cases to try attention on: queries, keys and values, and where attention is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from measured_transformer.parts.attention import (
    attend,
    attention_pattern,
    attention_scores,
    causal_mask,
)

MaskKind = Literal["none", "causal", "keys"]


@dataclass(frozen=True)
class Case:
    """Queries, keys and values of a drawn size, and where attention is allowed.

    Attributes:
        queries, keys: of one width.
        values: of the keys' number, and of a width of their own.
        mask: True where attention is allowed; None where everything is.
    """

    queries: Float[Tensor, "batch head query d_head"]
    keys: Float[Tensor, "batch head key d_head"]
    values: Float[Tensor, "batch head key d_value"]
    mask: Bool[Tensor, "..."] | None

    def to(self, dtype: torch.dtype) -> Case:
        """The same numbers in another precision."""
        return Case(self.queries.to(dtype), self.keys.to(dtype), self.values.to(dtype), self.mask)

    def scores(self, *, scale: float | None = None) -> Float[Tensor, "batch head query key"]:
        """The library's scores."""
        return attention_scores(self.queries, self.keys, scale=scale)

    def pattern(self, *, scale: float | None = None) -> Float[Tensor, "batch head query key"]:
        """The library's weights."""
        return attention_pattern(self.scores(scale=scale), mask=self.mask)

    def output(self, *, scale: float | None = None) -> Float[Tensor, "batch head query d_value"]:
        """The library's attention."""
        return attend(self.pattern(scale=scale), self.values)


def drawn_case(
    seed: int, *, mask: MaskKind | None = None, d_value: int | None = None, square: bool = False
) -> Case:
    """A case of random size with normal entries, in float64.

    Args:
        seed: of sizes, entries and mask.
        mask: 'none', 'causal' (as many queries as keys) or 'keys' (each sequence has two keys or more that
            may be seen, and one or more that may not);
            one after the other with the seed when not given.
        d_value: width of the values; drawn when not given.
        square: as many queries as keys, whatever the mask.

    Raises:
        ValueError: when there is no such mask.
    """
    kinds = get_args(MaskKind)
    kind = kinds[seed % len(kinds)] if mask is None else mask
    if kind not in kinds:
        raise ValueError(f"mask must be one of {', '.join(kinds)}, got {mask!r}")
    generator = torch.Generator().manual_seed(seed)

    def size(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    batch, heads, n_key, width = size(1, 3), size(1, 4), size(3, 12), size(2, 16)
    n_query = n_key if kind == "causal" or square else size(2, 12)
    wide = size(2, 16) if d_value is None else d_value
    allowed = None
    if kind == "causal":
        allowed = causal_mask(n_query)
    elif kind == "keys":
        order = torch.rand(batch, 1, 1, n_key, generator=generator).argsort(-1)
        allowed = order < size(2, n_key - 1)
    leading = (batch, heads)
    return Case(
        normal(*leading, n_query, width),
        normal(*leading, n_key, width),
        normal(*leading, n_key, wide),
        allowed,
    )
