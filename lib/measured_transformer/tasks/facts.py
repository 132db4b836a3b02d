"""A table of facts: a subject and a relation, and the object that belongs to them.

Nothing in a pair tells its object: the table is drawn at random, so that all a model can do is to keep it. What
it has kept can be counted, fact by fact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Facts:
    """Reads a subject and a relation and answers with the object that the table has for them.

    Tokens are numbered subjects first, then relations, then objects: with 8 subjects and 4 relations, ``3 9``
    asks for the second relation of the fourth subject. The table has `count` of all pairs of a subject and a
    relation, each with an object drawn uniformly; a smaller table with the same seed is the beginning of a
    larger one. Training and evaluation see the same facts, all of them: to keep them is the task. A batch holds
    every fact once before it holds one twice. Only the relation's position is scored; `gold["fact"]` holds the
    fact's number in the table.

    A model that has kept the table loses nothing; one that knows the objects, and how often each comes, has
    `blind_loss`.

    Attributes:
        count: number of facts.
        subjects: number of different subjects.
        relations: number of different relations.
        objects: number of different objects.
        seed: of the table.

    >>> task = Facts(count=3, subjects=8, relations=4, objects=5)
    >>> task.table().tolist()
    [[3, 8, 14], [7, 11, 15], [6, 9, 12]]
    >>> batch = task.batch(torch.Generator().manual_seed(0), 2)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist()
    ([[6, 9], [3, 8]], [12, 14])

    Raises:
        ValueError: when a size is not a positive whole number, or there are more facts than pairs.
    """

    count: int
    subjects: int = 64
    relations: int = 16
    objects: int = 16
    seed: int = 0
    causal = True

    def __post_init__(self) -> None:
        check_sizes(
            count=self.count,
            subjects=self.subjects,
            relations=self.relations,
            objects=self.objects,
        )
        if self.count > self.subjects * self.relations:
            raise ValueError(
                f"{self.subjects} subjects and {self.relations} relations make "
                f"{self.subjects * self.relations} pairs, got count={self.count}"
            )

    @property
    def vocab(self) -> int:
        """Subjects, relations and objects."""
        return self.subjects + self.relations + self.objects

    @property
    def length(self) -> int:
        """Positions of a batch: the subject and the relation."""
        return 2

    def table(self) -> Int[Tensor, "fact 3"]:
        """Subject, relation and object of every fact, as tokens."""
        return _drawn(self).clone()

    def facts(self) -> Batch:
        """Every fact once, in the order of the table."""
        return self._rows(torch.arange(self.count))

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` facts: in random order, none twice before each has come once.

        Raises:
            ValueError: when the size is not positive or the length another than two.
        """
        check_sizes(size=size)
        if length not in (None, self.length):
            raise ValueError(
                f"a fact is asked for by a subject and a relation, got length={length}"
            )
        rounds = -(-size // self.count)
        rows = torch.cat([torch.randperm(self.count, generator=generator) for _ in range(rounds)])
        return self._rows(rows[:size])

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows the table's objects, but reads nothing."""
        counts = torch.bincount(_drawn(self)[:, 2]).tolist()
        return -math.fsum(n / self.count * math.log(n / self.count) for n in counts if n)

    def _rows(self, rows: Int[Tensor, "row"]) -> Batch:
        drawn = _drawn(self)[rows]
        scored = torch.zeros(len(rows), 2, dtype=torch.bool)
        scored[:, 1] = True
        return Batch(drawn[:, :2].clone(), drawn[:, 1:].clone(), scored, gold={"fact": rows})


@lru_cache(maxsize=64)
def _drawn(task: Facts) -> Tensor:
    generator = torch.Generator().manual_seed(task.seed)
    pairs = torch.randperm(task.subjects * task.relations, generator=generator)
    objects = torch.randint(task.objects, (len(pairs),), generator=generator)
    subject, relation = pairs // task.relations, task.subjects + pairs % task.relations
    table = torch.stack([subject, relation, task.subjects + task.relations + objects], dim=1)
    return table[: task.count]
