"""The tap: a named identity through which a value can be seen and replaced.

A part sends every value that the book speaks of through a `Tap`. Its place in the module tree is its
name (`blocks.0.attention.pattern`). When nobody watches, a tap returns its input untouched, and a part
may skip the work of computing a value that only a watcher would want: it asks `tap.watched`.
Watchers are attached by `measured_transformer.internals`, never by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Watcher = Callable[[Tensor], Tensor | None]
"""Sees a value; returns its replacement, or None to leave it."""


class Tap(nn.Module):
    """Identity that shows its value to its watchers, each of which may return a replacement."""

    def __init__(self) -> None:
        super().__init__()
        self.watchers: tuple[Watcher, ...] = ()

    @property
    def watched(self) -> bool:
        """True if a watcher is attached: parts compute optional values only then."""
        return bool(self.watchers)

    def __getstate__(self) -> dict[str, Any]:
        """The state for copies and pickles, without the watchers, which belong to this model only."""
        return {**self.__dict__, "watchers": ()}

    def __call__(self, value: Tensor) -> Tensor:
        """Pass the value on, without a module's usual overhead when nobody watches."""
        return super().__call__(value) if self.watchers else value

    def forward(self, value: Tensor) -> Tensor:
        """Return `value` after all watchers, in the order they were added, have seen or replaced it."""
        for watch in self.watchers:
            replacement = watch(value)
            if replacement is not None:
                value = replacement
        return value
