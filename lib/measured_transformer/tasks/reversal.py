"""Sequence reversal: the answer at position i is the token at position n - 1 - i.

A model that knows which tokens there are, but not where, can do no better than guess by their shares. That
floor is exact here, so a model without positions has a number to be compared with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Reversal:
    """Random tokens in, the same tokens in reverse order out, for a model that sees the whole sequence.

    Attributes:
        vocab: number of different tokens, drawn uniformly.
        length: number of tokens.
    """

    vocab: int = 12
    length: int = 12
    causal = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of `length` tokens; every position is scored."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        return Batch(inputs, inputs.flip(1), torch.ones(size, n, dtype=torch.bool))

    def bag_loss(self) -> float:
        """Smallest expected cross-entropy, in nats, of a model that knows the bag of tokens only.

        It answers with the share c/n of each token, so its loss is the expected entropy of the shares. The
        count c of one token is binomial: the sum over tokens is vocab times one expectation.

        >>> round(Reversal(vocab=12, length=12).bag_loss(), 3)
        1.899
        """
        n, p = self.length, 1 / self.vocab
        expected = sum(
            math.comb(n, c) * p**c * (1 - p) ** (n - c) * (c / n) * math.log(n / c)
            for c in range(1, n + 1)
        )
        return self.vocab * expected

    def bag_accuracy(self) -> float:
        """Highest expected accuracy of a model that knows the bag of tokens only: E[max count] / n.

        The chance that no count exceeds m is n! / vocab^n times the coefficient of z^n in
        (sum of z^j / j! for j <= m)^vocab, counted exactly with whole numbers.

        >>> round(Reversal(vocab=12, length=12).bag_accuracy(), 3)
        0.249
        """
        n = self.length
        total = self.vocab**n
        below = [self._sequences_with_counts_up_to(m) / total for m in range(n + 1)]
        return sum(1 - share for share in below[:n]) / n

    def _sequences_with_counts_up_to(self, m: int) -> int:
        n = self.length
        ways = [1] + [0] * n  # ways[k]: sequences of length k over the tokens seen so far
        for _ in range(self.vocab):
            ways = [
                sum(math.comb(k, c) * ways[k - c] for c in range(min(m, k) + 1))
                for k in range(n + 1)
            ]
        return ways[n]
