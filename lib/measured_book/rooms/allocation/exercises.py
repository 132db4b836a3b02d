"""Exercises of the chapter on attention as a budget."""

from __future__ import annotations

import math

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
    tensor,
)
from measured_book.exercises.registry import exercise

_CHAPTER = "book/attention/allocation"


@exercise(_CHAPTER)
def needle(answer: Answer) -> None:
    """Four numbers: the lead, the mass in the longer sequence, the lead to add, and the mass of eight."""
    lead, after, more, together = answer.numbers("(a)", "(b)", "(c)", "(d)")
    right = math.log(9) + math.log(999)
    slips = {
        math.log(9): "those are the log-odds of the mass; how many others are there?",
        math.log(999): "those are the others alone; what mass does that lead give?",
        math.log10(9 * 999): "the exponential of the softmax asks for the natural logarithm",
        math.log(0.9 * 1000): "a mass is not a ratio; what are its odds?",
    }
    way = "write the log-odds of the mass as the lead minus something"
    demand_number(lead, right, way=way, name="(a)", within=0.003, slips=slips)
    mass = 1 / (1 + 7999 * math.exp(-right))
    slips = {
        0.9
        / 8: "the mass is not shared evenly; its odds change, not the mass, by a factor of about eight",
        1 - mass: "that is what the others get",
    }
    way = "the lead is what it was; what has changed is the number of others"
    demand_number(after, mass, way=way, name="(b)", within=0.01, slips=slips)
    slips = {
        right + math.log(7999 / 999): "that is the whole lead; asked for is what has to be added",
        3.0: "three doublings; what does each cost in natural units?",
    }
    way = "each others-per-needed ratio has its price; take the difference"
    demand_number(more, math.log(7999 / 999), way=way, name="(c)", within=0.01, slips=slips)
    slips = {0.9 / 8: "that is one of the eight; asked for is what they get together"}
    way = "how many others are there for each needed token, before and after?"
    demand_number(together, 0.9, way=way, name="(d)", within=0.005, slips=slips)


@exercise(_CHAPTER)
def cancel(answer: Answer) -> None:
    """Write `cancel(a, b)`: the factors of the two heads' outputs that leave the needed mean alone."""
    for a, b in ((0.9, 0.1), (0.5, 0.2), (0.99, 0.9)):
        found = tensor(answer(a, b), (2,), name="what `cancel` returns")
        others = found[0] * (1 - a) + found[1] * (1 - b)
        needed = found[0] * a + found[1] * b
        demand(close(others, 0.0), f"the others still come through, with a factor of {others:.3g}")
        demand(
            close(needed, 1.0),
            f"the others are gone, but the needed mean comes out {needed:.3g} times",
        )


@exercise(_CHAPTER)
def count(answer: Answer) -> None:
    """Write `count(weight)`: the number of marked tokens, from the weight of the start token."""
    for m in (1, 3, 0, 10):
        found = number(answer(1 / (m + 1)))
        demand(not close(found, m + 1.0), "the start token itself is counted as marked")
        text = f"with {m} marked, each of {m + 1} tokens has the same weight, but the count is {found:.4g}"
        demand(close(found, float(m)), text)
