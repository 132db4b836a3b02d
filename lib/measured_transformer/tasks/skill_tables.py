"""Several tables over the same items; the first token says which of them is asked."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class SkillTables:
    """The first token names a skill, the others are items; the skill's table has the answer to each item.

    Each skill has a random table of its own, in which every answer belongs to about as many items as any other.
    Tables have no rule and nothing to do with one another, so all of them must be stored. Skills and items are
    independent and uniform. Tokens are numbered items first, then skills; the skill's own position is not
    scored.

    A model that knows the tables loses nothing; one that does not know the skill can do no better than guess
    from how often an item has each answer.

    Attributes:
        skills: number of tables.
        items: number of items.
        answers: number of different answers, at most as many as items.
        length: tokens of a row, the skill included.
        table_seed: which tables.

    >>> task = SkillTables(skills=2, items=4, answers=2, length=4)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> task.entries().tolist(), batch.inputs.tolist(), batch.targets.tolist()
    ([[0, 1, 1, 0], [0, 0, 1, 1]], [[4, 3, 1, 0]], [[0, 0, 1, 0]])

    Raises:
        ValueError: when a size is not a positive whole number, a row has no item, or there are more answers
            than items.
    """

    skills: int = 8
    items: int = 64
    answers: int = 16
    length: int = 8
    table_seed: int = 0
    causal = True

    def __post_init__(self) -> None:
        check_sizes(skills=self.skills, items=self.items, answers=self.answers, length=self.length)
        if self.answers > self.items or self.length < 2:
            raise ValueError(
                f"expected at most {self.items} answers and at least two tokens, got {self.answers} "
                f"and length={self.length}"
            )

    @property
    def vocab(self) -> int:
        """Items and skills."""
        return self.items + self.skills

    def entries(self) -> Int[Tensor, "skill item"]:
        """The right answer to each item, a row for each skill."""
        generator = torch.Generator().manual_seed(self.table_seed)
        rows = [torch.randperm(self.items, generator=generator) for _ in range(self.skills)]
        return torch.stack(rows) % self.answers

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` rows.

        Raises:
            ValueError: when `size` is not a positive whole number or a row would have no item.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        if n < 2:
            raise ValueError(f"a row has a skill and an item at least, got length={n}")
        skills = torch.randint(self.skills, (size, 1), generator=generator)
        items = torch.randint(self.items, (size, n - 1), generator=generator)
        inputs = torch.cat([self.items + skills, items], dim=1)
        targets = torch.cat([torch.zeros_like(skills), self.entries()[skills, items]], dim=1)
        scored = torch.ones_like(inputs, dtype=torch.bool)
        scored[:, 0] = False
        return Batch(inputs, targets, scored)
