"""Which of two tokens comes again sooner: a question about a sequence that is the same from either end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class SoonerAgain:
    """Two tokens come twice, all others once; the answer is the one of the two that comes again sooner.

    It is asked for at the last position, which sees everything in any model, and is the same when the sequence
    is read from its end. The two distances are never equal.

    Attributes:
        vocab: number of different tokens.
        length: of a sequence.
        causal: whether a model of it must not look ahead.

    Raises:
        ValueError: when a size is not a positive whole number, or the length does not fit the vocabulary.

    >>> batch = SoonerAgain(vocab=9, length=6).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[0, -1].item()
    ([[2, 3, 3, 8, 2, 4]], 3)
    """

    vocab: int = 16
    length: int = 12
    causal: bool = False

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)
        self._check(self.length)

    def _check(self, length: int) -> None:
        if not 5 <= length <= self.vocab + 2:
            raise ValueError(
                "expected room for two pairs and another token, and at most two more positions than tokens, "
                f"got length={length} with vocab={self.vocab}"
            )

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; only the last position is scored.

        Raises:
            ValueError: when a size is not a positive whole number, or the length does not fit the vocabulary.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        self._check(n)
        kept: list[tuple[Tensor, Tensor]] = []
        while sum(len(tokens) for tokens, _ in kept) < size:
            symbols = torch.rand(2 * size, self.vocab, generator=generator).argsort(1)[:, : n - 2]
            places = torch.rand(2 * size, n, generator=generator).argsort(1)
            tokens = torch.empty_like(places)
            tokens.scatter_(1, places, torch.cat([symbols[:, :2], symbols], 1))
            first, second = ((places[:, i] - places[:, i + 2]).abs() for i in (0, 1))
            answer = torch.where(first < second, symbols[:, 0], symbols[:, 1])
            apart = first != second
            kept.append((tokens[apart], answer[apart]))
        inputs, answers = (torch.cat(column)[:size] for column in zip(*kept, strict=True))
        scored = torch.zeros_like(inputs, dtype=torch.bool)
        scored[:, -1] = True
        return Batch(inputs, answers[:, None].expand_as(inputs).clone(), scored)

    def either_loss(self) -> float:
        """Expected cost, in nats, of a guess between the two tokens that come twice."""
        return math.log(2)
