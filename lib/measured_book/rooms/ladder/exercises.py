"""Exercises of *How long is long enough?*."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from measured_book.exercises.answers import Answer, close, demand, demand_number, number
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/training/ladder"
_BATCH = 1024
_TEXT = 9_440_000


@exercise(
    _CHAPTER,
    Drawing(
        "A model of {weights} weights sees {tokens} tokens a weight; a step has 16 windows of 64 tokens. "
        "Three numbers: (a) its steps; (b) the tokens a weight that it has seen after {taken} steps; (c) the "
        "weights of the largest model that 9.44 million tokens serve for {tokens} tokens a weight without a "
        "repetition.",
        lambda chance: {
            "weights": chance.choice((60_000, 120_000, 200_000)),
            "tokens": chance.choice((10, 25, 40)),
            "taken": chance.choice((300, 500, 700)),
        },
    ),
)
def rungs(answer: Answer, weights: int = 100_000, tokens: int = 20, taken: int = 480) -> None:
    """Three numbers: steps for a length, the length after some steps, and the largest model for a text."""
    found, length, largest = answer.numbers("(a)", "(b)", "(c)")
    right = weights * tokens / _BATCH
    slips = {
        weights * tokens / 16: "a window has 64 tokens, not one",
        weights * tokens / 64: "a step has 16 windows, not one",
    }
    way = "all tokens that the model shall see, divided by those of one step"
    demand_number(found, right, way=way, name="(a)", slips=slips)
    right = taken * _BATCH / weights
    slips = {weights / (taken * _BATCH): "that is weights a token", taken * 16 / weights: "windows"}
    way = "the tokens of all steps, divided by the weights"
    demand_number(length, right, way=way, name="(b)", slips=slips)
    slips = {_TEXT * tokens: "multiplied instead of divided", _TEXT: "that is one token a weight"}
    way = "each weight needs so many tokens of the text"
    demand_number(largest, _TEXT / tokens, way=way, name="(c)", slips=slips)


@exercise(_CHAPTER)
def order(answer: Answer) -> None:
    """Write `order(keys)`: for each key, drawn at random and no two alike, how many of them are smaller."""
    cases: tuple[Sequence[float], ...] = ((0.5,), (7, 3, 9, 1), (0.2, 0.9, 0.4, 0.7, 0.1))
    for keys in cases:
        found = [number(one) for one in answer(list(keys))]
        demand(
            len(found) == len(keys), f"{len(keys)} keys have {len(keys)} ranks, got {len(found)}"
        )
        demand(
            sorted(found) == list(range(len(keys))),
            f"the ranks of {list(keys)} are the numbers from 0 to {len(keys) - 1}, each once",
        )
        places = np.argsort(keys)
        right = np.argsort(places)
        demand(
            not np.array_equal(found, places) or np.array_equal(places, right),
            "these are the places of the keys in ascending order; asked for is the rank of each key",
        )
        text = "the smallest key has rank 0, the largest the highest"
        falls = np.array_equal(found, len(keys) - 1 - right)
        demand(not falls or len(keys) == 1, text)
        demand(np.array_equal(found, right), f"not the ranks of {list(keys)}")


@exercise(_CHAPTER)
def left(answer: Answer) -> None:
    """Write `left(rates, decay)`: the share of a weight that decay leaves after steps at these rates."""
    for rates, decay in (((0.1,), 0.5), ((0.5, 0.25, 0.5), 1.0), ((0.03,) * 400, 0.1)):
        found = number(answer(list(rates), decay))
        total = decay * math.fsum(rates)
        wanted = math.prod(1 - rate * decay for rate in rates)
        text = (
            "that is the sum of what each step takes away; each step takes a share of what is left"
        )
        demand(not close(found, 1 - total) or close(1 - total, wanted), text)
        text = "every step takes its share, rate times decay; the rate belongs to it"
        demand(not close(found, (1 - decay) ** len(rates)) or decay == 1.0, text)
        text = "that is the share that is gone"
        demand(not close(found, 1 - wanted), text)
        demand(close(found, wanted), "not the product of what the steps leave")
