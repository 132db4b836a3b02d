"""Combines prompts of any length into one batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Prompts = Sequence[Sequence[int] | Tensor] | Tensor
"""One sequence of token numbers for each text."""


def left_padded(
    prompts: Prompts, *, vocab: int, device: torch.device | None = None
) -> tuple[Int[Tensor, "batch position"], Bool[Tensor, "batch position"] | None]:
    """Pad the prompts on the left; the mask of real tokens is None when there is no padding.

    Args:
        prompts: one sequence of token numbers for each text.
        vocab: a number that no token reaches.
        device: where the tensors are to be.

    Raises:
        ValueError: when there is no prompt, or one is empty, not a sequence of whole numbers, or holds a
            token outside the vocabulary.

    >>> tokens, real = left_padded([[5, 6, 7], [8]], vocab=10)
    >>> tokens
    tensor([[5, 6, 7],
            [0, 0, 8]])
    >>> real[1]
    tensor([False, False,  True])
    """
    if not isinstance(prompts, Iterable):
        raise ValueError(f"prompts must be a list of sequences of tokens, got {prompts!r}")
    rows = [_row(i, prompt) for i, prompt in enumerate(prompts)]
    if not rows:
        raise ValueError("expected at least one prompt, got none")
    longest = max(map(len, rows))
    tokens = torch.stack([torch.cat((row.new_zeros(longest - len(row)), row)) for row in rows])
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocab:
        raise ValueError(
            f"tokens of prompts must lie in 0..{vocab - 1} (vocab={vocab}), got values from {low} to {high}"
        )
    tokens = tokens.to(device)
    lengths = torch.tensor([len(row) for row in rows])
    if bool((lengths == longest).all()):
        return tokens, None
    real = torch.arange(longest)[None] >= longest - lengths[:, None]
    return tokens, real.to(device)


def _row(i: int, prompt: Sequence[int] | Tensor) -> Tensor:
    row = whole_numbers(f"prompt {i}", prompt)
    if row.ndim != 1:
        raise ValueError(
            "prompts must be a list with one sequence of whole numbers for each text, got prompt "
            f"{i} of shape {tuple(row.shape)}; a single prompt needs a list around it"
        )
    if not len(row):
        raise ValueError(f"prompt {i} is empty; give it at least one token, such as a start token")
    return row


def whole_numbers(name: str, given: object) -> Int[Tensor, "..."]:
    """Convert a number or a sequence of numbers from Python, NumPy or PyTorch to a tensor.

    Raises:
        ValueError: when it holds anything but whole numbers.
    """
    try:
        numbers = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{name} must hold whole numbers, got what is no tensor: {given!r}"
        ) from None
    if numbers.numel() and (numbers.dtype.is_floating_point or numbers.dtype == torch.bool):
        raise ValueError(f"{name} must hold whole numbers, got {numbers.dtype}")
    return numbers.to(torch.int64)
