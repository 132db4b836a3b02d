"""Associative recall in which a pair is one token, so that one look answers a question."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class JoinedRecall:
    """`AssociativeRecall` told in whole pairs: each is a token of its own, like an entry of a dictionary.

    With keys below 6, values from 6 on, a filler 12 and a token for each of the 36 pairs, two pairs and three
    fillers between: ``13 24 12 12 12 1``, where 24 stands for key 1 and value 11, and the answer at the last
    position is 11. Used where a chapter asks how far back a model can look, apart from how it learns that what
    stands side by side belongs together. `gold["pair"]` holds, at each scored position, where the pair stands.

    A model that finds the pair loses nothing; one that only knows which values are left has `bag_loss`.

    Attributes:
        pairs, queries, keys, values: as for `AssociativeRecall`.
        between: fillers between the last pair and the first question.

    >>> task = JoinedRecall(pairs=2, queries=1, keys=10, values=5, between=2)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist(), batch.gold["pair"].tolist()
    ([[47, 65, 15, 15, 6]], [11], [[-1, -1, -1, -1, 0]])
    >>> divmod(47 - 16, 5)  # key 6, and value 1 of the five: token 11
    (6, 1)

    Raises:
        ValueError: as `AssociativeRecall`, and when `between` is negative or no whole number.
    """

    pairs: int = 3
    queries: int = 1
    keys: int = 6
    values: int = 6
    between: int = 0
    causal = True

    def __post_init__(self) -> None:
        if isinstance(self.between, bool) or not isinstance(self.between, int) or self.between < 0:
            raise ValueError(f"between must be a whole number of at least 0, got {self.between!r}")
        AssociativeRecall(self.pairs, self.queries, self.keys, self.values)  # checks the rest

    @cached_property
    def recall(self) -> AssociativeRecall:
        """The same task with a pair told in two tokens, and no filler."""
        return AssociativeRecall(self.pairs, self.queries, self.keys, self.values)

    @property
    def vocab(self) -> int:
        """Keys, values, the filler and the pairs."""
        return self.recall.vocab + 1 + self.keys * self.values

    @property
    def length(self) -> int:
        """Positions of a batch: pairs, fillers, and questions with their answers but for the last one."""
        return self.pairs + self.between + 2 * self.queries - 1

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; another length is another number of pairs.

        Raises:
            ValueError: when the length leaves too few pairs, or more than there are keys.
        """
        n = self.length if length is None else length
        check_sizes(length=n)
        pairs = n + 1 - self.between - 2 * self.queries
        if pairs < 1:
            raise ValueError(
                f"{self.between} fillers and {self.queries} questions leave no room for pairs in length={n}"
            )
        told = self.recall.batch(generator, size, length=2 * pairs + 2 * self.queries - 1)
        key, value = told.inputs[:, : 2 * pairs].unflatten(1, (pairs, 2)).unbind(2)
        first = self.recall.vocab + 1
        joined = first + key * self.values + (value - self.keys)
        fill = torch.full((size, self.between), self.recall.vocab)
        asked = torch.cat([told.inputs[:, 2 * pairs :], told.targets[:, -1:]], dim=1)
        whole = torch.cat([joined, fill, asked], dim=1)
        scored = torch.zeros(size, n, dtype=torch.bool)
        scored[:, pairs + self.between :: 2] = True
        place = torch.full((size, n), -1)
        place[scored] = told.gold["key"][told.scored] // 2
        return Batch(whole[:, :-1], whole[:, 1:], scored, gold={"pair": place})

    def bag_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows the values left but not whose they are."""
        return self.recall.bag_loss()

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that never looks at the pairs: ln values."""
        return self.recall.blind_loss()
