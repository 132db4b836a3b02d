"""Weights of a model in a result: in half precision, four to a whole number of eight bytes.

>>> from torch.nn import Linear
>>> model = Linear(3, 2)
>>> again = unpacked(packed(model), Linear(3, 2))
>>> bool((again.weight == model.weight.half()).all())
True
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import nn

__all__ = ["packed", "unpacked"]

Made = TypeVar("Made", bound=nn.Module)


def packed(model: nn.Module) -> Int[ndarray, "word"]:
    """A model's weights, one after the other; zeros fill the last number."""
    flat = torch.cat([x.detach().flatten() for x in model.state_dict().values()]).half().numpy()
    return np.pad(flat, (0, -len(flat) % 4)).view(np.int64)


def unpacked(words: ndarray, model: Made) -> Made:
    """The model itself, with weights as `packed` gives them; it is set to evaluate.

    Args:
        words: whole numbers of any kind that holds eight bytes, of any shape.
        model: of the configuration that the weights belong to; its own weights are replaced.

    Raises:
        ValueError: there are more or fewer weights than the model has.

    >>> unpacked(packed(nn.Linear(3, 2)), nn.Linear(4, 4))
    Traceback (most recent call last):
    ValueError: expected 20 weights in 5 numbers, got 2 numbers
    """
    state = model.state_dict()
    sizes = [x.numel() for x in state.values()]
    given = np.ascontiguousarray(words, dtype=np.int64).reshape(-1)
    if len(given) != -(-sum(sizes) // 4):
        raise ValueError(
            f"expected {sum(sizes)} weights in {-(-sum(sizes) // 4)} numbers, got {len(given)} numbers"
        )
    flat = torch.from_numpy(given.view(np.float16).copy()).float()[: sum(sizes)]
    shaped = {
        name: part.view(x.shape)
        for (name, x), part in zip(state.items(), flat.split(sizes), strict=True)
    }
    model.load_state_dict(shaped)
    return model.eval()
