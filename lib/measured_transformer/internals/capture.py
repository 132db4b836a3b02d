"""Seeing what passes a tap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock, get_ident
from typing import Any, Literal, overload
from weakref import ref

import torch
from torch import Tensor, nn

from measured_transformer.internals.captured import Captured, Later
from measured_transformer.internals.modules import Site
from measured_transformer.internals.names import matching
from measured_transformer.internals.replay import is_replay
from measured_transformer.parts.derived import derivation
from measured_transformer.parts.tap import Tap, Watcher

_ENTERING = Lock()  # two threads that enter at once must not lose one of their watchers


@overload
def capture(
    model: nn.Module,
    *patterns: str,
    transform: Callable[[Tensor], Tensor] | None = None,
    gradients: bool = False,
    every_call: Literal[False] = False,
) -> AbstractContextManager[dict[str, Tensor]]: ...
@overload
def capture(
    model: nn.Module,
    *patterns: str,
    transform: Callable[[Tensor], Tensor] | None = None,
    gradients: bool = False,
    every_call: Literal[True],
) -> AbstractContextManager[dict[str, list[Tensor]]]: ...
@contextmanager
def capture(
    model: nn.Module,
    *patterns: str,
    transform: Callable[[Tensor], Tensor] | None = None,
    gradients: bool = False,
    every_call: bool = False,
) -> Iterator[dict[str, Any]]:
    """Collect the values of taps, by name, while the `with` block runs in this thread.

    Of a model without taps they are the values that its modules return. The dictionary fills when the model is
    called and stays usable afterwards; a second call overwrites it with its own values, unless every call is
    kept. It holds tensors only, never the model. The values are copies: nothing done to them, in place or not,
    reaches the run or another value, and nothing that the run does later reaches them.

    A pattern whose scores are captured, too, is not kept beside them: it is computed from them, by the function
    that computed it in the run and to the same last bit, when it is first read, and kept from then on. That
    saves a large part of the memory where everything is captured and little is read.

    With `generate` the first call reads the prompts, and each further one the token that was written last: of
    the stream such a call has one position, of a pattern one row, as long as all that was read. The last new
    token is never read.

    Args:
        model: any module with taps; or one without, whose values are named as in `modules`.
        patterns: names or globs, such as `"blocks.*.attention.pattern"`; all taps when none is given.
        transform: applied to each value at once, so that large values need not be kept.
        gradients: keep the run's own values, in the graph, with their `.grad` after a backward pass, also where
            the weights are frozen; otherwise they are detached copies. Not together with `transform`.
        every_call: keep a list for each tap, with one value for each time that it was passed, in this order.

    Raises:
        KeyError: when a pattern matches no tap or module.
        ValueError: when a pattern is no text (names in a list are given as `*names`); when it matches a tap
            that stands at several places (see `names.matching`); when `transform` is no function, or is given
            together with `gradients`.

    >>> import torch
    >>> from measured_transformer.models.config import Config
    >>> from measured_transformer.models.decoder import Decoder
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> with capture(model, "*.pattern") as seen:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> {name: tuple(value.shape) for name, value in seen.items()}
    {'blocks.0.attention.pattern': (1, 2, 3, 3)}
    >>> from measured_transformer.inference.generate import generate
    >>> with capture(model, "*.pattern", every_call=True) as calls:
    ...     _ = generate(model, [[1, 2, 3]], max_new_tokens=3)
    >>> [tuple(value.shape) for value in calls["blocks.0.attention.pattern"]]
    [(1, 2, 3, 3), (1, 2, 1, 4), (1, 2, 1, 5)]
    """
    if transform is not None and gradients:
        raise ValueError(
            "transform and gradients cannot be combined: gradients belong to the values themselves; "
            "transform them after the backward pass"
        )
    if transform is not None and not callable(transform):
        raise ValueError(
            "transform must be a function from a value to what is kept of it, such as "
            f"lambda value: value.mean(), got {type(transform).__name__}"
        )
    seen = Captured()
    last: ref[Tensor] | None = None  # the run's own value of which the latest copy was kept

    def put_off(name: str, value: Tensor) -> bool:
        """Leave the value out where it follows from one that is kept; return whether that is so."""
        how = derivation(value)
        if how is None or every_call or transform is not None:
            return False
        source = None if last is None or last() is not how.source else _lazy(how.source)
        if source is None:
            return False
        seen.put_off(name, Later(source, how.function))
        return True

    def keep(name: str, value: Tensor) -> None:
        if every_call:
            seen.setdefault(name, []).append(value)
        else:
            seen[name] = value

    def watcher(name: str) -> Watcher:
        def watch(value: Tensor) -> Tensor | None:
            nonlocal last
            replay = is_replay()
            if not gradients:
                if replay:
                    return None
                if put_off(name, value):
                    return None
                kept = _copied(value)
                if not torch.compiler.is_compiling():
                    last = ref(value)
                keep(name, kept if transform is None else transform(kept))
                return None
            if torch.is_grad_enabled() and value.is_floating_point() and not value.requires_grad:
                value = value.detach().requires_grad_()  # frozen weights: the graph begins here
            if replay:
                return value
            if value.requires_grad:
                value.retain_grad()
            keep(name, value)
            return value

        return watch

    with ExitStack() as stack:
        for name, tap in matching(model, patterns or ("*",)).items():
            stack.enter_context(watching(tap, watcher(name)))
        yield seen


def _copied(value: Tensor) -> Tensor:
    """A copy that is made when one of the two is written to, where PyTorch can, and at once otherwise."""
    copy = _lazy(value)
    return value.detach().clone() if copy is None else copy


def _lazy(value: Tensor) -> Tensor | None:
    """A copy that is made when one of the two is written to and costs nothing until then; else None."""
    value = value.detach()
    # PyTorch has copies on write without promising them. Values that repeat one number in memory (an expanded
    # replacement) could not be written to.
    lazy = getattr(value, "_lazy_clone", None)
    if lazy is None or torch.compiler.is_compiling() or 0 in value.stride():
        return None
    copy: Tensor = lazy()
    return copy


@contextmanager
def watching(tap: Tap | Site, watch: Watcher) -> Iterator[None]:
    """Let `watch` see the tap's values while the `with` block runs, and leave nothing behind.

    It sees the calls of its own thread: what other threads ask of the same model is theirs.
    """
    owner = get_ident()

    def of_this_thread(value: Tensor) -> Tensor | None:
        if torch.compiler.is_compiling() or get_ident() == owner or is_replay():
            return watch(value)
        return None

    if isinstance(tap, Site):
        with tap.watched_by(of_this_thread):
            yield
        return
    with _ENTERING:
        tap.watchers = (*tap.watchers, of_this_thread)
    try:
        yield
    finally:
        with _ENTERING:
            tap.watchers = tuple(other for other in tap.watchers if other is not of_this_thread)
