"""Items divided among training, validation and test, once and for all."""

from __future__ import annotations

from typing import get_args

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Part


def split_items(
    count: int, part: Part, *, train_share: float = 0.8, seed: int = 0
) -> Int[Tensor, "item"]:
    """The numbers, in rising order, of those among `count` items that belong to a part.

    A permutation that depends on `seed` alone decides. Training gets its share, validation and test half
    each of what remains; every item belongs to exactly one part.

    Raises:
        ValueError: when the part has another name or one of the three would be empty.

    >>> [split_items(10, part, train_share=0.6).numel() for part in ("train", "validation", "test")]
    [6, 2, 2]
    """
    names = get_args(Part)
    if part not in names:
        raise ValueError(f"part must be one of {', '.join(names)}, got {part!r}")
    first = round(train_share * count)
    second = first + (count - first) // 2
    if not 0 < first < second < count:
        raise ValueError(
            f"{count} items with train_share={train_share} leave nothing for one of {', '.join(names)}"
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    start, end = {"train": (0, first), "validation": (first, second), "test": (second, count)}[part]
    return order[start:end].sort().values
