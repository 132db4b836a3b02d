"""A task whose answers belong to other sequences: a control that teaches frequencies alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from measured_transformer.tasks.task import Batch, Task


@dataclass(frozen=True)
class PermutedAnswers:
    """Another task's sequences, each with the answers of the next one in the batch.

    A model trained on it has the weights, the inputs and the frequencies of the answers of a model that is
    trained on the task itself, and no reason to look at anything. What a method of attribution still finds in
    it, it finds by habit (Adebayo et al., 2018). All that is known about the sequences stays as it is.

    Attributes:
        task: whose sequences they are.

    >>> from measured_transformer.tasks.joined_recall import JoinedRecall
    >>> one = PermutedAnswers(JoinedRecall(pairs=2, queries=1))
    >>> two = one.task.batch(torch.Generator().manual_seed(0), 2)
    >>> own = one.batch(torch.Generator().manual_seed(0), 2)
    >>> own.targets[:, -1].tolist() == two.targets[:, -1].flip(0).tolist()
    True
    """

    task: Task
    causal = True

    @property
    def vocab(self) -> int:
        """That of the task."""
        return self.task.vocab

    @property
    def length(self) -> int:
        """That of the task."""
        return self.task.length

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences. Raises ValueError as the task does."""
        drawn = self.task.batch(generator, size, length=length)
        return replace(drawn, targets=drawn.targets.roll(1, 0))
