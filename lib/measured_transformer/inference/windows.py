"""A cache that never outgrows a window: it keeps the last tokens and, optionally, the first ones.

A new token overwrites the oldest of the window. Attention adds up over keys, in whatever order, so the new key
may lie where the old one lay: the buffer is a ring (Jiang et al. 2023, "Mistral 7B", section 2). The first
tokens may be kept beside it, as heads with nothing to read put their weight there (Xiao et al. 2024, "Efficient
Streaming Language Models with Attention Sinks").

Each token keeps the position at which it was read, so a step gives what a pass over the whole text gives under
the mask of the same window. (Xiao et al. number the kept tokens anew at each step, for texts longer than any in
training.)
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.cache import KeyValues
from measured_transformer.parts.position_schemes import SCHEMES


@dataclass(frozen=True)
class SlidingWindow:
    """The part of the text that a decoder keeps: its first and last tokens.

    Attributes:
        window: how many of the last tokens, the newest included.
        sinks: how many of the first are kept beside them.

    Raises:
        ValueError: when there is no window, or the number of sinks is negative.
    """

    window: int
    sinks: int = 0

    def __post_init__(self) -> None:
        for number, least in ((self.window, 1), (self.sinks, 0)):
            if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
                raise ValueError(
                    "expected a window of at least 1 and no negative sinks, both whole numbers, got "
                    f"{self.window!r}, {self.sinks!r}"
                )

    @property
    def kept(self) -> int:
        """The largest number of tokens kept at a time."""
        return self.sinks + self.window

    def slot(self, token: int) -> int:
        """The place of a token's key, from zero; the first tokens keep their places.

        >>> [SlidingWindow(window=3, sinks=1).slot(t) for t in range(8)]
        [0, 1, 2, 3, 1, 2, 3, 1]
        """
        return token if token < self.sinks else self.sinks + (token - self.sinks) % self.window

    def mask(self, n: int) -> Bool[Tensor, "query key"]:
        """Which key each query sees among n positions.

        >>> SlidingWindow(window=2, sinks=1).mask(4).int().tolist()
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]
        """
        position = torch.arange(n)
        back = position[:, None] - position
        return (back >= 0) & ((back < self.window) | (position < self.sinks))

    def make_cache(self, model: Decoder) -> WindowCache:
        """An empty cache for a decoder.

        Raises:
            ValueError: when the model's positions are a bias on scores, which needs all earlier positions.
        """
        if SCHEMES[model.config.positions].bias is not None:
            raise ValueError(
                f"a window needs positions that the keys carry themselves, got {model.config.positions!r}"
            )
        return WindowCache(len(model.blocks), self)


class WindowKeyValues(KeyValues):
    """Keys and values of one layer in a ring, at most `window.kept` of them.

    Attributes:
        seen: number of positions so far, those included that are gone.
    """

    def __init__(self, window: SlidingWindow) -> None:
        """Make an empty ring."""
        super().__init__(window.kept)
        self.window, self.seen = window, 0

    def extend(
        self,
        keys: Float[Tensor, "batch head new d_head"],
        values: Float[Tensor, "batch head new d_value"],
    ) -> tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_value"]]:
        """Add the next position, over the oldest of the window where it is full, and return all that are kept.

        Raises:
            ValueError: when several positions come at once and not all fit, or gradients are recorded.
        """
        new = keys.shape[2]
        if self.seen + new <= self.window.kept:
            self.seen += new
            return super().extend(keys, values)
        if new > 1:
            raise ValueError(
                f"a window of {self.window.kept} positions takes the next ones singly, got {new} at once "
                f"after {self.seen}; give generate a chunk of 1"
            )
        if torch.is_grad_enabled() and (keys.requires_grad or values.requires_grad):
            raise ValueError("a window overwrites keys: it is for inference, without gradients")
        held_keys, held_values = self.keys, self.values
        slot = self.window.slot(self.seen)
        held_keys[:, :, slot : slot + 1] = keys
        held_values[:, :, slot : slot + 1] = values
        self.seen += 1
        return held_keys, held_values

    def crop(self, length: int) -> None:
        """Keep only the first `length` positions, where there are more.

        Raises:
            ValueError: when some of them have been overwritten.
        """
        if length >= self.seen:
            return
        if self.seen > self.window.kept:
            raise ValueError("what a window has overwritten does not come back")
        super().crop(length)
        self.seen = length


class WindowCache(KeyValueCache):
    """The keys and values of each layer within a window; see `SlidingWindow.make_cache`."""

    def __init__(self, n_layers: int, window: SlidingWindow) -> None:
        """Make an empty cache."""
        super().__init__(n_layers)
        self.layers = tuple(WindowKeyValues(window) for _ in range(n_layers))
