"""Two-hop recall in which a pair is one token, so that two looks, one after the other, answer a question."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.floors import bag_entropy
from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class JoinedTwoHop:
    """Some pairs lead from a key to a bridge, others from the bridge to a value; the answer is two steps away.

    Each pair is a token of its own, like an entry of a dictionary, and the pairs stand in random order; then
    all the keys are asked for in random order, each followed by its value. The first look, from a key, finds
    which bridge it leads to, and only then can the second look find the value. Used where a chapter needs
    models whose layers must work one after the other. `gold["bridge"]` and `gold["value"]` hold, at each scored
    position, where the two pairs stand. `recall.TwoHopRecall` tells each pair in two tokens, which takes
    a third look, and many more steps to learn.

    A model that follows the path loses nothing; one that only knows which values are left has `bag_loss`.

    Attributes:
        chains: number of keys in a sequence.
        names: number of different keys, and of different bridges; at least as many as chains.
        values: number of different values, drawn uniformly.

    >>> task = JoinedTwoHop(chains=1, names=3, values=5)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist()
    ([[23, 15, 2]], [4])

    Raises:
        ValueError: when a size is not a positive whole number or there are more chains than names.
    """

    chains: int = 2
    names: int = 3
    values: int = 3
    causal = True

    def __post_init__(self) -> None:
        check_sizes(chains=self.chains, names=self.names, values=self.values)
        self._check_chains(self.chains)

    @property
    def vocab(self) -> int:
        """Keys, values, and the pairs of both kinds."""
        return self.names + self.values + self.names**2 + self.names * self.values

    @property
    def length(self) -> int:
        """Two pairs a chain, and the questions with their answers but for the last one."""
        return 4 * self.chains - 1

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; another length is another number of chains.

        Raises:
            ValueError: when the length is not one less than a multiple of four, or more than names allow.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        if n % 4 != 3:
            raise ValueError(
                f"chains take one less than a multiple of four positions, got length={n}"
            )
        c = (n + 1) // 4
        self._check_chains(c)
        keys, bridges = (self._distinct(generator, size, c, self.names) for _ in range(2))
        values = torch.randint(self.values, (size, c), generator=generator)
        first = self.names + self.values
        second = first + self.names**2
        pairs = torch.cat(
            [first + keys * self.names + bridges, second + bridges * self.values + values], dim=1
        )
        order = self._distinct(generator, size, 2 * c, 2 * c)
        asked = self._distinct(generator, size, c, c)
        answers = torch.stack((keys.gather(1, asked), self.names + values.gather(1, asked)), dim=2)
        whole = torch.cat([pairs.gather(1, order), answers.flatten(1)], dim=1)
        scored = torch.zeros(size, n, dtype=torch.bool)
        scored[:, 2 * c :: 2] = True
        where = order.argsort(1)  # at which place each pair stands
        gold = {}
        for name, pair in (("bridge", asked), ("value", asked + c)):
            gold[name] = torch.full((size, n), -1)
            gold[name][:, 2 * c :: 2] = where.gather(1, pair)
        return Batch(whole[:, :-1], whole[:, 1:], scored, gold=gold)

    def bag_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows the values left but not whose they are."""
        left = range(1, self.chains + 1)
        return math.fsum(bag_entropy(self.values, m) for m in left) / self.chains

    @staticmethod
    def _distinct(generator: torch.Generator, size: int, count: int, of: int) -> torch.Tensor:
        """In each row, `count` different numbers below `of`, in random order."""
        drawn = torch.rand(size, of, generator=generator, dtype=torch.float64)
        return drawn.argsort(1)[:, :count]

    def _check_chains(self, chains: int) -> None:
        if not 1 <= chains <= self.names:
            raise ValueError(
                f"expected at least one chain and at most as many as names={self.names}, got {chains}"
            )
