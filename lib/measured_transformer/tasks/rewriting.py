"""Copying, reversing and sorting, written token by token: behind the input, or by a decoder that looks at it.

`Reversal` puts the same question to a model that sees everything and answers in one go. Here the answer grows
from left to right, and every token of it may be seen when the next one is written.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.floors import bag_entropy
from measured_transformer.tasks.task import Batch, check_sizes

Tokens = Int[Tensor, "batch item"]


@dataclass(frozen=True)
class _Rewriting(ABC):
    symbols: int = 12
    items: int = 12
    causal = True

    def __post_init__(self) -> None:
        check_sizes(symbols=self.symbols, items=self.items)

    @abstractmethod
    def answer(self, tokens: Tokens) -> Tokens:
        """What is to be written for these inputs."""

    @property
    def vocab(self) -> int:
        """The symbols and the separator."""
        return self.symbols + 1

    @property
    def separator(self) -> int:
        """The token that asks for the answer: the last one of the vocabulary."""
        return self.symbols

    def draw(self, generator: torch.Generator, size: int, items: int) -> Tokens:
        """Sequences of `items` independent and uniform symbols."""
        check_sizes(size=size, items=items)
        return torch.randint(self.symbols, (size, items), generator=generator)

    def bag_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows which symbols remain, but not their order.

        Before the last m tokens of the answer it has a bag of m symbols to choose from.
        """
        return (
            math.fsum(bag_entropy(self.symbols, m) for m in range(1, self.items + 1)) / self.items
        )

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that never looks at the input: ln symbols."""
        return math.log(self.symbols)


@dataclass(frozen=True)
class _BehindSeparator(_Rewriting):
    @property
    def length(self) -> int:
        """Positions of a batch: the input, the separator and all of the answer but its last token."""
        return 2 * self.items

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; the target is the next token, scored in the answer.

        Raises:
            ValueError: when the length is not even.
        """
        n = self.length if length is None else length
        check_sizes(length=n)
        if n % 2:
            raise ValueError(f"input and answer are equally long: length must be even, got {n}")
        tokens = self.draw(generator, size, n // 2)
        between = torch.full((size, 1), self.separator)
        whole = torch.cat([tokens, between, self.answer(tokens)], dim=1)
        scored = (torch.arange(n) >= n // 2).expand(size, n).clone()
        return Batch(whole[:, :-1], whole[:, 1:], scored)


@dataclass(frozen=True)
class _FromSource(_Rewriting):
    @property
    def length(self) -> int:
        """Positions of a batch: the tokens of the answer."""
        return self.items

    @property
    def source_length(self) -> int:
        """Tokens that the encoder reads."""
        return self.items

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sources with their answers; every position of the answer is scored."""
        n = self.length if length is None else length
        source = self.draw(generator, size, n)
        targets = self.answer(source)
        inputs = torch.cat([torch.full((size, 1), self.separator), targets[:, :-1]], dim=1)
        return Batch(inputs, targets, torch.ones(size, n, dtype=torch.bool), source=source)


@dataclass(frozen=True)
class _Copied(_Rewriting):
    def answer(self, tokens: Tokens) -> Tokens:
        """The same tokens."""
        return tokens.clone()


@dataclass(frozen=True)
class _Reversed(_Rewriting):
    def answer(self, tokens: Tokens) -> Tokens:
        """The tokens from the last to the first."""
        return tokens.flip(1)


@dataclass(frozen=True)
class _Sorted(_Rewriting):
    def answer(self, tokens: Tokens) -> Tokens:
        """The tokens from the smallest to the largest."""
        return tokens.sort(dim=1).values

    def bag_loss(self) -> float:
        """Zero: the order of the answer follows from the bag of its symbols."""
        return 0.0

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that never looks at the input.

        What is sorted rises, so that even a blind model can do better than ln symbols: the whole answer
        costs the entropy of the counts of the symbols, which are multinomial.

        >>> round(SortLM(symbols=12, items=12).blind_loss(), 3)
        1.104
        """
        n, p = self.items, 1 / self.symbols
        arrangements = math.lgamma(n + 1) - self.symbols * math.fsum(
            math.comb(n, c) * p**c * (1 - p) ** (n - c) * math.lgamma(c + 1) for c in range(n + 1)
        )
        return math.log(self.symbols) - arrangements / n


@dataclass(frozen=True)
class CopyLM(_Copied, _BehindSeparator):
    """Tokens, a separator, and the same tokens again, for a model that must not see ahead.

    With 10 for the separator, ``3 1 4 10 3 1 4``; scored are the predictions of the last three. A model that
    finds its place in the input loses nothing. One that only knows which symbols remain reaches `bag_loss`,
    one that does not look back at all `blind_loss`.

    Attributes:
        symbols: number of different tokens, drawn uniformly.
        items: number of tokens to copy.

    >>> batch = CopyLM(symbols=10, items=3).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist()
    ([[4, 9, 3, 10, 4, 9]], [4, 9, 3])
    """


@dataclass(frozen=True)
class CopyED(_Copied, _FromSource):
    """Copying for an encoder-decoder: see `CopyLM`.

    >>> batch = CopyED(symbols=10, items=3).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.source.tolist(), batch.inputs.tolist(), batch.targets.tolist()
    ([[4, 9, 3]], [[10, 4, 9]], [[4, 9, 3]])
    """


@dataclass(frozen=True)
class ReversalLM(_Reversed, _BehindSeparator):
    """Tokens, a separator, and the tokens in reverse order, for a model that must not see ahead.

    With 10 for the separator, ``3 1 4 10 4 1 3``; scored are the predictions of the last three. Used where a
    chapter asks whether the heads of a reversing model depend on its architecture. Floors as in `CopyLM`.

    Attributes:
        symbols: number of different tokens, drawn uniformly.
        items: number of tokens to reverse.

    >>> batch = ReversalLM(symbols=10, items=3).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist()
    ([[4, 9, 3, 10, 3, 9]], [3, 9, 4])
    """


@dataclass(frozen=True)
class ReversalED(_Reversed, _FromSource):
    """Reversing for an encoder-decoder: see `ReversalLM`.

    >>> batch = ReversalED(symbols=10, items=3).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.source.tolist(), batch.inputs.tolist(), batch.targets.tolist()
    ([[4, 9, 3]], [[10, 3, 9]], [[3, 9, 4]])
    """


@dataclass(frozen=True)
class SortLM(_Sorted, _BehindSeparator):
    """Tokens, a separator, and the tokens in rising order, for a model that must not see ahead.

    With 10 for the separator, ``3 1 4 10 1 3 4``; scored are the predictions of the last three. The order of
    the input plays no part, so that knowing the bag of its symbols is enough.

    Attributes:
        symbols: number of different tokens, drawn uniformly.
        items: number of tokens to sort.

    >>> batch = SortLM(symbols=10, items=3).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets[batch.scored].tolist()
    ([[4, 9, 3, 10, 3, 4]], [3, 4, 9])
    """


@dataclass(frozen=True)
class SortED(_Sorted, _FromSource):
    """Sorting for an encoder-decoder: see `SortLM`.

    >>> batch = SortED(symbols=10, items=3).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.source.tolist(), batch.inputs.tolist(), batch.targets.tolist()
    ([[4, 9, 3]], [[10, 3, 4]], [[3, 4, 9]])
    """
