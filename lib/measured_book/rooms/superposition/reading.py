"""Numbers of the chapter on superposition that follow from its text and sizes, and what tokens stand for."""

from __future__ import annotations

from measured_book.measuring import number
from measured_book.rooms.superposition.measure import (
    DIMENSIONS,
    FEATURES,
    PROSE,
    alphabet,
    labels,
    welch_bound,
)


@number
def listed() -> int:
    """Properties of the text that every basis is asked for."""
    return len(labels()[0])


@number
def at_once() -> float:
    """How many of them hold at a place of the judging text, on average."""
    return float(labels()[1].double().mean(1).sum())


def text_of(tokens: list[int]) -> str:
    """The characters that tokens stand for; the start token is none."""
    return "".join(alphabet()[token] if token < PROSE.vocab - 1 else " " for token in tokens)


@number
def welch() -> float:
    """The smallest possible largest cosine of the toy's features."""
    return welch_bound(DIMENSIONS, FEATURES)
