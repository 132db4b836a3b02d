"""Seeing what passes a tap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from measured_transformer.internals.modules import Site
from measured_transformer.internals.names import matching
from measured_transformer.parts.tap import Tap, Watcher


@contextmanager
def capture(
    model: nn.Module,
    *patterns: str,
    transform: Callable[[Tensor], Tensor] | None = None,
    gradients: bool = False,
) -> Iterator[dict[str, Tensor]]:
    """Collect the values of taps, by name, while the `with` block runs.

    Of a model without taps they are the values that its modules return. The dictionary fills when the model is
    called and stays usable afterwards; a second call overwrites it with its own values. It holds tensors
    only, never the model.

    Args:
        model: any module with taps; or one without, whose values are named as in `modules`.
        patterns: names or globs, such as `"blocks.*.attention.pattern"`; all taps when none is given.
        transform: applied to each value at once, so that large values need not be kept.
        gradients: keep the values in the graph, with their `.grad` after a backward pass, also where the
            weights are frozen; otherwise they are detached. Not together with `transform`.

    Raises:
        KeyError: when a pattern matches no tap or module.
        ValueError: when `transform` is given together with `gradients`.

    >>> import torch
    >>> from measured_transformer.models.config import Config
    >>> from measured_transformer.models.decoder import Decoder
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> with capture(model, "*.pattern") as seen:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> {name: tuple(value.shape) for name, value in seen.items()}
    {'blocks.0.attention.pattern': (1, 2, 3, 3)}
    """
    if transform is not None and gradients:
        raise ValueError(
            "transform and gradients cannot be combined: gradients belong to the values themselves; "
            "transform them after the backward pass"
        )
    seen: dict[str, Tensor] = {}

    def watcher(name: str) -> Watcher:
        def watch(value: Tensor) -> Tensor | None:
            if not gradients:
                kept = value.detach()
                seen[name] = kept if transform is None else transform(kept)
                return None
            if torch.is_grad_enabled() and value.is_floating_point() and not value.requires_grad:
                value = value.detach().requires_grad_()  # frozen weights: the graph begins here
            if value.requires_grad:
                value.retain_grad()
            seen[name] = value
            return value

        return watch

    with ExitStack() as stack:
        for name, tap in matching(model, patterns or ("*",)).items():
            stack.enter_context(watching(tap, watcher(name)))
        yield seen


@contextmanager
def watching(tap: Tap | Site, watch: Watcher) -> Iterator[None]:
    """Let `watch` see the tap's values while the `with` block runs, and leave nothing behind."""
    if isinstance(tap, Site):
        with tap.watched_by(watch):
            yield
        return
    tap.watchers = (*tap.watchers, watch)
    try:
        yield
    finally:
        tap.watchers = tuple(other for other in tap.watchers if other is not watch)
