"""Exercises of the chapter on attention as a budget."""

from __future__ import annotations

import math
import random

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/attention/allocation"


def _needle(chance: random.Random) -> dict[str, float]:
    few, copies = chance.choice((500, 2000, 5000)), chance.choice((4, 16, 32))
    weight = chance.choice((0.7, 0.8, 0.95))
    return {"weight": weight, "few": few, "many": few * copies, "copies": copies}


@exercise(
    _CHAPTER,
    Drawing(
        "A model attends to one needed token among {few} with a weight of {weight}. Four numbers: (a) its "
        "margin; (b) its weight among {many} tokens, where the scores stay as they are; (c) the margin to "
        "add that restores it; (d) the total weight of {copies} such tokens among the {many}.",
        _needle,
    ),
)
def needle(
    answer: Answer, weight: float = 0.9, few: int = 1000, many: int = 8000, copies: int = 8
) -> None:
    """Four numbers: the lead, the mass in the longer sequence, the lead to add, and the mass of eight."""
    lead, after, more, together = answer.numbers("(a)", "(b)", "(c)", "(d)")
    odds = weight / (1 - weight)
    right = math.log(odds) + math.log(few - 1)
    slips = {
        math.log(odds): "those are the log-odds of the mass; how many others are there?",
        math.log(few - 1): "those are the others alone; what mass does that lead give?",
        math.log10(
            odds * (few - 1)
        ): "the exponential of the softmax asks for the natural logarithm",
        math.log(weight * few): "a mass is not a ratio; what are its odds?",
    }
    way = "write the log-odds of the mass as the lead minus something"
    demand_number(lead, right, way=way, name="(a)", within=0.003, slips=slips)
    mass = 1 / (1 + (many - 1) * math.exp(-right))
    slips = {
        weight / copies: (
            "the mass is not shared evenly; its odds change, not the mass, by about the factor of the lengths"
        ),
        1 - mass: "that is what the others get",
    }
    way = "the lead is what it was; what has changed is the number of others"
    demand_number(after, mass, way=way, name="(b)", within=0.01, slips=slips)
    slips = {
        right
        + math.log(
            (many - 1) / (few - 1)
        ): "that is the whole lead; asked for is what has to be added",
        math.log2(copies): "that counts doublings; what does each cost in natural units?",
    }
    way = "each others-per-needed ratio has its price; take the difference"
    demand_number(
        more, math.log((many - 1) / (few - 1)), way=way, name="(c)", within=0.01, slips=slips
    )
    slips = {weight / copies: f"that is one of the {copies}; asked for is what they get together"}
    way = "how many others are there for each needed token, before and after?"
    demand_number(together, weight, way=way, name="(d)", within=0.005, slips=slips)


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
