"""An exercise on a learned sink and an output gate, in *A budget to spend*."""

from __future__ import annotations

import math
import random

from measured_book.exercises.answers import Answer, demand_number
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/attention/allocation"


def _quiet(chance: random.Random) -> dict[str, int]:
    return {
        "keys": chance.choice((16, 32, 64)),
        "sink": chance.choice((4, 6, 7)),
        "fitting": chance.choice((8, 10)),
    }


@exercise(
    _CHAPTER,
    Drawing(
        "A head sees {keys} keys, all with a score of 0. Three numbers: (a) the weight that they get together "
        "with a learned sink of {sink}; (b) without a sink, the number whose sigmoid makes an output gate that "
        "lets as much pass; (c) the score of one key rises to {fitting}: its weight beside the sink.",
        _quiet,
    ),
)
def quiet(answer: Answer, keys: int = 20, sink: int = 5, fitting: int = 9) -> None:
    """Three numbers: the keys' weight beside a learned sink, a gate's input, and a fitting key's weight."""
    together, gate, found = answer.numbers("(a)", "(b)", "(c)")
    weight = keys / (keys + math.exp(sink))
    slips = {
        1 - weight: "that is what the sink gets",
        keys / (keys + sink): "the sink takes part in the softmax by its exponential",
        1 / (keys + math.exp(sink)): "that is one key; asked for is what all get together",
    }
    way = "count the exponentials: the keys' against all, the sink's among them"
    demand_number(together, weight, way=way, name="(a)", within=0.005, slips=slips)
    right = math.log(keys) - sink
    slips = {
        -right: "that gate lets pass what this one should hold back; mind the sign",
        weight: "that is the gate itself; which number has it as its sigmoid?",
        -sink: "each of the keys has an exponential, too",
    }
    way = "solve 1 / (1 + exp(-z)) = (a) for z: the log-odds of (a)"
    demand_number(gate, right, way=way, name="(b)", within=0.01, slips=slips)
    top = math.exp(fitting)
    slips = {
        top / (top + keys - 1): "that is its weight without the sink",
        1 - top / (top + keys - 1 + math.exp(sink)): "that is what it does not get",
    }
    way = "one exponential has changed; the sink's is as before"
    right = top / (top + keys - 1 + math.exp(sink))
    demand_number(found, right, way=way, name="(c)", within=0.003, slips=slips)
