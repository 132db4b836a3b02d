"""Copying in place: the answer at each position is the token that stands there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Copying:
    """Random tokens in, the same tokens out, each at its own place: what entered is already the answer.

    No block is needed for it: an embedding and an unembedding that fit one another do it alone. Used where a
    chapter asks what layers do that have nothing to do.

    A model that reads its own token loses nothing; one that does not has `blind_loss`.

    Attributes:
        vocab: number of different tokens, drawn uniformly.
        length: number of tokens.

    Raises:
        ValueError: when a size is not a positive whole number.

    >>> batch = Copying(vocab=10, length=4).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[4, 9, 3, 0]], [[4, 9, 3, 0]])
    """

    vocab: int = 12
    length: int = 12
    causal = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of `length` tokens; every position is scored.

        Raises:
            ValueError: when a size is not a positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        return Batch(inputs, inputs.clone(), torch.ones(size, n, dtype=torch.bool))

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that does not look at its token: ln vocab."""
        return math.log(self.vocab)
