"""Exercises of the chapter `book/positions/extrapolation`."""

from __future__ import annotations

import math
from typing import Any

from measured_transformer.parts.positions import frequencies
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

SUBJECT = "positions"
"""The first word of the exercises' names."""
_LONGER = "book/positions/extrapolation"


@exercise(
    _LONGER,
    Drawing(
        "How many of {pairs} rotary pairs make a full turn within {length} positions, base {base}.",
        lambda chance: {
            "pairs": chance.choice((16, 48, 64)),
            "length": 2 ** chance.randint(8, 13),
            "base": 10 ** chance.randint(3, 5),
        },
    ),
)
def turned_pairs(answer: Answer, pairs: int = 32, length: int = 2048, base: int = 10000) -> None:
    """How many of 32 rotary pairs make a full turn within 2048 positions, base 10000."""
    found = answer.number()
    right = _turned(length / (2 * math.pi), pairs, float(pairs), base)
    slips = {
        right - 1: "pairs are counted from i = 0",
        _turned(float(length), pairs, float(pairs), base): "a full turn is more than one radian",
        _turned(length / (2 * math.pi), pairs, pairs / 2, base): (
            "the exponent of pair i is 2i / d, and d is the width, not the number of pairs"
        ),
    }
    demand(found == round(found), "a number of pairs is whole")
    way = "compare the positions that pair i needs for one turn with the trained length"
    demand_number(found, right, way=way, within=1e-6, slips=slips)


def _turned(turns: float, pairs: int, over: float, base: int) -> float:
    """How many of the pairs are fast enough, for exponents i / over."""
    return float(sum(base ** (i / over) <= turns for i in range(pairs)))


@exercise(
    _LONGER,
    Drawing(
        "Two numbers: the mean distance of neighbours among n ordered positions drawn from {places}, n = {few} "
        "and {many}.",
        lambda chance: {
            "places": chance.choice((256, 1024, 2048)),
            "few": 4 * chance.randint(4, 9),
            "many": 10 * chance.randint(6, 12),
        },
    ),
)
def gaps(answer: Answer, places: int = 512, few: int = 32, many: int = 256) -> None:
    """Two numbers: the mean distance of neighbours among n ordered positions drawn from 512, n = 32 and 256."""
    way = "the positions drawn leave gaps before, between and after them, all alike on average"
    for n, found, name in zip(
        (few, many), answer.numbers("(a)", "(b)"), ("(a)", "(b)"), strict=True
    ):
        slips = {
            places / n: "nearly: before the first and after the last there is a gap as well",
            (places - 1) / (n - 1): (
                f"the first need not be position 0, nor the last position {places - 1}"
            ),
            places / n - 1: "a neighbour is at least one away",
        }
        demand_number(found, (places + 1) / (n + 1), name=name, within=0.003, way=way, slips=slips)


def _by_parts(omega: Tensor, factor: float, trained: float, slow: float, fast: float) -> Tensor:
    made = omega * trained / (2 * math.pi)
    kept = ((made - slow) / (fast - slow)).clamp(0, 1)
    return kept * omega + (1 - kept) * omega / factor


@exercise(_LONGER)
def by_parts(answer: Answer) -> None:
    """Write `by_parts(omega, factor, trained, slow, fast)`: the frequencies of NTK by parts."""
    cases = ((128, 8.0, 4096.0, 1.0, 32.0), (16, 4.0, 64.0, 0.5, 4.0), (8, 2.0, 100.0, 1.0, 2.0))
    for d, factor, trained, slow, fast in cases:
        omega = frequencies(d)
        found = tensor(answer(omega.clone(), factor, trained, slow, fast), tuple(omega.shape))
        right = _by_parts(omega, factor, trained, slow, fast)
        demand(
            bool((found <= omega * (1 + 1e-9)).all()),
            "no pair turns faster than in training; is the share of the old frequency cut off at one?",
        )
        demand(
            bool((found >= omega / factor * (1 - 1e-9)).all()),
            "no pair is slowed by more than the factor; is the share of the old frequency cut off at zero?",
        )
        demand(
            not close(found, _by_parts(omega, factor, 2 * math.pi * trained, slow, fast)),
            "a turn is two pi radians",
        )
        made = omega * trained / (2 * math.pi)
        demand(
            close(found[made >= fast], omega[made >= fast]),
            f"pairs that turn {fast:g} times or more within {trained:g} positions keep their frequency",
        )
        demand(
            close(found[made <= slow], omega[made <= slow] / factor),
            f"pairs that turn {slow:g} times or less within {trained:g} positions are slowed by the factor",
        )
        demand(
            close(found, right),
            "between the two, the share of the old frequency grows in a straight line with the number of turns",
        )


def _seen(t: int, window: int, sinks: int) -> list[tuple[int, int]]:
    keys = list(range(t + 1))
    if len(keys) > window:
        keys = keys[:sinks] + keys[len(keys) - (window - sinks) :]
    return [(key, len(keys) - 1 - place) for place, key in enumerate(keys)]


@exercise(_LONGER)
def seen(answer: Answer) -> None:
    """Write `seen(t, window, sinks)`: for each key in the cache of the query at t, the key and its distance."""
    for t, window, sinks in ((0, 4, 1), (3, 4, 1), (4, 4, 1), (9, 4, 1), (20, 8, 4), (9, 4, 0)):
        found: Any = answer(t, window, sinks)
        call = f"seen({t}, {window}, {sinks})"
        try:
            pairs = [(int(key), int(distance)) for key, distance in found]
        except (TypeError, ValueError):
            pairs = []
            demand(False, f"expected pairs (key, distance) for {call}, got {found!r}")
        right = _seen(t, window, sinks)
        keys, wanted = [key for key, _ in pairs], [key for key, _ in right]
        demand(
            len(keys) <= window,
            f"the cache holds {window} keys, sinks included; {call} has {len(keys)}",
        )
        demand(keys == wanted, f"expected the keys {wanted} for {call}, got {keys}")
        demand(
            [distance for _, distance in pairs] != [t - key for key in wanted] or pairs == right,
            "the sinks stand right before the other keys in the cache: no distance may exceed window - 1",
        )
        demand(pairs == right, f"expected {right} for {call}, got {pairs}")
