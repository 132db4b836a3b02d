"""Choosing numbers along one axis: the positions, heads, rows or layers that a call is about.

Every instrument that lets its caller choose reads the choice here, so that a choice means the same everywhere.

>>> select("heads", [True, False, True, False], 4)
tensor([0, 2])
>>> select_one("layer", -1, 12)
11
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

Places = SupportsIndex | slice | Sequence[SupportsIndex] | Tensor | ndarray
"""A number, several, a slice, or a Boolean mask with an entry for each; negative numbers count from the end."""


def select(name: str, which: Places | None, size: int) -> Int[Tensor, "chosen"]:
    """The numbers along an axis that a choice means, from 0 to `size` - 1, in the order that was asked for.

    Args:
        name: of what is chosen, for errors.
        which: the choice: a whole number (of Python, NumPy or PyTorch), a list, array or tensor of them, a
            slice, or a Boolean mask, which keeps the entries that are True; all when None.
        size: number of entries along the axis.

    Raises:
        ValueError: when a number lies outside, a mask has another length, or the choice is none of these.

    >>> select("positions", slice(-2, None), 5)
    tensor([3, 4])
    >>> select("positions", torch.tensor([0, -1]), 5)
    tensor([0, 4])
    """
    if which is None:
        return torch.arange(size)
    if isinstance(which, slice):
        try:
            return torch.tensor(range(size)[which], dtype=torch.int64)
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a slice of whole numbers, got {which}") from None
    given: Any = which.tolist() if isinstance(which, Tensor | ndarray) else which
    single = not isinstance(given, Sequence) or isinstance(given, str)
    numbers = [given] if single else list(given)
    masked = [isinstance(number, bool | np.bool_) for number in numbers]
    if numbers and all(masked) and not single:
        if len(numbers) != size:
            raise ValueError(
                f"a Boolean mask of {name} must have one entry for each of {size}, got {len(numbers)}"
            )
        return torch.tensor([place for place, chosen in enumerate(numbers) if chosen]).long()
    if any(masked):
        raise ValueError(
            f"{name} must be chosen by number or by a Boolean mask of length {size}, got {_shown(which)}"
        )
    try:
        found = [index(number) for number in numbers]
    except TypeError:
        raise ValueError(
            f"{name} must be whole numbers, a slice or a Boolean mask, got {_shown(which)}"
        ) from None
    if not all(-size <= number < size for number in found):
        raise ValueError(f"{name} must lie in {-size}..{size - 1}, got {_shown(which)}")
    return torch.tensor([number % size for number in found], dtype=torch.int64)


def select_one(name: str, which: SupportsIndex, size: int) -> int:
    """The one number along an axis that is meant, from 0 to `size` - 1.

    Args:
        name: of what is chosen, for errors.
        which: a whole number of Python, NumPy or PyTorch, from the end when negative.
        size: number of entries along the axis.

    Raises:
        ValueError: when it lies outside or is not one whole number.
    """
    try:
        if isinstance(which, bool | np.bool_) or getattr(which, "dtype", None) == torch.bool:
            raise TypeError
        number = index(which)
    except TypeError:
        raise ValueError(f"{name} must be one whole number, got {_shown(which)}") from None
    if not -size <= number < size:
        raise ValueError(f"{name} must lie in {-size}..{size - 1}, got {number}")
    return number % size


def _shown(which: object) -> str:
    """A choice on one line, and not longer than a line."""
    text = " ".join(repr(which).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
