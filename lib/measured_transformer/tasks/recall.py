"""Associative recall: pairs of a key and a value, then a key; the answer is its value.

Which tokens an answer depends on is known exactly, so that every method that claims to find them can be judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.floors import bag_entropy
from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class AssociativeRecall:
    """Pairs in random order, then some of their keys, each followed by its value.

    With keys below 10 and values from 10 on, ``3 14 7 11 3``, and the answer at the last position is 14. Keys
    never come twice among the pairs; values may. Scored are the keys that ask. The other pairs distract.
    Used where a chapter asks how far back attention can look, and whether attribution methods find the token
    that matters: `gold["key"]` and `gold["value"]` hold, at each scored position, where the key stood first
    and where its value stands.

    A model that finds the value loses nothing; one that only knows which values are left has `bag_loss`.

    Attributes:
        pairs: number of pairs in a sequence.
        queries: how many different keys are asked for.
        keys: number of different keys, at least as many as pairs.
        values: number of different values, drawn uniformly.
        back: which pair is asked for, counted from the last pair, which is 1; any one when None. Only with a
            single query.

    >>> batch = AssociativeRecall(pairs=2, keys=10, values=5).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist(), batch.gold["value"].tolist()
    ([[6, 11, 9, 14, 6]], [11], [[-1, -1, -1, -1, 1]])

    Raises:
        ValueError: when a size is not a positive whole number, there are more pairs than keys or fewer than
            are asked about, or `back` is below 1 or comes with several queries.
    """

    pairs: int = 8
    queries: int = 1
    keys: int = 32
    values: int = 32
    back: int | None = None
    causal = True

    def __post_init__(self) -> None:
        check_sizes(pairs=self.pairs, queries=self.queries, keys=self.keys, values=self.values)
        self._check_pairs(self.pairs)
        if self.back is not None and (self.queries != 1 or self.back < 1):
            raise ValueError(
                "back is the number of one pair, counted from 1, for a single query, got "
                f"back={self.back} and queries={self.queries}"
            )

    @property
    def vocab(self) -> int:
        """The keys and the values."""
        return self.keys + self.values

    @property
    def length(self) -> int:
        """Positions of a batch: pairs, and queries with their answers but for the last one."""
        return 2 * self.pairs + 2 * self.queries - 1

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; another length is another number of pairs.

        Raises:
            ValueError: when the length leaves no whole number of pairs, or one that does not fit.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        pairs, odd = divmod(n + 1 - 2 * self.queries, 2)
        if odd:
            raise ValueError(f"pairs and queries take an odd number of positions, got length={n}")
        self._check_pairs(pairs)
        keys = _distinct(generator, size, pairs, of=self.keys)
        values = self.keys + torch.randint(self.values, (size, pairs), generator=generator)
        asked = _distinct(generator, size, self.queries, of=pairs)
        if self.back is not None:
            asked = torch.full((size, 1), pairs - self.back)
        told = torch.stack((keys, values), dim=2).flatten(1)
        answers = torch.stack((keys.gather(1, asked), values.gather(1, asked)), dim=2).flatten(1)
        whole = torch.cat([told, answers], dim=1)
        scored = torch.zeros(size, n, dtype=torch.bool)
        scored[:, 2 * pairs :: 2] = True
        place = torch.full((size, n), -1)
        place[:, 2 * pairs :: 2] = 2 * asked
        gold = {"key": place, "value": torch.where(scored, place + 1, -1)}
        return Batch(whole[:, :-1], whole[:, 1:], scored, gold=gold)

    def bag_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows the values left but not whose they are."""
        left = range(self.pairs - self.queries + 1, self.pairs + 1)
        return math.fsum(bag_entropy(self.values, m) for m in left) / self.queries

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that never looks at the pairs: ln values."""
        return math.log(self.values)

    def _check_pairs(self, pairs: int) -> None:
        least = max(self.queries, self.back or 1)
        if not least <= pairs <= self.keys:
            raise ValueError(
                f"expected at least {least} pairs, to ask about, and at most as many as keys={self.keys}, "
                f"got {pairs}"
            )


@dataclass(frozen=True)
class TwoHopRecall:
    """Pairs that lead from a key to a bridge and from the bridge to a value; the answer is two steps away.

    With keys below 10, bridges from 10 and values from 20 on, ``12 25 3 12 3``, and the answer at the last
    position is 25: 3 leads to 12, and 12 to 25. The pairs of both kinds stand in random order. Used where a
    chapter asks whether attribution methods follow a path through two layers: `gold["bridge"]` and
    `gold["value"]` hold, at the scored position, where the bridge stands behind its key and the value behind
    its bridge.

    A model that follows the path loses nothing; one that only knows the values has `bag_loss`.

    Attributes:
        chains: number of keys in a sequence.
        names: number of different keys, and of different bridges; at least as many as chains.
        values: number of different values, drawn uniformly.

    >>> batch = TwoHopRecall(chains=1, names=10, values=9).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist()
    ([[11, 22, 6, 11, 6]], [22])
    >>> batch.gold["bridge"][batch.scored].tolist(), batch.gold["value"][batch.scored].tolist()
    ([3], [1])

    Raises:
        ValueError: when a size is not a positive whole number or there are more chains than names.
    """

    chains: int = 4
    names: int = 16
    values: int = 16
    causal = True

    def __post_init__(self) -> None:
        check_sizes(chains=self.chains, names=self.names, values=self.values)
        self._check_chains(self.chains)

    @property
    def vocab(self) -> int:
        """Keys, bridges and values."""
        return 2 * self.names + self.values

    @property
    def length(self) -> int:
        """Two pairs a chain, and the key that asks."""
        return 4 * self.chains + 1

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; another length is another number of chains.

        Raises:
            ValueError: when the length is not one more than a multiple of four, or more than names allow.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        if n % 4 != 1:
            raise ValueError(
                f"chains take one more than a multiple of four positions, got length={n}"
            )
        c = n // 4
        self._check_chains(c)
        keys = _distinct(generator, size, c, of=self.names)
        bridges = self.names + _distinct(generator, size, c, of=self.names)
        values = 2 * self.names + torch.randint(self.values, (size, c), generator=generator)
        first = torch.cat([keys, bridges], dim=1)
        second = torch.cat([bridges, values], dim=1)
        order = _distinct(generator, size, 2 * c, of=2 * c)
        told = torch.stack((first.gather(1, order), second.gather(1, order)), dim=2).flatten(1)
        asked = torch.randint(c, (size, 1), generator=generator)
        whole = torch.cat([told, keys.gather(1, asked), values.gather(1, asked)], dim=1)
        scored = torch.zeros(size, n, dtype=torch.bool)
        scored[:, -1] = True
        where = order.argsort(1)  # at which place each pair stands
        gold = {}
        for name, pair in (("bridge", asked), ("value", asked + c)):
            gold[name] = torch.full((size, n), -1)
            gold[name][:, -1:] = 2 * where.gather(1, pair) + 1
        return Batch(whole[:, :-1], whole[:, 1:], scored, gold=gold)

    def bag_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows the values but not which key leads there."""
        return bag_entropy(self.values, self.chains)

    def _check_chains(self, chains: int) -> None:
        if not 1 <= chains <= self.names:
            raise ValueError(
                f"expected at least one chain and at most as many as names={self.names}, got {chains}"
            )


def _distinct(
    generator: torch.Generator, size: int, count: int, *, of: int
) -> Int[Tensor, "row item"]:
    """In each row, `count` different numbers below `of`, in random order."""
    return torch.rand(size, of, generator=generator, dtype=torch.float64).argsort(1)[:, :count]
