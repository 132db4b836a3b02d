"""Exercises of the chapters on positions."""

from __future__ import annotations

import math

import torch
from measured_transformer.parts.positions import sinusoidal_encoding

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

SUBJECT = "positions"
"""The first word of the exercises' names."""

_VECTORS = "book/positions/positional-encoding"


@exercise(
    _VECTORS,
    Drawing(
        "Three numbers for d = 4 and base {base}: s(1), s(2), and the whole distance from 1 to 9 of the "
        "largest s.",
        lambda chance: {"base": chance.choice((64, 100, 144, 400))},
    ),
)
def similarity(answer: Answer, base: int = 10000) -> None:
    """Three numbers for d = 4 and base 10000: s(1), s(2), and the whole distance below 10 of the largest s."""
    one, two, largest = answer.numbers("s(1)", "s(2)", "the distance")
    way = "a pair of frequency w adds cos(w k); with d = 4 there are two pairs"
    for k, found in ((1, one), (2, two)):
        fast, slow = math.cos(k), math.cos(k / math.sqrt(base))
        slips = {
            fast: "that is the fast pair alone",
            (fast + slow) / 2: "similarity is the dot product, not divided by its largest value",
            fast + math.cos(k / base**0.25): "the second pair is too fast: its exponent is 2i / d",
            math.cos(math.radians(k))
            + math.cos(math.radians(k / math.sqrt(base))): "the angles are in radians",
            math.sin(k)
            + math.sin(k / math.sqrt(base)): "sine times sine plus cosine times cosine is a cosine",
        }
        demand_number(found, fast + slow, way=way, name=f"s({k})", within=0.001, slips=slips)
    text = "the distance: s(0) is the largest of all, but asked for is a distance of at least 1"
    demand(largest >= 1, text)
    text = f"the distance: s({largest:.0f}) is not the largest; when is the fast pair nearly where it began?"
    right = max(range(1, 10), key=lambda k: math.cos(k) + math.cos(k / math.sqrt(base)))
    demand(largest == right, text)


@exercise(_VECTORS)
def add_positions(answer: Answer) -> None:
    """Write `add_positions(x, table)`: x, of shape (batch, position, d), plus the first rows of the table."""
    for batch, n, d in ((3, 4, 6), (1, 3, 4), (5, 2, 4), (2, 7, 6)):
        table = sinusoidal_encoding(9, d, dtype=torch.float64)
        x = normal(1, n, d, seed=n).expand(batch, n, d).clone()
        found = tensor(answer(x, table), (batch, n, d))
        added = found - x
        text = "two equal sequences of one batch come out different: a position counts along which axis?"
        demand(close(added, added[:1].expand_as(added)), text)
        text = "the same is added at every position of a sequence"
        demand(n == 1 or not close(added[:, 0], added[:, 1]), text)
        demand(close(added[0, 0], table[0]), "the first token does not get the table's first row")
        demand(close(added[0], table[:n]), "a later token does not get the row of its own position")


@exercise(_VECTORS)
def base(answer: Answer) -> None:
    """Write `base(n, d)`: the base with which the slowest pair turns exactly once in n positions."""
    for n, d in ((100, 64), (1000, 8), (50, 4)):
        found = number(answer(n, d))
        demand(found > 1, "a base is larger than 1: the later pairs turn more slowly")
        turns = n * found ** (-(d - 2) / d) / (2 * math.pi)
        text = "with your base the slowest pair goes through one radian; a turn has more"
        demand(not close(turns * 2 * math.pi, 1.0, 1e-4), text)
        text = "the slowest pair is not of frequency 1 / base: which exponent has the last of the d / 2 pairs?"
        demand(not close(found, n / (2 * math.pi), 1e-4), text)
        text = f"with your base the slowest pair turns {turns:.4g} times in {n} positions"
        demand(close(turns, 1.0, 1e-6), text)
