"""Continuations: a string of different tokens, then some of them again, each with what followed it before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Continuations:
    """A string in which no token comes twice, then questions: a token of it, and the token that followed it.

    With a string of four and two questions, ``5 2 9 7 9 7 5``, and the answer at the last position is 2. Scored
    are the tokens that ask. It is the rule of `induction.Induction` with nothing around it that could help: at
    the first question, the answer depends on exactly two earlier tokens, the one that is asked about and its
    follower. Any other token may be another one. Used where a chapter asks whether attribution methods
    find the tokens that matter: `gold["key"]` and `gold["value"]` hold, at each scored position, where these
    two stand.

    A model that follows the rule loses nothing; one that only knows which tokens the string has, has
    `bag_loss`.

    Attributes:
        vocab: number of different tokens, at least `string`.
        string: tokens of the string, at least two.
        questions: how many different tokens are asked about, fewer than `string`.

    >>> task = Continuations(vocab=10, string=4, questions=1)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist(), batch.gold["value"].tolist()
    ([[6, 9, 7, 2, 9]], [7], [[-1, -1, -1, -1, 2]])

    Raises:
        ValueError: when a size is not a positive whole number, or not 1 <= questions < string <= vocab.
    """

    vocab: int = 16
    string: int = 8
    questions: int = 4
    causal = True

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, string=self.string, questions=self.questions)
        if not self.questions < self.string <= self.vocab:
            raise ValueError(
                f"expected questions < string <= vocab, got {self.questions}, {self.string} and {self.vocab}"
            )

    @property
    def length(self) -> int:
        """Positions of a batch: the string, and questions with their answers but for the last one."""
        return self.string + 2 * self.questions - 1

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; another length is another string, with as many questions.

        Raises:
            ValueError: when the length leaves no string that fits.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        m = n + 1 - 2 * self.questions
        if not self.questions < m <= self.vocab:
            raise ValueError(
                f"expected a string longer than questions={self.questions} and of at most vocab={self.vocab} "
                f"tokens, got {m} for length={n}"
            )

        def different(count: int, of: int) -> Tensor:
            drawn = torch.rand(size, of, generator=generator, dtype=torch.float64)
            return drawn.argsort(1)[:, :count]

        string, asked = different(m, self.vocab), different(self.questions, m - 1)
        answers = torch.stack((string.gather(1, asked), string.gather(1, asked + 1)), dim=2)
        whole = torch.cat([string, answers.flatten(1)], dim=1)
        scored = torch.zeros(size, n, dtype=torch.bool)
        scored[:, m::2] = True
        key = torch.full((size, n), -1)
        key[:, m::2] = asked
        gold = {"key": key, "value": torch.where(scored, key + 1, -1)}
        return Batch(whole[:, :-1], whole[:, 1:], scored, gold=gold)

    def bag_loss(self) -> float:
        """Expected loss, in nats, of a model that knows the string's tokens but not their order.

        It deems every token of the string but the asking one equally likely.
        """
        return math.log(self.string - 1)
