r"""Rotary models that read sequences longer than those of their training: slower angles, windows and sinks.

How slow the angles of each method are stands in `parts.rotary_scaling`; here they are put into a trained model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.positions import RotaryPositions, Rotation
from measured_transformer.parts.rotary_scaling import Frequencies

Model = Decoder | Encoder


@contextmanager
def with_frequencies(model: Model, omega: Frequencies, *, stretch: float = 1.0) -> Iterator[None]:
    """Inside the block, a rotary model turns its pairs with these frequencies.

    Args:
        model: with rotary positions.
        omega: radians a position, one number for each pair.
        stretch: what queries and keys are multiplied by.

    Raises:
        ValueError: when the model has no rotary positions, or another number of pairs.
    """
    own = _rotary(model)
    if len(omega) != own.d_head // 2:
        raise ValueError(f"expected {own.d_head // 2} frequencies, got {len(omega)}")
    model.rotary = _Given(own, omega, stretch).to(next(model.parameters()))
    try:
        yield
    finally:
        model.rotary = own


class _Given(RotaryPositions):
    """Rotary angles of given frequencies."""

    def __init__(self, own: RotaryPositions, omega: Frequencies, stretch: float) -> None:
        self.omega, self.stretch = omega.to("cpu", torch.float64), stretch
        super().__init__(own.d_head, base=own.base, pairing=own.pairing)

    def make(self, n: int, dtype: torch.dtype) -> Float[Tensor, "position width"]:
        """Cosines, then sines, of positions 0 to n - 1."""
        angles = torch.arange(n, dtype=torch.float64)[:, None] * self.omega
        return (self.stretch * torch.cat((angles.cos(), angles.sin()), dim=-1)).to(dtype)


@contextmanager
def windowed(model: Model, window: int, *, sinks: int = 0) -> Iterator[None]:
    """While the block runs, a query of a rotary model sees `window` keys: the first `sinks`, and the last.

    The first ones are seen as StreamingLLM shows them (Xiao et al. 2024): at their places in a cache of
    `window` keys, so that no distance is larger than `window` - 1 however long the sequence is.

    Args:
        model: causal, with rotary positions.
        window: number of keys in all.
        sinks: how many of them are the first keys of the sequence.

    Raises:
        ValueError: when the model has no rotary positions, or not 0 <= sinks < window.
    """
    own = _rotary(model)
    if not 0 <= sinks < window:
        raise ValueError(f"expected 0 <= sinks < window, got sinks={sinks} and window={window}")
    changes: dict[str, Any] = {}
    for i, block in enumerate(model.blocks):
        attention: Any = block.attention
        changes |= _Cache(own, attention.scale, window, sinks).changes(f"blocks.{i}.attention")
    with intervene(model, changes):
        yield


class _Cache:
    """One layer's scores, as they are in a cache of its first keys and its last ones."""

    def __init__(self, rotary: RotaryPositions, scale: float | None, window: int, sinks: int):
        self.rotary, self.scale, self.window, self.sinks = rotary, scale, window, sinks
        self.seen: dict[str, Tensor] = {}

    def changes(self, name: str) -> Mapping[str, Any]:
        """The changes for `intervene`."""
        return {
            f"{name}.queries": lambda x: self.note("queries", x),
            f"{name}.keys": lambda x: self.note("keys", x),
            f"{name}.scores": self.scores,
        }

    def note(self, name: str, x: Tensor) -> Tensor:
        """Remember queries or keys, which have not been turned yet."""
        self.seen[name] = x
        return x

    def scores(self, scores: Tensor) -> Tensor:
        """Hide what the cache has dropped, and compare with its first keys as if they stood before the rest."""
        n = scores.shape[-1]
        key = torch.arange(n, device=scores.device)
        distance = key[:, None] - key
        dropped = (distance >= self.window - self.sinks) & (key >= self.sinks)
        scores = scores.masked_fill(dropped, -math.inf)
        if not self.sinks or n <= self.window:
            return scores
        queries, keys = self.seen["queries"], self.seen["keys"][:, :, : self.sinks]
        all_places = self.rotary(self.window)
        last = Rotation(
            all_places.cos[-1:].expand(n, -1), all_places.sin[-1:].expand(n, -1), all_places.pairing
        )
        first = Rotation(
            all_places.cos[: self.sinks], all_places.sin[: self.sinks], all_places.pairing
        )
        scale = 1 / math.sqrt(queries.shape[-1]) if self.scale is None else self.scale
        keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
        moved = scale * last.apply(queries) @ first.apply(keys).transpose(-2, -1)
        late = (key >= self.window)[:, None]
        return torch.cat(
            (torch.where(late, moved, scores[..., : self.sinks]), scores[..., self.sinks :]), dim=-1
        )


def _rotary(model: Model) -> RotaryPositions:
    if model.rotary is None:
        raise ValueError(
            f"expected a model with rotary positions, got {model.config.positions} positions"
        )
    return model.rotary
