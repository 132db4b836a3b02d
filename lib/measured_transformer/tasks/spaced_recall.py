"""Associative recall with tokens that mean nothing: before the pairs, and between them and the questions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class SpacedRecall:
    """`AssociativeRecall` with fillers: at the start, where spare attention can be put, and on the way.

    With keys below 10, values from 10 and fillers from 20 on, one before and three between:
    ``22 3 14 7 11 20 22 21 3``, and the answer at the last position is 14. Used where a chapter asks
    what becomes of attention that nothing needs. `gold["key"]` and `gold["value"]`
    are those of `AssociativeRecall`.

    Attributes:
        pairs, queries, keys, values: as for `AssociativeRecall`.
        before: fillers before the first pair.
        between: fillers between the last pair and the first question.
        fillers: number of different fillers, drawn uniformly.

    >>> task = SpacedRecall(pairs=2, queries=1, keys=10, values=5, before=1, between=2, fillers=1)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist(), batch.gold["value"][0, -1].item()
    ([[15, 6, 11, 9, 14, 15, 15, 6]], [11], 2)

    Raises:
        ValueError: as `AssociativeRecall`, and when `before` or `between` is negative or no whole number.
    """

    pairs: int = 4
    queries: int = 1
    keys: int = 8
    values: int = 8
    before: int = 1
    between: int = 0
    fillers: int = 1
    causal = True

    def __post_init__(self) -> None:
        check_sizes(fillers=self.fillers)
        for name, number in (("before", self.before), ("between", self.between)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise ValueError(f"{name} must be a whole number of at least 0, got {number!r}")
        AssociativeRecall(self.pairs, self.queries, self.keys, self.values)  # checks the rest

    @cached_property
    def recall(self) -> AssociativeRecall:
        """The same task without fillers."""
        return AssociativeRecall(self.pairs, self.queries, self.keys, self.values)

    @property
    def vocab(self) -> int:
        """Keys, values and fillers."""
        return self.recall.vocab + self.fillers

    @property
    def length(self) -> int:
        """Positions of a batch: those of the recall, and the fillers."""
        return self.recall.length + self.before + self.between

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; another length is another number of pairs.

        Raises:
            ValueError: as `AssociativeRecall.batch`.
        """
        n = self.length if length is None else length
        spaces = self.before + self.between
        check_sizes(length=n)
        if n <= spaces:
            raise ValueError(f"{spaces} fillers leave no room for pairs in length={n}")
        told = self.recall.batch(generator, size, length=n - spaces)
        fill = self.recall.vocab + torch.randint(self.fillers, (size, spaces), generator=generator)
        cut = n - spaces - 2 * self.queries + 1  # where the pairs end
        whole = torch.cat([told.inputs, told.targets[:, -1:]], dim=1)
        whole = torch.cat(
            [fill[:, : self.before], whole[:, :cut], fill[:, self.before :], whole[:, cut:]], dim=1
        )
        scored = torch.zeros(size, n, dtype=torch.bool)
        scored[:, cut + spaces :: 2] = True
        gold = {}
        for name, places in told.gold.items():
            gold[name] = torch.full((size, n), -1)
            gold[name][scored] = places[told.scored] + self.before
        return Batch(whole[:, :-1], whole[:, 1:], scored, gold=gold)

    def bag_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows the values left but not whose they are."""
        return self.recall.bag_loss()

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that never looks at the pairs: ln values."""
        return self.recall.blind_loss()
