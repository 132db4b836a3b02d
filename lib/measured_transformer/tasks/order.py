"""Two small tasks about order: one that cannot be done without positions, one that has no use for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class ParityMap:
    """Each token is mapped by one permutation at even positions and by another at odd ones.

    No token needs any other: the answer is a function of the token and of the parity of its place. The two
    permutations differ at every token, so that a model that does not know the parity can do no better than
    guess between two answers.

    Attributes:
        vocab: number of different tokens, drawn uniformly; at least two.
        length: number of tokens; even, so that both parities are equally frequent.
        rule_seed: which permutations.
    """

    vocab: int = 12
    length: int = 12
    rule_seed: int = 0
    causal = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)
        if self.vocab < 2 or self.length % 2:
            raise ValueError(
                "expected at least two tokens and an even length, "
                f"got vocab={self.vocab} and length={self.length}"
            )

    def maps(self) -> Int[Tensor, "parity vocab"]:
        """The image of each token at even and at odd positions."""
        generator = torch.Generator().manual_seed(self.rule_seed)
        even = torch.randperm(self.vocab, generator=generator)
        turn = int(torch.randint(1, self.vocab, (1,), generator=generator))
        return torch.stack((even, (even + turn) % self.vocab))

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; every position is scored."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        parity = (torch.arange(n) % 2).expand(size, n)
        return Batch(inputs, self.maps()[parity, inputs], torch.ones(size, n, dtype=torch.bool))

    def blind_loss(self) -> float:
        """Smallest expected cross-entropy, in nats, of a model that does not know the parity: ln 2."""
        return math.log(2)

    def blind_accuracy(self) -> float:
        """Highest expected accuracy of a model that does not know the parity: one half."""
        return 0.5


@dataclass(frozen=True)
class Duplicates:
    """The answer at each position is 1 if its token occurs elsewhere in the sequence, and 0 if not.

    Whatever order the tokens stand in, each keeps its answer.

    Attributes:
        vocab: number of different tokens, drawn uniformly; at least two, for the two answers.
        length: number of tokens.
    """

    vocab: int = 12
    length: int = 12
    causal = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)
        if self.vocab < 2:
            raise ValueError(f"the answers need at least two tokens, got vocab={self.vocab}")

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; every position is scored."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        same = (inputs[:, :, None] == inputs[:, None, :]).sum(-1)
        return Batch(inputs, (same > 1).long(), torch.ones(size, n, dtype=torch.bool))

    def constant_loss(self) -> float:
        """Cross-entropy, in nats, of the best answer that looks at nothing.

        >>> round(Duplicates(vocab=12, length=12).constant_loss(), 3)
        0.666
        """
        alone = (1 - 1 / self.vocab) ** (self.length - 1)
        return -sum(p * math.log(p) for p in (alone, 1 - alone) if p > 0)
