"""Running parity: whether the number of ones so far is odd, asked at every position."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class RunningParity:
    """Random bits; the answer at each position is the parity of all bits up to there, this one included.

    One bit of memory, flipped at each one, is all that it takes, and every token so far counts. Used by the
    chapter that compares attention with recurrence, for what a summary does better than a look.

    A model that knows the last answer and the bit loses nothing; one that guesses has `blind_loss`.

    Attributes:
        length: number of bits.

    >>> batch = RunningParity(length=6).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[0, 1, 1, 0, 1, 1]], [[0, 1, 0, 0, 1, 0]])

    Raises:
        ValueError: when `length` is not a positive whole number.
    """

    length: int = 32
    causal = True
    vocab = 2

    def __post_init__(self) -> None:
        check_sizes(length=self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences.

        Raises:
            ValueError: when a size is not a positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        bits = torch.randint(2, (size, n), generator=generator)
        return Batch(bits, bits.cumsum(1) % 2, torch.ones(size, n, dtype=torch.bool))

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that misses one bit: ln 2."""
        return math.log(2)
