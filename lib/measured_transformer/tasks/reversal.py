"""Sequence reversal: the answer at position i is the token at position n - 1 - i.

A model that knows which tokens there are, but not where, can do no better than guess by their shares. That
floor is computed exactly, so a model without positions has a number to be compared with.
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

    Raises:
        ValueError: when a size is not positive.
    """

    vocab: int = 12
    length: int = 12
    causal = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of `length` tokens; every position is scored.

        Raises:
            ValueError: when a size is not positive.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        return Batch(inputs, inputs.flip(1), torch.ones(size, n, dtype=torch.bool))

    @property
    def candidates(self) -> int:
        """How many tokens of the sequence could be the answer, for a model without positions.

        It sees its own token and the bag of the others. With an even length no token is its own answer,
        so the other n - 1 remain, all equally likely. With an odd length the middle token is its own
        answer; not knowing whether it stands there, the model is left with all n.
        """
        return self.length if self.length % 2 else self.length - 1

    def bag_loss(self) -> float:
        """Smallest expected cross-entropy, in nats, of a model that knows all tokens but no positions.

        It answers with the share c/m of each token among the m candidates, so its loss is the expected
        entropy of the shares. The count c of one token is binomial: the sum over tokens is vocab times
        one expectation.

        >>> round(Reversal(vocab=12, length=12).bag_loss(), 3)
        1.899
        """
        m, p = self.candidates, 1 / self.vocab
        expected = sum(
            math.comb(m, c) * p**c * (1 - p) ** (m - c) * (c / m) * math.log(m / c)
            for c in range(1, m + 1)
        )
        return self.vocab * expected

    def bag_accuracy(self) -> float:
        """Highest expected accuracy of a model that knows all tokens but no positions: E[max count] / m.

        The number of sequences of m candidates in which no token comes more than k times is counted
        exactly, with whole numbers, one token of the vocabulary after the other.

        >>> round(Reversal(vocab=12, length=12).bag_accuracy(), 3)
        0.247
        """
        m, total = self.candidates, self.vocab**self.candidates
        return sum(1 - self._sequences(m, k) / total for k in range(m)) / m

    def _sequences(self, m: int, most: int) -> int:
        ways = [1] + [0] * m  # ways[n]: sequences of length n over the tokens seen so far
        for _ in range(self.vocab):
            ways = [
                sum(math.comb(n, c) * ways[n - c] for c in range(min(n, most) + 1))
                for n in range(m + 1)
            ]
        return ways[m]
