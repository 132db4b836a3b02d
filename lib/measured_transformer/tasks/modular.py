"""Modular addition: an answer that no single token tells anything about."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.floors import entropy
from measured_transformer.tasks.split import split_items
from measured_transformer.tasks.task import Batch, Part, check_sizes


@dataclass(frozen=True)
class ModularAddition:
    """Two numbers and an equals sign in, their sum modulo `modulus` out.

    With a modulus of 7 and 7 for the equals sign, ``3 2 7``, and the answer at its last position is 5; nothing
    else is scored. There are modulus^2 sums, and a + b is b + a: what is divided among training, validation
    and test are the pairs of numbers without their order, and a part has both orders of its pairs. So a model
    can be asked for sums that it never saw, not even the other way round. Used where a chapter asks what
    attention cannot compute without a feed-forward network.

    A model that knows the rule loses nothing; one that looks at a single number has `blind_loss`.

    Attributes:
        modulus: the numbers are those below it.
        train_share: share of the pairs that training draws from; validation and test get half the rest each.
        part: which sums are drawn.
        split_seed: which pairs belong to which part.

    >>> batch = ModularAddition(modulus=7).batch(torch.Generator().manual_seed(1), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist()
    ([[3, 2, 7]], [[2, 7, 5]], [[False, False, True]])
    """

    modulus: int = 59
    train_share: float = 0.8
    part: Part = "train"
    split_seed: int = 0
    causal = True

    def __post_init__(self) -> None:
        check_sizes(modulus=self.modulus)
        self.sums()

    @property
    def vocab(self) -> int:
        """The numbers and the equals sign."""
        return self.modulus + 1

    @property
    def length(self) -> int:
        """Two numbers and the equals sign."""
        return 3

    @property
    def equals(self) -> int:
        """The token that asks for the answer: the last one of the vocabulary."""
        return self.modulus

    def sums(self) -> Int[Tensor, "item 2"]:
        """Both numbers of every sum in this part: each of its pairs in both orders, doubles once."""
        pairs = torch.combinations(torch.arange(self.modulus), with_replacement=True)
        kept = split_items(
            len(pairs), self.part, train_share=self.train_share, seed=self.split_seed
        )
        own = pairs[kept]
        return torch.cat((own, own[own[:, 0] < own[:, 1]].flip(1)))

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sums of this part, with replacement.

        Raises:
            ValueError: when another length than 3 is asked for.
        """
        check_sizes(size=size)
        if length not in (None, self.length):
            raise ValueError(f"a sum has {self.length} tokens, got length={length}")
        sums = self.sums()
        terms = sums[torch.randint(len(sums), (size,), generator=generator)]
        answer = terms.sum(1, keepdim=True) % self.modulus
        whole = torch.cat([terms, torch.full((size, 1), self.equals), answer], dim=1)
        scored = torch.tensor([False, False, True]).expand(size, 3).clone()
        return Batch(whole[:, :-1], whole[:, 1:], scored)

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that sees only the first number, on this part's sums.

        Close to ln modulus: over all sums, every answer would be equally likely.
        """
        by_first = [Counter[int]() for _ in range(self.modulus)]
        for a, b in self.sums().tolist():
            by_first[a][(a + b) % self.modulus] += 1
        total = sum(counts.total() for counts in by_first)
        return sum(
            counts.total() / total * entropy([c / counts.total() for c in counts.values()])
            for counts in by_first
            if counts
        )
