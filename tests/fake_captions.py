"""Captions made up in the place of Multi30k, which tests do not fetch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from measured_transformer.tasks import subwords


def few_captions(part: str, language: str) -> list[str]:
    """A dozen short ones, the same in every part."""
    del part
    english = ("reads a long book", "sleeps under a tree")
    german = ("liest ein langes Buch", "schläft unter einem Baum")
    does = english if language == "en" else german
    return [f"{name} {what}." for name in "ABCDEF" for what in does]


@contextmanager
def fake_captions(made: Callable[[str, str], Sequence[str]] = few_captions) -> Iterator[None]:
    """Within it, these captions are the corpus; nothing of them is remembered afterwards."""
    caches = (subwords._tokenizer, subwords._words, subwords._pairs)
    for cached in caches:
        cached.cache_clear()
    with mock.patch.object(subwords, "multi30k", made):
        yield
    for cached in caches:
        cached.cache_clear()
