"""Changing a value only at some positions, heads or rows of the batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from measured_transformer.internals.intervene import Change, checked_change
from measured_transformer.internals.places import Places, select


def at(
    change: Change,
    *,
    positions: Places | None = None,
    heads: Places | None = None,
    rows: Places | None = None,
) -> Callable[[Tensor], Tensor]:
    """A change for `intervene` that leaves everything else as it is.

    Values with a head axis are (batch head position ...), the others (batch position ...). Of `scores` and
    `pattern` the position is the query's.

    Args:
        change: a function from the chosen part to its replacement, a tensor that broadcasts to the chosen
            part, or a number.
        positions, heads, rows: which ones, by number (from the end when negative), slice or Boolean mask (see
            `places.select`); all when None.

    Raises:
        ValueError: when the change is neither a function nor a tensor nor a number; in the forward pass, when
            the value has no heads, a number lies outside, a mask has another length, or a replacement has
            another shape than the chosen part.

    >>> zero = at(0.0, heads=1, positions=[0, -1])
    >>> zero(torch.ones(1, 2, 3, 1)).squeeze()
    tensor([[1., 1., 1.],
            [0., 1., 0.]])
    """
    change = checked_change("a part", change)

    def changed(value: Tensor) -> Tensor:
        if heads is not None and value.ndim != 4:
            raise ValueError(
                "heads can be chosen of values of shape (batch, head, position, ...), got shape "
                f"{tuple(value.shape)}"
            )
        chosen = [("rows", rows), ("heads", heads), ("positions", positions)]
        if value.ndim != 4:
            del chosen[1]
        # An index for each axis, shaped to broadcast to the grid of all combinations.
        axes = [
            select(name, which, value.shape[axis])
            .to(value.device)
            .view([-1 if axis == other else 1 for other in range(len(chosen))])
            for axis, (name, which) in enumerate(chosen)
        ]
        part = value[tuple(axes)]
        new = change(part) if callable(change) else torch.as_tensor(change).to(part)
        try:
            if not isinstance(new, Tensor) or (callable(change) and new.shape != part.shape):
                raise RuntimeError
            new = new.expand_as(part)
        except RuntimeError:
            came = f"shape {tuple(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
            raise ValueError(
                f"the replacement must be a tensor of the chosen part's shape {tuple(part.shape)}, got {came}"
            ) from None
        return value.index_put(tuple(axes), new)

    return changed
