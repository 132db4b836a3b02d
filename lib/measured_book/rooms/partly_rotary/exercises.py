"""An exercise on what is new beyond the trained length, in *Relative position*."""

from __future__ import annotations

import math
import random

from measured_book.exercises.answers import Answer, demand_number
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/positions/rotary-and-alibi"
BASE = 10_000


def _new(chance: random.Random) -> dict[str, int]:
    trained = chance.choice((32, 128, 256))
    return {
        "trained": trained,
        "read": trained * chance.choice((2, 8)),
        "window": trained // 4,
        "pairs": chance.choice((16, 32)),
        "turning": chance.choice((3, 5)),
    }


@exercise(
    _CHAPTER,
    Drawing(
        "A decoder was trained on windows of {trained} tokens and reads {read}; a token is at distance 0 from "
        "itself. Three numbers: (a) how many distances between a query and a key are new; (b) the largest "
        "distance in a block that sees the last {window} tokens; (c) of {pairs} pairs with a base of 10000 the "
        "{turning} fastest turn: the tokens that the slowest of these takes for a whole turn.",
        _new,
    ),
)
def new(
    answer: Answer,
    trained: int = 64,
    read: int = 256,
    window: int = 32,
    pairs: int = 8,
    turning: int = 2,
) -> None:
    """Three numbers: new distances, the largest one in a window, and the tokens of a whole turn."""
    distances, largest, tokens = answer.numbers("(a)", "(b)", "(c)")
    slips: dict[float, str] = {
        read: "some of these were met in training",
        trained: "those are the ones of training",
        read - trained + 1: "distances begin at 0, in training and later",
    }
    way = "list the distances of training, then those of the longer text"
    demand_number(distances, read - trained, way=way, name="(a)", within=0, slips=slips)
    slips = {window: "the token itself is one of those that the block sees"}
    way = "which is the farthest of the tokens that the block sees?"
    demand_number(largest, window - 1, way=way, name="(b)", within=0, slips=slips)
    right = 2 * math.pi * BASE ** ((turning - 1) / pairs)
    slips = {
        right / (2 * math.pi): "a whole turn has an angle of two pi",
        2
        * math.pi
        * BASE ** (turning / pairs): "pairs are counted from 0; the first turns by 1 a token",
        2 * math.pi * BASE ** ((pairs - 1) / pairs): "that pair does not turn here",
    }
    way = "pair i, from 0, turns by base^(-i/pairs) a token"
    demand_number(tokens, right, way=way, name="(c)", within=0.01, slips=slips)
