"""Exercises of the chapter on the order of layers."""

from __future__ import annotations

import math

import numpy as np

from measured_transformer.analysis.layers import centre_of_gravity
from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/attention/layers"


@exercise(_CHAPTER)
def idle(answer: Answer) -> None:
    """Three numbers: the distance of an even head, the relative entropy and the Gini coefficient of a row."""
    distance, entropy, unevenness = answer.numbers("(a)", "(b)", "(c)")
    slips = {
        12.5: "that is the last position, more or less; the mean goes over all of them",
        12.0: "that is the row of the last position; the mean goes over all of them",
        6.0: "the first position is left out of the mean",
        25.0: "a query looks back at all earlier tokens, not only at the first",
    }
    way = "what is the distance in row i, and what is the mean of that from row 1 on?"
    demand_number(distance, 6.25, way=way, name="(a)", within=0.001, slips=slips)
    slips = {
        math.log(4): "those are nats; asked for is the share of the largest possible entropy",
        2.0: "those are bits; asked for is the share of the largest possible entropy",
        0.25: "that is the share of the keys; entropy takes a logarithm",
    }
    way = "compare the logarithms of two numbers of keys"
    demand_number(entropy, 0.5, way=way, name="(b)", within=0.001, slips=slips)
    slips = {
        0.75: "that is the usual coefficient; with its factor m / (m - 1) a single key has 1",
        0.2: "that is what is missing to 1",
    }
    way = "put the sixteen weights in rising order; only the last four are not zero"
    demand_number(unevenness, 0.8, way=way, name="(c)", within=0.001, slips=slips)


@exercise(_CHAPTER)
def centre(answer: Answer) -> None:
    """Write `centre(scores)`: the centre of gravity of what probes gain, as a share of the depth."""
    cases = (
        [0.0, 1.0, 1.0, 1.0],
        [0.0, 0.0, 0.0, 1.0],
        [0.5, 0.75, 0.75, 1.0, 1.0],
        [0.0, 0.8, 0.2, 0.2, 0.7],
        [0.1, 0.0, 0.3, 0.2, 0.5, 0.6, 0.6],
    )
    for scores in cases:
        found, right = number(answer(list(scores))), centre_of_gravity(np.array(scores))
        layers = len(scores) - 1
        text = "the middle of block l of L lies at (l - 1/2) / L of the depth, not at its end"
        demand(not close(found, right + 0.5 / layers), text)
        demand(not close(found, right * layers), "the place is a share of the depth, from 0 to 1")
        text = f"for the scores {scores} got {found:.4g}"
        falls = np.diff(scores)
        if falls.min() < 0:
            text += "; a score that falls, or that only comes back, is no gain"
        demand(close(found, right, 1e-6), text)


@exercise(_CHAPTER)
def control(answer: Answer) -> None:
    """Write `control(labels, words, order)`: the labels of a control task for a probe."""
    for labels, words, order in (
        ([0, 1, 1, 0, 1], [0, 1, 2, 0, 1], [1, 0, 2]),
        ([0, 0, 1, 1, 0, 1], [0, 0, 3, 1, 2, 3], [3, 2, 1, 0]),
        ([2, 0, 1, 2], [2, 0, 1, 2], [2, 0, 1]),
    ):
        found = tensor(answer(list(labels), list(words), list(order)), (len(labels),))
        own = dict(zip(words, labels, strict=True))
        for i, one in enumerate(words):
            for j, other in enumerate(words):
                demand(
                    one != other or close(found[i], found[j]),
                    f"examples {i} and {j} have the same word, and different labels: deal to words",
                )
        right = [own[order[word]] for word in words]
        kept = close(found, tensor([own[word] for word in words], (len(words),)))
        demand(not kept, "every word kept its own label")
        text = "word w is to get the label of word order[w]"
        demand(close(found, tensor(right, (len(right),))), text)
