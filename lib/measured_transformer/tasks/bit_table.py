"""A table of tokens made of bits: a map that has no rule, to be applied here or at the mirrored position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes

Table = Literal["random", "identity"]


@dataclass(frozen=True)
class BitTable:
    """A token is a number of `bits` bits, and a table says the answer to it; the table is the same for ever.

    A random table gives each answer to as many tokens as any other, nearly, and has no rule: what is in it
    must be stored. The identity asks for the token itself. When `mirrored`, the answer at position i is that
    to the token at position n - 1 - i, so that it has to be fetched as well. Tokens are independent and
    uniform and all positions are scored. Used where a chapter asks which part of a model moves information and
    which part transforms it.

    A model that knows the table and sees the token loses nothing; one that does not see the token can do no
    better than guess.

    Attributes:
        bits: of a token; there are 2^bits tokens.
        answers: number of different answers of a random table, at most as many as tokens.
        length: number of tokens.
        mirrored: whether the answer is that to the token at the mirrored position.
        table: 'random' or 'identity'.
        table_seed: which random table.

    >>> task = BitTable(bits=2, answers=2, length=4, mirrored=True)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> task.entries().tolist(), batch.inputs.tolist(), batch.targets.tolist()
    ([0, 1, 1, 0], [[0, 3, 1, 0]], [[0, 1, 0, 0]])

    Raises:
        ValueError: when a size is not a positive whole number, there are more answers than tokens, or there is
            no such table.
    """

    bits: int = 7
    answers: int = 8
    length: int = 8
    mirrored: bool = False
    table: Table = "random"
    table_seed: int = 0
    causal = False

    def __post_init__(self) -> None:
        check_sizes(bits=self.bits, answers=self.answers, length=self.length)
        if self.answers > self.vocab:
            raise ValueError(
                f"expected at most as many answers as there are tokens, {self.vocab}, got {self.answers}"
            )
        if self.table not in get_args(Table):
            raise ValueError(
                f"table must be one of {', '.join(get_args(Table))}, got {self.table!r}"
            )

    @property
    def vocab(self) -> int:
        """One token for each combination of bits."""
        return 2**self.bits

    def entries(self) -> Int[Tensor, "vocab"]:
        """The right answer to each token."""
        if self.table == "identity":
            return torch.arange(self.vocab)
        generator = torch.Generator().manual_seed(self.table_seed)
        return torch.randperm(self.vocab, generator=generator) % self.answers

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences.

        Raises:
            ValueError: when `size` or `length` is not a positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        answers = self.entries()[inputs]
        targets = answers.flip(1) if self.mirrored else answers
        return Batch(inputs, targets, torch.ones_like(inputs, dtype=torch.bool))
