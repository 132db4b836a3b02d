"""Where attention is allowed: Boolean masks, and checks that a mask or a bias fits the scores.

Axes: `query`, the positions that ask; `key`, the positions that are asked. A mask is True where attention is
*allowed*.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor


def causal_mask(
    n_query: int, n_key: int | None = None, *, device: torch.device | None = None
) -> Bool[Tensor, "query key"]:
    """Where attention is allowed when nobody may look ahead.

    The queries are the *last* `n_query` of the `n_key` positions, so a block of queries that continues
    earlier keys sees all of them. (`is_causal` of PyTorch's kernel aligns the other way.)

    Raises:
        ValueError: when there are more queries than keys.

    >>> causal_mask(2, 4).int()
    tensor([[1, 1, 1, 0],
            [1, 1, 1, 1]], dtype=torch.int32)
    """
    n_key = n_query if n_key is None else n_key
    if n_query > n_key:
        raise ValueError(
            f"causal attention expects at most as many queries as keys, got {n_query} queries and "
            f"{n_key} keys; queries are the last of the key positions"
        )
    allowed = torch.ones(n_query, n_key, dtype=torch.bool, device=device)
    return allowed.tril(n_key - n_query)


def window_mask(
    n_query: int, n_key: int | None = None, *, window: int, device: torch.device | None = None
) -> Bool[Tensor, "query key"]:
    """Where attention is allowed when a query sees only the keys that are less than `window` away.

    The queries are the *last* `n_query` of the `n_key` positions. Together with a causal mask, a query sees
    `window` keys, itself among them.

    Raises:
        ValueError: when the window is not positive, or there are more queries than keys.

    >>> (causal_mask(4) & window_mask(4, window=2)).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    """
    n_key = n_query if n_key is None else n_key
    if window < 1 or n_query > n_key:
        raise ValueError(
            "expected a positive window and at most as many queries as keys, got "
            f"window={window}, {n_query} queries and {n_key} keys"
        )
    key = torch.arange(n_key, device=device)
    return (key[n_key - n_query :, None] - key).abs() < window


def checked_mask(mask: Tensor, shape: torch.Size) -> Tensor:
    """The mask, which must be Boolean and broadcast to the scores' shape.

    Raises:
        ValueError: when it is another kind or shape.
    """
    if mask.dtype != torch.bool:
        raise ValueError(
            f"mask must be Boolean, True where attention is allowed; got {mask.dtype}. "
            "Turn a 0/1 mask into one with mask.bool(), an additive one with mask == 0"
        )
    _check_broadcast("mask", mask, shape)
    return mask


def checked_bias(bias: Tensor, shape: torch.Size) -> Tensor:
    """The bias of scores, which must hold floating-point numbers and broadcast to the scores' shape.

    Raises:
        ValueError: when it does not.
    """
    if not bias.is_floating_point():
        raise ValueError(
            f"score_bias must hold floating-point numbers to add to the scores; got {bias.dtype}. "
            "What is allowed goes into mask"
        )
    _check_broadcast("score_bias", bias, shape)
    return bias


def _check_broadcast(name: str, given: Tensor, shape: torch.Size) -> None:
    try:
        fits = torch.broadcast_shapes(given.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} must broadcast to (..., query, key) = {tuple(shape)}, got {tuple(given.shape)}"
        )
