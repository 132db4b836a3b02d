"""Balanced brackets of several kinds (Dyck words), every one of a length equally likely."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Brackets:
    """Brackets that open and close in the right order, behind a start token.

    With two kinds, 0 and 1 open, 2 and 3 close, and 4 is the start: ``4 0 1 3 2`` is the word ``([])`` behind
    its start. Every position is scored on the next token. Which bracket closes next is certain, when one
    closes: it is the last one left open. `gold["partner"]` holds, where the target closes a bracket, the
    place among the inputs where that bracket was opened, and `gold["depth"]` how many are open after each
    input. Used where a chapter asks how a model counts and what it keeps on a stack.

    Nothing can do better than `bayes_loss`; a model that counts depth but forgets kinds has `kindless_loss`.

    Attributes:
        kinds: number of kinds of brackets.
        length: tokens of a word, even; no word goes on behind it.
        max_depth: most brackets that are open at once.

    >>> batch = Brackets(kinds=2, length=4).batch(torch.Generator().manual_seed(3), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist(), batch.gold["partner"].tolist()
    ([[4, 1, 1, 3]], [[1, 1, 3, 3]], [[-1, -1, 2, 1]])

    Raises:
        ValueError: when a size is not a positive whole number or `length` is odd.
    """

    kinds: int = 2
    length: int = 24
    max_depth: int = 6
    causal = True

    def __post_init__(self) -> None:
        check_sizes(kinds=self.kinds, length=self.length, max_depth=self.max_depth)
        self._check_length(self.length)

    @property
    def vocab(self) -> int:
        """Opening and closing brackets, and the start."""
        return 2 * self.kinds + 1

    @property
    def start(self) -> int:
        """The token before the word: the last one of the vocabulary."""
        return 2 * self.kinds

    def words(self, length: int | None = None) -> int:
        """How many words there are.

        >>> Brackets(kinds=1, length=8, max_depth=4).words(), Brackets(kinds=2, length=4).words()
        (14, 8)
        """
        n = self.length if length is None else length
        return _ways(self.kinds, self.max_depth, n)[n][0]

    def opening(self, length: int) -> Float[Tensor, "left depth"]:
        """The chance that the next bracket opens, by the number of tokens left and of brackets open."""
        ways = _ways(self.kinds, self.max_depth, length)
        table = torch.zeros(length + 1, self.max_depth + 1, dtype=torch.float64)
        for left in range(1, length + 1):
            for depth in range(self.max_depth):
                if ways[left][depth]:
                    more = self.kinds * ways[left - 1][depth + 1]
                    table[left, depth] = more / ways[left][depth]
        return table

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` words.

        Raises:
            ValueError: when a size is not a positive whole number or `length` is odd.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        self._check_length(n)
        chances = self.opening(n)
        draws = torch.rand(size, n, generator=generator, dtype=torch.float64)
        kinds = torch.randint(self.kinds, (size, n), generator=generator)
        rows = torch.arange(size)
        opened = torch.zeros(size, self.max_depth + 1, dtype=torch.long)  # kinds on the stack
        places = torch.zeros_like(opened)  # where among the inputs they were opened
        depth = torch.zeros(size, dtype=torch.long)
        word, partner, depths = [], [], []
        for t in range(n):
            depths.append(depth)
            opens = draws[:, t] < chances[n - t, depth]
            top = (depth - 1).clamp_min(0)
            word.append(torch.where(opens, kinds[:, t], self.kinds + opened[rows, top]))
            partner.append(torch.where(opens, -1, places[rows, top]))
            # Above the top of the stack it does not matter what is written.
            opened[rows, depth] = kinds[:, t]
            places[rows, depth] = t + 1
            depth = depth + torch.where(opens, 1, -1)
        whole = torch.stack([torch.full((size,), self.start), *word], dim=1)
        return Batch(
            whole[:, :-1],
            whole[:, 1:],
            torch.ones(size, n, dtype=torch.bool),
            gold={"partner": torch.stack(partner, 1), "depth": torch.stack(depths, 1)},
        )

    def ideal_losses(self, batch: Batch) -> Float[Tensor, "batch position"]:
        """Cost of each token, on this very batch, of the predictor that knows the chances of all words."""
        n = batch.inputs.shape[1]
        left = n - torch.arange(n)
        opens = self.opening(n)[left, batch.gold["depth"].cpu()]
        chance = torch.where(batch.targets.cpu() < self.kinds, opens / self.kinds, 1 - opens)
        return -chance.log()

    def bayes_loss(self) -> float:
        """Smallest expected loss, in nats a token: as all words are equally likely, ln(words) / length.

        >>> round(Brackets(kinds=2, length=4).bayes_loss(), 3)
        0.52
        """
        return math.log(self.words()) / self.length

    def kindless_loss(self) -> float:
        """Smallest expected loss, in nats a token, of a model that knows the depth but not what is open.

        Half of the tokens close a bracket, and for each of them it has to guess the kind.
        """
        return self.bayes_loss() + math.log(self.kinds) / 2

    def _check_length(self, length: int) -> None:
        if length % 2:
            raise ValueError(
                f"every bracket that opens must close: length must be even, got {length}"
            )


@cache
def _ways(kinds: int, max_depth: int, length: int) -> list[list[int]]:
    """How many ways there are to go on, by tokens left and brackets open, and end with all of them closed."""
    table = [[1] + [0] * max_depth]
    for _ in range(length):
        before = table[-1]
        table.append(
            [
                (kinds * before[depth + 1] if depth < max_depth else 0)
                + (before[depth - 1] if depth else 0)
                for depth in range(max_depth + 1)
            ]
        )
    return table
