"""Prompts of any lengths as one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Prompts = Sequence[Sequence[int] | Tensor] | Tensor
"""One sequence of token numbers for each text."""


def left_padded(
    prompts: Prompts, *, vocab: int, device: torch.device | None = None
) -> tuple[Int[Tensor, "batch position"], Bool[Tensor, "batch position"] | None]:
    """The prompts side by side, their ends aligned, and where they are real; None where all is.

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
    row = torch.as_tensor(prompt)
    if row.ndim != 1 or (len(row) and (row.is_floating_point() or row.dtype == torch.bool)):
        raise ValueError(
            "prompts must be a list with one sequence of whole numbers for each text, got prompt "
            f"{i} of {row.dtype} and shape {tuple(row.shape)}; a single prompt needs a list around it"
        )
    if not len(row):
        raise ValueError(f"prompt {i} is empty; give it at least one token, such as a start token")
    return row.to(torch.int64)
