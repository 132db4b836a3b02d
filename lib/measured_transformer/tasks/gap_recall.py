"""Associative recall over gaps of several lengths in one batch, all sequences of it equally long."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch

from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.task import Batch, check_sizes

Fillers = Literal["one", "words"]


@dataclass(frozen=True)
class GapRecall:
    """`JoinedRecall` with fillers before the pairs and behind them: gaps differ, and lengths do not.

    Each sequence draws one of `gaps`, which is how many fillers part its last pair from the first question; the
    others come first. Fillers are all the same token, or keys and values drawn at random: the tokens that the
    questions and answers are made of, which a memory has to leave alone. Used by the chapter that compares
    attention with recurrence. `gold["gap"]` holds the gap at each scored position.

    Attributes:
        pairs, queries, keys, values: as for `JoinedRecall`.
        gaps: which gaps there are.
        fillers: one, or words.

    >>> task = GapRecall(pairs=2, queries=1, keys=10, values=5, gaps=(1, 3))
    >>> batch = task.batch(torch.Generator().manual_seed(1), 2)
    >>> batch.inputs.tolist(), batch.gold["gap"][batch.scored].tolist()
    ([[15, 15, 16, 45, 15, 5], [15, 15, 36, 44, 15, 5]], [1, 1])

    Raises:
        ValueError: as `JoinedRecall`, and when there is no gap, or no such kind of fillers.
    """

    pairs: int = 3
    queries: int = 3
    keys: int = 6
    values: int = 6
    gaps: tuple[int, ...] = (4, 16, 64)
    fillers: Fillers = "one"
    causal = True

    def __post_init__(self) -> None:
        check_sizes(**{f"gaps[{i}]": gap for i, gap in enumerate(self.gaps)})
        if not self.gaps or self.fillers not in get_args(Fillers):
            raise ValueError(
                "expected at least one gap, and fillers to be one of "
                f"{', '.join(get_args(Fillers))}, got {self.gaps} and {self.fillers!r}"
            )
        JoinedRecall(self.pairs, self.queries, self.keys, self.values)  # checks the rest

    @cached_property
    def recall(self) -> JoinedRecall:
        """The same task without fillers."""
        return JoinedRecall(self.pairs, self.queries, self.keys, self.values)

    @property
    def vocab(self) -> int:
        """Keys, values, the filler and the pairs."""
        return self.recall.vocab

    @property
    def length(self) -> int:
        """Positions of a batch."""
        return self.recall.length + max(self.gaps)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences.

        Raises:
            ValueError: when another length is asked for.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        if n != self.length:
            raise ValueError(f"expected the length that the gaps make, {self.length}, got {n}")
        told = self.recall.batch(generator, size)
        whole = torch.cat((told.inputs, told.targets[:, -1:]), dim=1)
        span = max(self.gaps)
        choice = torch.randint(len(self.gaps), (size, 1), generator=generator)
        gap = torch.tensor(self.gaps)[choice]
        words = self.keys + self.values
        drawn = torch.randint(words, (size, n + 1), generator=generator)
        row = drawn if self.fillers == "words" else torch.full_like(drawn, words)
        place = torch.arange(self.pairs + 2 * self.queries)
        shift = torch.where(place < self.pairs, span - gap, torch.full_like(gap, span))
        row = row.scatter(1, place + shift, whole)
        scored = torch.zeros(size, n, dtype=torch.bool)
        scored[:, self.pairs + span :: 2] = True
        gold = {"gap": torch.where(scored, gap, -1)}
        return Batch(row[:, :-1], row[:, 1:], scored, gold=gold)

    def bag_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows the values left but not whose they are."""
        return self.recall.bag_loss()

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that never looks at the pairs: ln values."""
        return self.recall.blind_loss()
