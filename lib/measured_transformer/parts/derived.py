"""Values that are a function of one that was shown before, so that whoever keeps both need keep only one.

A pattern is the softmax of its scores, and as large. The part that computes it says so by `show_derived`.
Whoever keeps the scores anyway (`internals.capture`) can leave the pattern out and compute it when it is asked
for, by the very function that computed it in the forward pass. What an intervention puts in the value's place
is another tensor, of which nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from measured_transformer.parts.tap import Tap


@dataclass(frozen=True)
class Derivation:
    """How a value was computed.

    Attributes:
        value: the value.
        source: what it is a function of.
        function: that function; it holds what else it needs, as copies that nobody writes to.
    """

    value: Tensor
    source: Tensor
    function: Callable[[Tensor], Tensor]


_SHOWN: ContextVar[Derivation | None] = ContextVar("shown", default=None)


def show_derived(tap: Tap, source: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Send the function's value through the tap, while its watchers can ask how it came about.

    They cannot where the function would give something else a second time: under autocast, whose precision is
    that of the moment, and while code is compiled.

    Args:
        tap: where the value is shown.
        source: what another tap has shown.
        function: gives the same bits whenever it is called with the same source, writes to nothing and holds no
            model.

    >>> tap, scores = Tap(), torch.zeros(1, 4)
    >>> tap.watchers = (lambda value: print(derivation(value).source is scores),)
    >>> pattern = show_derived(tap, scores, lambda each: each.softmax(-1))
    True
    >>> derivation(pattern) is None
    True
    """
    value = function(source)
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(value.device.type):
        return tap(value)
    token = _SHOWN.set(Derivation(value, source, function))
    try:
        return tap(value)
    finally:
        _SHOWN.reset(token)


def derivation(value: Tensor) -> Derivation | None:
    """How the value came about that a tap is showing now; None where nothing was said of it."""
    found = None if torch.compiler.is_compiling() else _SHOWN.get()
    return found if found is not None and found.value is value else None
