"""Which word of a German number comes from which English word: the right alignment of number words."""

from __future__ import annotations

from typing import Literal


def word_roles(number: int, language: Literal["en", "de"]) -> tuple[str, ...]:
    """What each word of a number's name stands for; empty for *and* and *und*, which stand for nothing.

    >>> word_roles(7346, "en")
    ('7000', 'thousand', '300', 'hundred', '', '40', '6')
    >>> word_roles(7346, "de")
    ('7000', 'thousand', '300', 'hundred', '6', '', '40')
    """
    found: list[str] = []
    rest = number
    for size, name in ((1000, "thousand"), (100, "hundred")):
        count, rest = divmod(rest, size)
        if count:
            found += [str(count * size), name]
    if found and rest and language == "en":
        found.append("")
    if rest or not found:
        tens, units = rest - rest % 10, rest % 10
        if rest < 20 or not units:
            found.append(str(rest))
        elif language == "en":
            found += [str(tens), str(units)]
        else:
            found += [str(units), "", str(tens)]
    return tuple(found)


def aligned_words(number: int) -> tuple[int, ...]:
    """For each German word of a number, the place of the English word that it comes from; -1 for none.

    >>> aligned_words(7346)
    (0, 1, 2, 3, 6, -1, 5)
    """
    source = word_roles(number, "en")
    return tuple(source.index(role) if role else -1 for role in word_roles(number, "de"))
