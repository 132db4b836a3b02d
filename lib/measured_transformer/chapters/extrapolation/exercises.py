"""Exercises of the chapter `book/positions/extrapolation`."""

from __future__ import annotations

from measured_transformer.exercises.answers import (
    Answer,
    demand,
    demand_number,
)
from measured_transformer.exercises.registry import exercise

SUBJECT = "positions"
"""The first word of the exercises' names."""
_LONGER = "book/positions/extrapolation"


@exercise(_LONGER)
def turned_pairs(answer: Answer) -> None:
    """How many of 32 rotary pairs make a full turn within 2048 positions, base 10000."""
    found = answer.number()
    slips = {
        20.0: "pairs are counted from i = 0",
        27.0: "a full turn is more than one radian",
        11.0: "the exponent of pair i is 2i / d, and d is the width, not the number of pairs",
    }
    demand(found == round(found), "a number of pairs is whole")
    way = "compare the positions that pair i needs for one turn with the trained length"
    demand_number(found, 21.0, way=way, within=1e-6, slips=slips)


@exercise(_LONGER)
def gaps(answer: Answer) -> None:
    """Two numbers: the mean distance of neighbours among n ordered positions drawn from 512, n = 32 and 256."""
    way = "the positions drawn leave gaps before, between and after them, all alike on average"
    for n, found, name in zip((32, 256), answer.numbers("(a)", "(b)"), ("(a)", "(b)"), strict=True):
        slips = {
            512 / n: "nearly: before the first and after the last there is a gap as well",
            511 / (n - 1): "the first need not be position 0, nor the last position 511",
            512 / n - 1: "a neighbour is at least one away",
        }
        demand_number(found, 513 / (n + 1), name=name, within=0.003, way=way, slips=slips)
