"""What tasks of sentence pairs share: words as numbers, source and target filled up, batches of one part."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, Part, check_sizes

Sentence = tuple[str, ...]


@dataclass(frozen=True)
class PairTask(ABC):
    """Translation of a fixed list of sentence pairs by an encoder-decoder.

    The vocabulary serves both sides: the words, then padding, start, end and the unknown word. A source ends
    with the end token; the decoder sees the start and then the target. Scored are real tokens, the end among
    them. `gold["item"]` holds which pair of the part a row is.

    Attributes:
        part: which pairs are drawn.
    """

    part: Part = field(default="train", kw_only=True)
    causal = True

    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """All words that have a number of their own; their numbers are their places."""

    @abstractmethod
    def pairs(self) -> Sequence[tuple[Sentence, Sentence]]:
        """Source and target of every pair in this part."""

    @abstractmethod
    def longest(self) -> tuple[int, int]:
        """Most words of a source and of a target, over all parts."""

    @property
    def vocab(self) -> int:
        """The words, padding, start, end and the unknown word."""
        return len(self.words()) + 4

    @property
    def length(self) -> int:
        """Positions of a target: its words and the end."""
        return self.longest()[1] + 1

    @property
    def source_length(self) -> int:
        """Positions of a source: its words and the end."""
        return self.longest()[0] + 1

    @property
    def padding(self) -> int:
        """The token that fills up."""
        return len(self.words())

    @property
    def start(self) -> int:
        """The first token that the decoder sees."""
        return len(self.words()) + 1

    @property
    def end(self) -> int:
        """The token that ends source and target."""
        return len(self.words()) + 2

    @property
    def unknown(self) -> int:
        """The token for a word that has no number of its own."""
        return len(self.words()) + 3

    def text(self, tokens: Int[Tensor, "position"]) -> str:
        """The words of a source or target, up to its end."""
        names = [*self.words(), "<padding>", "<start>", "<end>", "<unknown>"]
        row = tokens.tolist()
        return " ".join(names[t] for t in (row[: row.index(self.end)] if self.end in row else row))

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` pairs of this part, with replacement; a larger length is more padding.

        Raises:
            ValueError: when the length leaves no room for the longest target.
        """
        n = self.length if length is None else length
        check_sizes(size=size)
        if n < self.length:
            raise ValueError(f"the longest target takes {self.length} positions, got length={n}")
        pairs = self.pairs()
        items = torch.randint(len(pairs), (size,), generator=generator)
        chosen = [pairs[item] for item in items.tolist()]
        numbers = _numbered(self.words())
        source = self._filled([source for source, _ in chosen], numbers, self.source_length)
        targets = self._filled([target for _, target in chosen], numbers, n)
        inputs = torch.cat([torch.full((size, 1), self.start), targets[:, :-1]], dim=1)
        return Batch(
            inputs,
            targets,
            scored=targets != self.padding,
            padding_mask=inputs != self.padding,
            source=source,
            source_padding_mask=source != self.padding,
            gold={"item": items},
        )

    def _filled(
        self, sentences: Sequence[Sentence], numbers: dict[str, int], length: int
    ) -> Int[Tensor, "batch position"]:
        rows = []
        for sentence in sentences:
            row = [numbers.get(word, self.unknown) for word in sentence] + [self.end]
            rows.append(row + [self.padding] * (length - len(row)))
        return torch.tensor(rows)

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats a token, of a model that knows this part's targets, not the source.

        A target costs the entropy of drawing it, spread over its tokens and its end.
        """
        targets = [target for _, target in self.pairs()]
        shares: dict[Sentence, int] = {}
        for target in targets:
            shares[target] = shares.get(target, 0) + 1
        cost = -math.fsum(math.log(shares[target] / len(targets)) for target in targets)
        return cost / sum(len(target) + 1 for target in targets)


@cache
def _numbered(words: tuple[str, ...]) -> dict[str, int]:
    return {word: number for number, word in enumerate(words)}
