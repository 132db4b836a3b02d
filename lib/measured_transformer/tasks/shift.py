"""Cyclic shift: the answer at each position is the token a fixed number of places further on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from measured_transformer.tasks.floors import bag_accuracy, bag_entropy
from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class CyclicShift:
    """Each answer is the token `shift` places to the right; the end looks round to the beginning.

    With a shift of 1, ``3 1 4 1`` becomes ``1 4 1 3``; every position is scored. Reversing twice gives the
    input back, so that a symmetric attention pattern can do it; shifting twice does not. Used where a chapter
    compares ways to tie the weights of attention.

    Attributes:
        vocab: number of different tokens, drawn uniformly.
        length: number of tokens, at least two.
        shift: number of places; not a multiple of the length, which would be copying.

    >>> batch = CyclicShift(vocab=10, length=4).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[4, 9, 3, 0]], [[9, 3, 0, 4]])

    Raises:
        ValueError: when a size is not a positive whole number or `shift` is a multiple of `length`.
    """

    vocab: int = 12
    length: int = 12
    shift: int = 1
    causal = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length, shift=self.shift)
        self._check_length(self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of `length` tokens.

        Raises:
            ValueError: when a size is not a positive whole number or the shift is a multiple of `length`.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        self._check_length(n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        scored = torch.ones(size, n, dtype=torch.bool)
        return Batch(inputs, inputs.roll(-self.shift, 1), scored)

    def bag_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows all tokens but no positions.

        The answer is any of the other tokens, never its own.
        """
        return bag_entropy(self.vocab, self.length - 1)

    def bag_accuracy(self) -> float:
        """Highest expected accuracy of a model that knows all tokens but no positions."""
        return bag_accuracy(self.vocab, self.length - 1)

    def _check_length(self, length: int) -> None:
        if self.shift % length == 0:
            raise ValueError(
                f"a shift by {self.shift} in sequences of length {length} would leave every token in place"
            )
