"""Replacing what passes a tap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from numbers import Real

import torch
from torch import Tensor, nn

from measured_transformer.internals.capture import watching
from measured_transformer.internals.names import matching
from measured_transformer.parts.tap import Watcher

Change = Tensor | float | int | Callable[[Tensor], Tensor]
_VALUES = (Tensor, int, float)  # torch 2.6 compiles no check against a union of types
"""A replacement: a value, or a function from the value to it."""


@contextmanager
def intervene(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Replace the values of taps, or of a model's modules where it has none, while the `with` block runs.

    Only calls of this thread are changed. Blocks that are checkpointed (`variants.checkpointing`) are computed
    again in the backward pass with the same changes, wherever that pass takes place; a function must then give
    the same for the same value.

    Contexts nest: changes apply in the order in which their contexts were entered, and a `capture` that is
    entered later sees the changed value.

    Args:
        model: any module with taps; or one without, whose values are named as in `modules`.
        changes: for each name or glob a function from (a copy of) the value to its replacement, a tensor
            that broadcasts to the value's shape, or a number (`0.0` removes it); `at` (beside this) limits
            any of these to some positions and heads.

    Raises:
        KeyError: when a name matches no tap or module.
        ValueError: when the changes are no dictionary or a name is no text; when a name matches a tap that
            stands at several places (see `names.matching`), or a change is neither a function nor a tensor nor
            a number; in the forward pass, when a replacement has another shape than the value.

    >>> import torch
    >>> from measured_transformer.models.config import Config
    >>> from measured_transformer.models.decoder import Decoder
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> with intervene(model, {"logits": 0.0}):
    ...     bool((model(torch.tensor([[1, 2, 3]])) == 0).all())
    True
    """

    def watcher(name: str, change: Change) -> Watcher:
        def watch(value: Tensor) -> Tensor:
            if isinstance(change, _VALUES):
                new = torch.as_tensor(change, dtype=value.dtype, device=value.device)
                try:
                    return new.expand_as(value)
                except RuntimeError:
                    raise ValueError(_misfit(name, value, new)) from None
            # A copy: what is changed in place must not reach what others have seen or will read.
            new = change(value.clone())
            if not isinstance(new, Tensor) or new.shape != value.shape:
                raise ValueError(_misfit(name, value, new))
            return new

        return watch

    if not isinstance(changes, Mapping):
        raise ValueError(
            "changes are a dictionary from the name of a tap to its change, such as "
            f"{{'blocks.0.attention.out': 0.0}}, got {type(changes).__name__}"
        )
    checked = {pattern: checked_change(pattern, change) for pattern, change in changes.items()}
    with ExitStack() as stack:
        for pattern, change in checked.items():
            for name, tap in matching(model, (pattern,)).items():
                stack.enter_context(watching(tap, watcher(name, change)))
        yield


def checked_change(name: str, change: Change) -> Change:
    """The change, where it is one. Raises ValueError, which gives the name, where it is not."""
    if callable(change) or isinstance(change, _VALUES):
        return change
    if isinstance(change, Real):  # NumPy's numbers of single precision are none of Python's
        return float(change)
    raise ValueError(
        f"the change of {name} must be a function, a tensor or a number, got {type(change).__name__}"
    )


def _misfit(name: str, value: Tensor, new: object) -> str:
    came = f"shape {tuple(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
    return f"the replacement of {name} must be a tensor of shape {tuple(value.shape)}, got {came}"
