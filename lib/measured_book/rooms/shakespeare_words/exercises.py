"""An exercise on epochs and perplexities of a text with all its words, in *Transformer or recurrent*."""

from __future__ import annotations

import math
import random

from measured_book.exercises.answers import Answer, demand_number
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/translation/transformer-or-recurrent"


def _drawn(chance: random.Random) -> dict[str, float]:
    return {
        "words": chance.choice((100_000, 400_000, 1_000_000)),
        "length": chance.choice((64, 128)),
        "batch": chance.choice((8, 32)),
        "vocabulary": chance.choice((2_000, 20_000)),
        "higher": chance.choice((300, 600)),
        "lower": chance.choice((150, 240)),
    }


@exercise(
    _CHAPTER,
    Drawing(
        "A text of {words} words is read in {batch} windows of {length} words a step; {vocabulary} different "
        "words are the vocabulary. Three numbers: (a) the steps of an epoch; (b) the perplexity of a model "
        "that gives each word of the vocabulary the same probability; (c) the nats per word that lie between "
        "perplexities of {higher} and {lower}.",
        _drawn,
    ),
)
def epoch(
    answer: Answer,
    words: float = 209_179,
    length: int = 32,
    batch: int = 16,
    vocabulary: int = 11_794,
    higher: float = 500,
    lower: float = 400,
) -> None:
    """Three numbers: steps of an epoch, the perplexity of a uniform guess, and a difference in nats."""
    steps, uniform, apart = answer.numbers("(a)", "(b)", "(c)")
    slips: dict[float, str] = {
        words / batch: "a step reads whole windows, not single words",
        words / length: "a step reads several windows",
        words / vocabulary: "the vocabulary has nothing to do with the length of the text",
    }
    way = "how many words does a step read?"
    demand_number(steps, words / (batch * length), way=way, name="(a)", within=0.01, slips=slips)
    slips = {
        math.log(vocabulary): "that is the loss in nats; the perplexity is its exponential",
        1 / vocabulary: "that is the probability of a word",
    }
    way = "the exponential of the mean loss, each word costs the logarithm of the vocabulary"
    demand_number(uniform, vocabulary, way=way, name="(b)", within=0.001, slips=slips)
    slips = {
        higher - lower: "perplexities are exponentials of the loss",
        math.log2(higher / lower): "that is in bits",
        math.log(lower / higher): "the higher perplexity has the higher loss",
    }
    way = "the loss is the logarithm of the perplexity"
    demand_number(apart, math.log(higher / lower), way=way, name="(c)", within=0.01, slips=slips)
