"""Counting: symbols in random order, then questions how often some of them occurred."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Counting:
    """Symbols in random order, then questions about some of them: how often each of these occurred.

    With symbols below 6, questions from 6 to 11 (token 8 asks about symbol 2) and answers from 12 on, a row
    begins ``2 5 2 0 8``, and 14 follows, which stands for two. The next question comes after it. Each symbol
    that is asked about occurs from none to `most` times, all numbers equally likely; the rest of the row is
    filled with symbols that are not asked about. Used where a chapter asks whether attention can add up, and
    not only average. There is no order in it, but that questions come last.

    A model that counts loses nothing; one that does not look has `blind_loss`.

    Attributes:
        symbols: number of different symbols.
        asked: how many of them are asked about, fewer than there are.
        most: the largest number.
        told: symbols in a row, at least as many as `asked` times `most`.

    >>> task = Counting(symbols=4, asked=2, most=2, told=5)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist()
    ([[1, 1, 1, 2, 1, 6, 9, 7]], [9, 8])

    Raises:
        ValueError: when a size is not a positive whole number, all symbols are asked about, or a row is too
            short.
    """

    symbols: int = 8
    asked: int = 4
    most: int = 4
    told: int = 16
    causal = True

    def __post_init__(self) -> None:
        check_sizes(symbols=self.symbols, asked=self.asked, most=self.most, told=self.told)
        if self.asked >= self.symbols:
            raise ValueError(
                f"expected fewer questions than symbols={self.symbols}, got asked={self.asked}"
            )
        self._check_told(self.told)

    @property
    def vocab(self) -> int:
        """Symbols, questions and answers."""
        return 2 * self.symbols + self.most + 1

    @property
    def length(self) -> int:
        """Positions of a batch: symbols, and questions with their answers but for the last one."""
        return self.told + 2 * self.asked - 1

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; another length is another number of symbols told.

        Raises:
            ValueError: when the length is too short for the numbers.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        told = n + 1 - 2 * self.asked
        self._check_told(told)
        order = torch.rand(size, self.symbols, generator=generator).argsort(1)
        asked, others = order[:, : self.asked], order[:, self.asked :]
        counts = torch.randint(self.most + 1, (size, self.asked), generator=generator)
        # Symbol i of those asked about fills the places from most * i on, as many as it has.
        slot = torch.arange(self.asked * self.most)
        candidate = asked[:, slot // self.most]
        present = slot % self.most < counts[:, slot // self.most]
        filler = others.gather(1, torch.randint(others.shape[1], (size, told), generator=generator))
        row = filler.clone()
        row[:, : len(slot)] = torch.where(present, candidate, filler[:, : len(slot)])
        row = row.gather(1, torch.rand(size, told, generator=generator).argsort(1))
        answered = torch.stack((self.symbols + asked, 2 * self.symbols + counts), dim=2)
        whole = torch.cat([row, answered.flatten(1)], dim=1)
        scored = torch.zeros(size, n, dtype=torch.bool)
        scored[:, told::2] = True
        return Batch(whole[:, :-1], whole[:, 1:], scored)

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that does not look: ln (most + 1)."""
        return math.log(self.most + 1)

    def _check_told(self, told: int) -> None:
        if told < self.asked * self.most:
            raise ValueError(
                f"expected at least asked * most = {self.asked * self.most} symbols in a row, got {told}"
            )
