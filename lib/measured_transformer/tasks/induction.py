"""Induction: a random string that repeats itself; what followed a token before follows it again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Induction:
    """A string of different tokens, over and over; how long it is differs from sequence to sequence.

    With a string of three, ``5 2 9 5 2 9 5``. Scored are the positions whose token has come before: there the
    next token is certain, and `gold["source"]` holds where it stood last. As the string's length changes, no
    fixed distance helps: a model must look for its own token and read what followed. The rule is one of
    content and holds in sequences of any length. Used where a chapter asks which schemes of positions carry
    over to longer sequences, and for induction heads.

    A model that follows the rule loses nothing. One that knows which tokens the string has, but not their
    order, has `bag_loss`.

    Attributes:
        vocab: number of different tokens, at least as many as the longest string.
        length: number of predictions asked for.
        shortest, longest: the lengths of the string, all equally likely; from two on, and short enough for
            something to repeat.

    >>> batch = Induction(vocab=10, length=5, shortest=2, longest=2).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist(), batch.gold["source"].tolist()
    ([[1, 4, 1, 4, 1]], [[4, 1, 4, 1, 4]], [[-1, -1, 1, 2, 3]])

    Raises:
        ValueError: when a size is not a positive whole number, not 2 <= shortest <= longest <= vocab, or
            `length` is too short for the longest string to repeat.
    """

    vocab: int = 32
    length: int = 32
    shortest: int = 4
    longest: int = 16
    causal = True

    def __post_init__(self) -> None:
        check_sizes(
            vocab=self.vocab, length=self.length, shortest=self.shortest, longest=self.longest
        )
        if not 2 <= self.shortest <= self.longest <= self.vocab:
            raise ValueError(
                "expected 2 <= shortest <= longest <= vocab, got "
                f"{self.shortest}, {self.longest} and {self.vocab}"
            )
        self._check_length(self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; the target is the next token.

        Raises:
            ValueError: when a size is not a positive whole number or `length` is too short for the longest
                string to repeat.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        self._check_length(n)
        period = torch.randint(self.shortest, self.longest + 1, (size, 1), generator=generator)
        shuffled = torch.rand(size, self.vocab, generator=generator, dtype=torch.float64).argsort(1)
        place = torch.arange(n + 1)
        tokens = shuffled.gather(1, place % period)
        scored = place[:-1] >= period
        source = torch.where(scored, place[:-1] + 1 - period, -1)
        return Batch(tokens[:, :-1], tokens[:, 1:], scored, gold={"source": source})

    def bag_loss(self, *, length: int | None = None) -> float:
        """Smallest expected loss, in nats per scored token, of a model that knows the string's tokens only.

        The next token is any other of the string.
        """
        n = self.length if length is None else length
        periods = range(self.shortest, self.longest + 1)
        total = math.fsum((n - period) * math.log(period - 1) for period in periods)
        return total / sum(n - period for period in periods)

    def _check_length(self, length: int) -> None:
        if length <= self.longest:
            raise ValueError(
                f"a string of longest={self.longest} tokens must repeat: length must be larger, got {length}"
            )
