"""Recall of the newest value: keys are told again and again, and what counts is what was told last."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class OverwrittenRecall:
    """Pairs of a key and a value, a token each, whose keys come more than once; then keys alone.

    Keys are the tokens below `keys`, values those from there on, and after them comes a token for each pair.
    The answer at a key is the value that it was told with last. Every pair is drawn by itself, key and value,
    and every question is drawn from the keys that were told. `gold["pair"]` holds, at each scored position,
    where the pair stands that answers it, and `gold["told"]` how often the key was told.

    Attributes:
        told: number of pairs.
        queries: number of questions.
        keys, values: how many there are of each.

    >>> task = OverwrittenRecall(told=4, queries=2, keys=2, values=5)
    >>> batch = task.batch(torch.Generator().manual_seed(7), 1)
    >>> [divmod(token - 7, 5) for token in batch.inputs[0, :4].tolist()]
    [(1, 3), (0, 2), (1, 2), (0, 4)]
    >>> batch.inputs[0, 4:].tolist(), (batch.targets[batch.scored] - 2).tolist()
    ([1, 0], [2, 4])

    Raises:
        ValueError: when a number is not a positive whole one.
    """

    told: int = 16
    queries: int = 4
    keys: int = 8
    values: int = 8
    causal = True

    def __post_init__(self) -> None:
        check_sizes(told=self.told, queries=self.queries, keys=self.keys, values=self.values)

    @property
    def vocab(self) -> int:
        """Keys, values and pairs."""
        return self.keys + self.values + self.keys * self.values

    @property
    def length(self) -> int:
        """Positions of a batch: pairs and questions."""
        return self.told + self.queries

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; another length is another number of pairs.

        Raises:
            ValueError: when a size is not a positive whole number, or the length leaves no room for a pair.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        told = n - self.queries
        if told < 1:
            raise ValueError(f"{self.queries} questions leave no room for pairs in length={n}")
        key = torch.randint(self.keys, (size, told), generator=generator)
        value = torch.randint(self.values, (size, told), generator=generator)
        drawn = torch.randint(told, (size, self.queries), generator=generator)
        asked = key.gather(1, drawn)
        same = asked[:, :, None] == key[:, None, :]
        newest = told - 1 - same.flip(2).int().argmax(2)
        pairs = self.keys + self.values + key * self.values + value
        scored = torch.zeros(size, n, dtype=torch.bool)
        scored[:, told:] = True
        targets = torch.cat([pairs, self.keys + value.gather(1, newest)], 1)
        place, times = (torch.full((size, n), -1) for _ in range(2))
        place[:, told:], times[:, told:] = newest, same.sum(2)
        gold = {"pair": place, "told": times}
        return Batch(torch.cat([pairs, asked], 1), targets, scored, gold=gold)

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that never looks at the pairs: ln values."""
        return math.log(self.values)
