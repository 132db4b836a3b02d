"""Two small tasks about order: one that cannot be done without positions, one that has no use for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class PlaceMap:
    """Each token is mapped by one of two permutations, which take turns every `block` positions.

    No token needs any other: the answer is a function of the token and of its place. With blocks of one the
    parity of the position decides, with blocks of half the length the half of the sequence. The two
    permutations differ at every token, so that a model that does not know the place can do no better than
    guess between two answers.

    Attributes:
        vocab: number of different tokens, drawn uniformly; at least two.
        length: number of tokens; a multiple of twice the block, so that both maps are equally frequent.
        block: number of neighbouring positions that share a map.
        rule_seed: which permutations.

    Raises:
        ValueError: when a size is not positive, there are fewer than two tokens, or `length` is another.
    """

    vocab: int = 12
    length: int = 12
    block: int = 1
    rule_seed: int = 0
    causal = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length, block=self.block)
        if self.vocab < 2 or self.length % (2 * self.block):
            raise ValueError(
                "expected at least two tokens and a length that is a multiple of twice the block, got "
                f"vocab={self.vocab}, length={self.length} and block={self.block}"
            )

    def maps(self) -> Int[Tensor, "map vocab"]:
        """The image of each token under the first and under the second map."""
        generator = torch.Generator().manual_seed(self.rule_seed)
        first = torch.randperm(self.vocab, generator=generator)
        turn = int(torch.randint(1, self.vocab, (1,), generator=generator))
        return torch.stack((first, (first + turn) % self.vocab))

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; every position is scored. Raises ValueError for a size below one."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        which = (torch.arange(n) // self.block % 2).expand(size, n)
        return Batch(inputs, self.maps()[which, inputs], torch.ones(size, n, dtype=torch.bool))

    def blind_loss(self) -> float:
        """Smallest expected cross-entropy, in nats, of a model that does not know the place: ln 2."""
        return math.log(2)

    def blind_accuracy(self) -> float:
        """Highest expected accuracy of a model that does not know the place: one half."""
        return 0.5


@dataclass(frozen=True)
class Duplicates:
    """The answer at each position is 1 if its token occurs elsewhere in the sequence, and 0 if not.

    Whatever order the tokens stand in, each keeps its answer.

    Attributes:
        vocab: number of different tokens, drawn uniformly; at least two, for the two answers.
        length: number of tokens.

    Raises:
        ValueError: when a size is not positive or there are fewer than two tokens.
    """

    vocab: int = 12
    length: int = 12
    causal = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)
        if self.vocab < 2:
            raise ValueError(f"the answers need at least two tokens, got vocab={self.vocab}")

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; every position is scored. Raises ValueError for a size below one."""
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
