"""Products of permutations: where things stand after one reordering, and another, and another."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes

Moves = Literal["swaps", "all"]
"""Which reorderings there are, see `PermutationProducts`."""
Asked = Literal["place", "order"]
"""What is asked after each of them, see `PermutationProducts`."""


@dataclass(frozen=True)
class PermutationProducts:
    r"""Each token reorders some objects; the answer at each position is what all so far have come to.

    With `moves="swaps"` and `asked="place"` this is the shell game: a ball lies under one of some cups, each
    token swaps two cups (or none), and the answer is where the ball is now. With `moves="all"` and
    `asked="order"` it is the word problem of the symmetric group: the answer is the product of all
    permutations so far, itself a permutation.

    Reorderings do not commute, so no count of the tokens gives the answer: each result has to be made of
    earlier ones. A model whose blocks join two results each can join at most $2^L$ tokens in L blocks, so the
    length of the task sets the depth that it takes (Liu et al. 2023, "Transformers learn shortcuts to
    automata", say when shallower solutions exist and how wide they are).

    Attributes:
        objects: how many objects (cups) are reordered, two to five.
        length: number of reorderings in a sequence.
        moves: 'swaps': token 0 changes nothing, every other exchanges two places; 'all': every permutation, in
            the order of `itertools.permutations`.
        asked: 'place': where the object is that began at `start`; 'order': the number of the whole
            permutation, in the order of `itertools.permutations`.
        start: the place at which the object begins, counted from 0.

    >>> task = PermutationProducts(objects=3, length=4)
    >>> task.reorderings().tolist()
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]]
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[0, 3, 1, 0]], [[0, 2, 1, 1]])

    Raises:
        ValueError: when a size is not a positive whole number, there are not two to five objects, a choice is
            unknown, or there is no such place to start at.
    """

    objects: int = 3
    length: int = 6
    moves: Moves = "swaps"
    asked: Asked = "place"
    start: int = 0
    causal = True

    def __post_init__(self) -> None:
        check_sizes(objects=self.objects, length=self.length)
        if not 2 <= self.objects <= 5:
            raise ValueError(f"expected two to five objects, got objects={self.objects}")
        for name, allowed in (("moves", get_args(Moves)), ("asked", get_args(Asked))):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if not 0 <= self.start < self.objects:
            raise ValueError(f"expected a start from 0 to {self.objects - 1}, got {self.start}")

    @property
    def vocab(self) -> int:
        """The reorderings, or the answers where there are more of them."""
        answers = self.objects if self.asked == "place" else math.factorial(self.objects)
        return max(len(self.reorderings()), answers)

    def reorderings(self) -> Int[Tensor, "move place"]:
        """For each token, the place to which the object of each place goes."""
        every = list(itertools.permutations(range(self.objects)))
        if self.moves == "swaps":
            every = [p for p in every if sum(i != to for i, to in enumerate(p)) <= 2]
        return torch.tensor(every)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of independent reorderings, all equally likely.

        Raises:
            ValueError: when a size is not a positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        table = self.reorderings()
        inputs = torch.randint(len(table), (size, n), generator=generator)
        places = torch.arange(self.objects).expand(size, -1)  # where each object is now
        reached = []
        for move in table[inputs].unbind(1):
            places = move.gather(1, places)
            reached.append(places)
        after = torch.stack(reached, dim=1)
        targets = after[..., self.start] if self.asked == "place" else self._numbers(after)
        return Batch(inputs, targets, torch.ones(size, n, dtype=torch.bool))

    def blind_loss(self) -> float:
        """The loss, in nats, of a model that takes all answers for equally likely.

        It is the best that can be had without the tokens only where all answers are equally likely at each
        position; swaps need a few moves until they nearly are.
        """
        return math.log(self.objects if self.asked == "place" else math.factorial(self.objects))

    def _numbers(self, after: Int[Tensor, "sequence position place"]) -> Tensor:
        """The number of each permutation, in the order of `itertools.permutations`."""
        every = torch.tensor(list(itertools.permutations(range(self.objects))))
        return (after.unsqueeze(-2) == every).all(-1).long().argmax(-1)
