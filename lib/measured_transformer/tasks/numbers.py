"""Numbers in words, translated between English, German and French: real languages, and no file to fetch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from measured_transformer.tasks.pairs import PairTask, Sentence
from measured_transformer.tasks.split import split_items
from measured_transformer.tasks.task import check_sizes

LANGUAGES = ("en", "de", "fr")


@dataclass(frozen=True)
class NumberTranslation(PairTask):
    """A number in the words of one language in, the same number in those of another out.

    In German 21 is *einundzwanzig*, one and twenty: written as one word and read in another order than
    *twenty-one*. French counts *quatre-vingt-dix-neuf*, four twenties and nineteen. Every name is cut into the
    words that it is made of. The numbers are divided among training, validation and test, so that a model is
    asked for numbers that it never saw. Used by the chapter on training schedules.

    A model that knows both languages loses nothing; one that does not look at the source has `blind_loss`.

    Attributes:
        source, target: two of the languages en, de and fr.
        below: the numbers are those from 0 up to, but not including, this one; at most a million.
        train_share: share of the numbers that training draws from; the others get half the rest each.
        split_seed: which numbers belong to which part.
        part: which numbers are drawn.

    >>> import torch
    >>> task = NumberTranslation("en", "de", below=100)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> task.text(batch.source[0]), task.text(batch.targets[0])
    ('fifty six', 'sechs und fünfzig')

    Raises:
        ValueError: when `below` is not a whole number from 1 to a million, the languages are not two of the
            three, there is no such part, or one of the parts would be empty.
    """

    source: str = "en"
    target: str = "de"
    below: int = 1000
    train_share: float = 0.8
    split_seed: int = 0

    def __post_init__(self) -> None:
        check_sizes(below=self.below)
        for language in (self.source, self.target):
            if language not in LANGUAGES:
                raise ValueError(f"languages are {', '.join(LANGUAGES)}, got {language!r}")
        if self.source == self.target or self.below > 1_000_000:
            raise ValueError(
                "expected two languages and numbers below a million, got "
                f"{self.source!r}, {self.target!r} and below={self.below}"
            )
        self.numbers()

    def numbers(self) -> list[int]:
        """The numbers of this part, in rising order."""
        return split_items(
            self.below, self.part, train_share=self.train_share, seed=self.split_seed
        ).tolist()

    def pairs(self) -> tuple[tuple[Sentence, Sentence], ...]:
        """Each number of this part in both languages."""
        return _pairs(self)

    def words(self) -> tuple[str, ...]:
        """The words that both languages count with."""
        return _words(self._languages, self.below)

    def longest(self) -> tuple[int, int]:
        """Most words of a number in either language."""
        source, target = (
            max(map(len, _names(language, self.below))) for language in self._languages
        )
        return source, target

    @property
    def _languages(self) -> tuple[str, str]:
        return self.source, self.target


def number_words(number: int, language: str) -> Sentence:
    """The words that a number is made of.

    >>> number_words(1234, "de")
    ('ein', 'tausend', 'zwei', 'hundert', 'vier', 'und', 'dreißig')
    >>> number_words(99, "fr"), number_words(1_100, "en")
    (('quatre', 'vingt', 'dix', 'neuf'), ('one', 'thousand', 'one', 'hundred'))

    Raises:
        ValueError: when a German number is negative, or a million or more.
        ModuleNotFoundError: when the package num2words is not installed.
    """
    words = re.split(r"[ ,-]+", _written(number, language))
    if language == "de":
        words = [part for word in words for part in _german_parts(word)]
    return tuple(words)


def _written(number: int, language: str) -> str:
    try:
        from num2words import num2words
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "numbers in words need the package num2words, which is not installed: pip install num2words"
        ) from error
    return str(num2words(number, lang=language))


def _german_parts(word: str) -> list[str]:
    """Cut a German compound: up to twenty numbers have names of their own, the rest is put together."""
    parts = re.findall(_german_names(), word)
    if "".join(parts) != word:
        raise ValueError(f"expected a German number below a million, got {word!r}")
    return parts


@cache
def _german_names() -> str:
    simple = {_written(n, "de") for n in (*range(21), *range(30, 100, 10))}
    return "|".join(sorted(simple | {"ein", "und", "hundert", "tausend"}, key=len, reverse=True))


@cache
def _names(language: str, below: int) -> list[Sentence]:
    return [number_words(number, language) for number in range(below)]


@cache
def _pairs(task: NumberTranslation) -> tuple[tuple[Sentence, Sentence], ...]:
    sources, targets = (_names(language, task.below) for language in (task.source, task.target))
    return tuple((sources[number], targets[number]) for number in task.numbers())


@cache
def _words(languages: tuple[str, str], below: int) -> tuple[str, ...]:
    found = {word for language in languages for name in _names(language, below) for word in name}
    return tuple(sorted(found))
