"""An exercise on several residual streams, in *Without skips*."""

from __future__ import annotations

import random

from measured_book.exercises.answers import Answer, demand_number
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/residual/without-skips"


def _mixed(chance: random.Random) -> dict[str, float]:
    return {
        "first": chance.choice((4, 6, 8)),
        "stay": chance.choice((0.7, 0.8)),
        "cross": chance.choice((0.4, 0.5, 0.6)),
        "factor": chance.choice((2, 5)),
        "layers": chance.choice((4, 8, 12)),
        "share": chance.choice((0.05, 0.15, 0.2)),
    }


@exercise(
    _CHAPTER,
    Drawing(
        "Two residual streams of width one, {first} and 0. A sublayer multiplies what it reads by {factor}; it "
        "reads the mean of the streams and writes to both. R has {stay} on its diagonal and {cross} beside it. "
        "Three numbers: (a) the sum of the streams behind the sublayer; (b) the largest sum of a row of R "
        "multiplied by itself over {layers} sublayers; (c) with 1 - {share} on the diagonal of R and {share} "
        "beside it, and nothing written, the share of the difference of the streams that is left behind "
        "{layers} sublayers.",
        _mixed,
    ),
)
def by_hand(
    answer: Answer,
    first: float = 2,
    stay: float = 0.9,
    cross: float = 0.3,
    factor: float = 3,
    layers: int = 6,
    share: float = 0.1,
) -> None:
    """Three numbers: the sum of two streams, a gain over sublayers, and what is left of a difference."""
    total, gain, left = answer.numbers("(a)", "(b)", "(c)")
    row = stay + cross
    slips = {
        (row + factor / 2) * first: "the branch is written to both streams",
        (row + 2 * factor)
        * first: "the sublayer reads the mean of the streams, which is half of their sum",
        (1 + factor) * first: "R mixes the streams before the branch is added",
        row * first: "the branch is missing",
    }
    way = "R x first, stream by stream, then what the sublayer writes"
    demand_number(total, (row + factor) * first, way=way, name="(a)", within=0.01, slips=slips)
    slips = {
        (stay - cross) ** layers: "that is what becomes of streams with opposite signs",
        row * layers: "the factors multiply",
        row: "that is one sublayer",
    }
    way = "streams that are equal stay equal: by which factor does R multiply them?"
    demand_number(gain, row**layers, way=way, name="(b)", within=0.01, slips=slips)
    slips = {
        (1 - share) ** layers: "each stream also gets a share of the other one",
        1: "the sum is kept, the difference is not",
        1 - 2 * share: "that is one sublayer",
    }
    way = "subtract the two rows of R x"
    demand_number(left, (1 - 2 * share) ** layers, way=way, name="(c)", within=0.01, slips=slips)
