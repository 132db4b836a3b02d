"""Language modelling word by word on the text that is kept with the library."""

from __future__ import annotations

import lzma
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.opened_text import TEXT
from measured_transformer.tasks.task import Batch, Part, check_share, check_sizes

_SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


@cache
def _words(part: Part) -> list[str]:
    """Words, numbers and groups of punctuation marks of a part, in order; capitals count as small letters."""
    text = lzma.decompress(TEXT.read_bytes()).decode("utf-8").lower()
    whole = re.findall(r"\w+|[^\w\s]+", text)
    start, end = (round(share * len(whole)) for share in _SHARES[part])
    return whole[start:end]


@cache
def vocabulary(vocab: int) -> tuple[str, ...]:
    """The unknown word, and the most frequent words of the training part, first seen first where equal."""
    counts = Counter(_words("train"))
    return ("<unk>", *(word for word, _ in counts.most_common(vocab - 1)))


@cache
def word_tokens(part: Part, vocab: int) -> Int[Tensor, "token"]:
    """A part of the text, word by word; words outside the vocabulary are token 0."""
    numbers = {word: i for i, word in enumerate(vocabulary(vocab))}
    return torch.tensor([numbers.get(word, 0) for word in _words(part)])


@dataclass(frozen=True)
class WordText:
    """Windows of the reference of the Python language, word by word; each position is scored on the next word.

    The first four fifths of the text are for training, half of the rest is for validation, the other half for
    test. All but the most frequent words of the training part are one unknown word, token 0. Used by the
    chapter that compares attention with recurrence as language models. No best loss is known for real text.

    Attributes:
        vocab: size of the vocabulary, the unknown word included.
        length: number of predictions asked for.
        share: of the training part that training draws from, counted from its start.
        part: which part of the text is drawn from.

    >>> task = WordText(length=6)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.shape, bool((batch.inputs[:, 1:] == batch.targets[:, :-1]).all())
    (torch.Size([1, 6]), True)

    Raises:
        ValueError: when a size is not a positive whole number, or the share not above 0 and at most 1.
    """

    vocab: int = 1000
    length: int = 32
    share: float = 1.0
    part: Part = "train"
    causal = True

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)
        check_share(share=self.share)
        if self.vocab < 2 or not self.share:
            raise ValueError(
                f"expected a vocabulary of at least 2 and a share above 0, got {self.vocab} and {self.share}"
            )

    def tokens(self) -> Int[Tensor, "token"]:
        """All that is drawn from: this part, of training the share."""
        whole = word_tokens(self.part, self.vocab)
        return whole[: round(self.share * len(whole))] if self.part == "train" else whole

    def text(self, tokens: Int[Tensor, "position"]) -> str:
        """What the tokens stand for, words separated by spaces."""
        words = vocabulary(self.vocab)
        return " ".join(words[token] for token in tokens.tolist())

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in this part.

        Raises:
            ValueError: when the part is shorter than a window.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = self.tokens()
        if len(whole) <= n:
            raise ValueError(
                f"this part has {len(whole)} tokens, too few for windows of length={n}"
            )
        starts = torch.randint(len(whole) - n, (size, 1), generator=generator)
        windows = whole[starts + torch.arange(n + 1)]
        return Batch(windows[:, :-1], windows[:, 1:], torch.ones(size, n, dtype=torch.bool))

    def unigram_loss(self) -> float:
        """Cost, in nats a token of this part, of guessing by how frequent each token is in training.

        Every count is raised by one, so that no token is impossible.
        """
        counts = torch.bincount(word_tokens("train", self.vocab), minlength=self.vocab) + 1.0
        costs = -(counts.double() / counts.double().sum()).log()
        return float(costs[self.tokens()].mean())
