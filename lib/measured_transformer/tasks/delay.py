"""Repeat what was said a fixed number of positions ago."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Delay:
    """Random tokens; the answer at each position is the token that stands `delay` positions before it.

    Unlike `Lag`, the tokens are independent, so nothing but that one token says anything about the answer: a
    model that cannot see it can do no better than chance. Used where a chapter asks how far attention reaches.

    Attributes:
        vocab: number of different tokens.
        length: positions of a sequence.
        delay: how far back the answer stands; 0 asks for the token itself.

    >>> batch = Delay(vocab=4, length=5, delay=2).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist()
    ([[0, 3, 1, 0, 3]], [0, 3, 1])

    Raises:
        ValueError: when a size is not a positive whole number, or the delay is not from 0 to `length` - 1.
    """

    vocab: int = 8
    length: int = 32
    delay: int = 5
    causal = True

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)
        self._check_length(self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; scored is every position that has a token `delay` positions before it.

        Raises:
            ValueError: when a size is not positive, or the length does not exceed the delay.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        self._check_length(n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        scored = (torch.arange(n) >= self.delay).expand(size, n).clone()
        return Batch(inputs, inputs.roll(self.delay, dims=1), scored)

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that does not see the token: ln vocab."""
        return math.log(self.vocab)

    def _check_length(self, length: int) -> None:
        if not 0 <= self.delay < length:
            raise ValueError(
                f"expected a delay of at least 0 and below the length, got delay={self.delay} and "
                f"length={length}"
            )
