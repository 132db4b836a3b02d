"""A label that needs two earlier tokens at once, each for what it is and for where it stood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class TwoPlaces:
    """The label at position t is a fixed table's entry for the tokens `near` and ``far`` places back.

    Tokens are independent and uniform. The table is drawn once: its rows are permutations of the labels, and so
    are its columns, so that either token alone says nothing about the label, and which of the two stood
    nearer matters. Scored are the positions that have both. Used where a chapter asks what a second head is
    good for.

    A model that sees both tokens and knows their order loses nothing; one that sees only one of them can do no
    better than `blind_loss` and an accuracy of 1 / vocab.

    Attributes:
        vocab: number of different tokens, and of labels.
        length: number of tokens.
        near, far: how many places back the two tokens stand.
        rule_seed: which table.

    >>> task = TwoPlaces(vocab=4, length=5)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist()
    ([[0, 3, 1, 0, 3]], [2, 2])
    >>> table = task.table()
    >>> table[1, 0].item(), table[0, 3].item()  # near 1, far 0; then near 0, far 3
    (2, 2)

    Raises:
        ValueError: when a size is not a positive whole number, not near < far, or `length` does not reach
            beyond ``far``.
    """

    vocab: int = 8
    length: int = 12
    near: int = 1
    far: int = 3
    rule_seed: int = 0
    causal = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length, near=self.near, far=self.far)
        if self.near >= self.far:
            raise ValueError(f"expected near < far, got near={self.near} and far={self.far}")
        self._check_length(self.length)

    def table(self) -> Int[Tensor, "near far"]:
        """The label of each pair of tokens: a shuffled Latin square that is not symmetric."""
        generator = torch.Generator().manual_seed(self.rule_seed)
        rows, columns, labels = (torch.randperm(self.vocab, generator=generator) for _ in range(3))
        return labels[(rows[:, None] + columns[None, :]) % self.vocab]

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences.

        Raises:
            ValueError: when a size is not a positive whole number or `length` does not reach beyond ``far``.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        self._check_length(n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        scored = (torch.arange(n) >= self.far).expand(size, n).clone()
        near, far = inputs.roll(self.near, dims=1), inputs.roll(self.far, dims=1)
        targets = torch.where(scored, self.table()[near, far], 0)
        return Batch(inputs, targets, scored)

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that sees at most one of the two tokens: ln vocab."""
        return math.log(self.vocab)

    def _check_length(self, length: int) -> None:
        if length <= self.far:
            raise ValueError(
                f"the label needs the token {self.far} places back: length must be larger, got {length}"
            )
