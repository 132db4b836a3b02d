"""Reversal of sequences that differ in length: where the answer stands depends on where the sequence ends."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.floors import bag_entropy
from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class VariableReversal:
    """Each sequence has a length of its own, is reversed, and is filled up with padding at the end.

    With 10 for padding, ``3 1 4 10 10`` becomes ``4 1 3 10 10``; scored are the real tokens. With one length
    for all, a head can reverse by position alone; here it must find the end first. Used where a chapter asks
    what a reversing head goes by.

    Attributes:
        symbols: number of different tokens, drawn uniformly; the next number is padding.
        shortest, longest: the lengths, all equally likely; the longest is the length of a batch.

    >>> batch = VariableReversal(10, shortest=2, longest=5).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist(), batch.scored.sum().item()
    ([[9, 3, 10, 10, 10]], [[3, 9, 10, 10, 10]], 2)

    Raises:
        ValueError: when a size is not a positive whole number or `longest` is less than `shortest`.
    """

    symbols: int = 12
    shortest: int = 4
    longest: int = 12
    causal = False

    def __post_init__(self) -> None:
        check_sizes(symbols=self.symbols, shortest=self.shortest, longest=self.longest)
        self._check_longest(self.longest)

    @property
    def vocab(self) -> int:
        """The symbols and padding."""
        return self.symbols + 1

    @property
    def length(self) -> int:
        """Positions of a batch."""
        return self.longest

    @property
    def padding(self) -> int:
        """The token that fills up: the last one of the vocabulary."""
        return self.symbols

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of `shortest` to `length` tokens.

        Raises:
            ValueError: when a size is not a positive whole number or `length` is less than `shortest`.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        self._check_longest(n)
        lengths = torch.randint(self.shortest, n + 1, (size, 1), generator=generator)
        tokens = torch.randint(self.symbols, (size, n), generator=generator)
        place = torch.arange(n)
        real = place < lengths
        mirrored = tokens.gather(1, (lengths - 1 - place).clamp_min(0))
        return Batch(
            tokens.masked_fill(~real, self.padding),
            mirrored.masked_fill(~real, self.padding),
            real,
            padding_mask=real.clone(),
        )

    def bag_loss(self) -> float:
        """Smallest expected loss, in nats per real token, of a model that knows all tokens but no positions.

        At each length it is that of `Reversal`: with an even length the answer is one of the other tokens,
        with an odd one the own token may be it as well.
        """
        lengths = range(self.shortest, self.longest + 1)
        total = math.fsum(n * bag_entropy(self.symbols, n if n % 2 else n - 1) for n in lengths)
        return total / sum(lengths)

    def _check_longest(self, longest: int) -> None:
        if longest < self.shortest:
            raise ValueError(
                f"the longest sequence must have at least shortest={self.shortest} tokens, got {longest}"
            )
