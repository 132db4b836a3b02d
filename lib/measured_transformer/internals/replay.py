"""Running part of a model a second time, with the watchers of the first time.

Activation checkpointing computes a block again when gradients come back, often after the `with` block of an
intervention has ended. What the taps of the block then do must be what they did before: replacements are made
again, and nothing is captured twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from measured_transformer.parts.tap import Tap, Watcher

_REPLAYED: ContextVar[bool] = ContextVar("replayed", default=False)
_CLOSE = 1e-3  # relative: kernels of accelerators may round otherwise the second time


def is_replay() -> bool:
    """Return whether this pass repeats an earlier one: nothing of it is captured."""
    return not torch.compiler.is_compiling() and _REPLAYED.get()


class Replay:
    """The watchers of the taps of one module at its first run, and what they put in place of values."""

    def __init__(self, module: nn.Module) -> None:
        """Remember the watchers that are at work now."""
        self._watchers = {part: part.watchers for part in module.modules() if isinstance(part, Tap)}
        self._sums: list[tuple[float, float]] = []

    @property
    def watched(self) -> bool:
        """True if any tap has a watcher."""
        return any(self._watchers.values())

    @contextmanager
    def first(self) -> Iterator[None]:
        """Run the module with its watchers, and keep the sums of what they put in place of values."""
        self._sums = []
        noted = {tap: _noting(own, self._sums) for tap, own in self._watchers.items() if own}
        with _with_watchers(noted):
            yield

    @contextmanager
    def again(self) -> Iterator[None]:
        """Run the module again with the same watchers and no others.

        Raises:
            RuntimeError: when a change does not do again what it did, so that gradients would be those of
                another run.
        """
        before = iter(self._sums)
        token = _REPLAYED.set(True)
        try:
            with _with_watchers(
                {tap: _comparing(own, before) for tap, own in self._watchers.items()}
            ):
                yield
        finally:
            _REPLAYED.reset(token)


def _noting(watchers: tuple[Watcher, ...], sums: list[tuple[float, float]]) -> tuple[Watcher, ...]:
    """Watchers that keep the sum of each replacement."""

    def noted(watch: Watcher) -> Watcher:
        def watch_and_note(value: Tensor) -> Tensor | None:
            new = watch(value)
            if new is not None and new is not value:
                sums.append(_sum(new))
            return new

        return watch_and_note

    return tuple(noted(watch) for watch in watchers)


def _comparing(
    watchers: tuple[Watcher, ...], before: Iterator[tuple[float, float]]
) -> tuple[Watcher, ...]:
    """Watchers whose replacements must have the sums of the first time."""

    def compared(watch: Watcher) -> Watcher:
        def watch_and_compare(value: Tensor) -> Tensor | None:
            new = watch(value)
            if new is not None and new is not value:
                (total, size), (again, _) = next(before, (math.nan, 0.0)), _sum(new)
                if math.isfinite(again) and not abs(again - total) <= _CLOSE * size:
                    raise RuntimeError(
                        "a change gave something else when its block was computed again for the gradients: a "
                        "function given to intervene must give the same for the same value, or its block must "
                        "not be checkpointed"
                    )
            return new

        return watch_and_compare

    return tuple(compared(watch) for watch in watchers)


@torch.no_grad()
def _sum(value: Tensor) -> tuple[float, float]:
    """The sum of a value, and the sum of its sizes."""
    exact = value.detach().double()
    return float(exact.sum()), float(exact.abs().sum())


@contextmanager
def _with_watchers(watchers: Mapping[Tap, tuple[Watcher, ...]]) -> Iterator[None]:
    before = {tap: tap.watchers for tap in watchers}
    try:
        for tap, own in watchers.items():
            tap.watchers = own
        yield
    finally:
        for tap, own in before.items():
            tap.watchers = own
