"""Sentences translated between English and German: captions of pictures, in words."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import get_args

from measured_transformer.tasks.corpora import Language, multi30k
from measured_transformer.tasks.pairs import PairTask, Sentence
from measured_transformer.tasks.task import Part, check_sizes


@dataclass(frozen=True)
class SentenceTranslation(PairTask):
    """A caption in one language in, the same caption in the other out: Multi30k, which is fetched once.

    The text is in small letters and cut into words and punctuation. Words that training does not use often
    are unknown. Pairs with a side that is too long are left out, and pairs of validation and test whose source
    training has too. No best loss is known for it; one that does not look at the source and knows all targets
    by heart has `blind_loss`.

    Attributes:
        source, target: en and de in either order.
        most_words: how many words of each language have a number of their own.
        most_tokens: words that a sentence may have.
        part: which pairs are drawn; the data set divides them.

    Raises:
        ValueError: when a limit is not a positive whole number or the languages are not en and de in either
            order.
    """

    source: Language = "de"
    target: Language = "en"
    most_words: int = 5000
    most_tokens: int = 24

    def __post_init__(self) -> None:
        check_sizes(most_words=self.most_words, most_tokens=self.most_tokens)
        if {self.source, self.target} != set(get_args(Language)):
            raise ValueError(f"expected en and de, got {self.source!r} and {self.target!r}")

    def words(self) -> tuple[str, ...]:
        """The most frequent words of both languages in training."""
        return _frequent(self.most_words)

    def pairs(self) -> tuple[tuple[Sentence, Sentence], ...]:
        """Source and target of every pair of this part that is short enough."""
        return _pairs(self.part, self.source, self.target, self.most_tokens)

    def longest(self) -> tuple[int, int]:
        """The limit for both sides."""
        return self.most_tokens, self.most_tokens


def sentence_words(text: str) -> Sentence:
    """Words and punctuation in small letters.

    >>> sentence_words("Two dogs don't play.")
    ('two', 'dogs', 'don', "'", 't', 'play', '.')
    """
    return tuple(re.findall(r"\w+|[^\w\s]", text.lower()))


@cache
def _sentences(part: Part, language: Language) -> list[Sentence]:
    return [sentence_words(line) for line in multi30k(part, language)]


@cache
def _pairs(
    part: Part, source: Language, target: Language, most_tokens: int
) -> tuple[tuple[Sentence, Sentence], ...]:
    both = zip(_sentences(part, source), _sentences(part, target), strict=True)
    known = set() if part == "train" else set(_sentences("train", source))
    short = (pair for pair in both if max(map(len, pair)) <= most_tokens)
    return tuple(pair for pair in short if pair[0] not in known)


@cache
def _frequent(most_words: int) -> tuple[str, ...]:
    found: set[str] = set()
    for language in get_args(Language):
        counts = Counter(word for sentence in _sentences("train", language) for word in sentence)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        found.update(ranked[:most_words])
    return tuple(sorted(found))
