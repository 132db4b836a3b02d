"""Exercises of the chapter on the order of layers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from measured_transformer.analysis.layers import centre_of_gravity, mean_distance
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/attention/layers"


@exercise(
    _CHAPTER,
    Drawing(
        "Three numbers: (a) the mean distance of a causal head that attends evenly in sequences of {words} "
        "words; of a row that may see {seen} keys and shares its weight evenly among {chosen} of them (b) "
        "the normalised entropy and (c) the Gini coefficient.",
        lambda chance: {
            "words": chance.choice((17, 33, 41, 49)),
            "seen": chance.choice((20, 24, 32, 40)),
            "chosen": chance.choice((3, 5, 8)),
        },
    ),
)
def idle(answer: Answer, words: int = 25, seen: int = 16, chosen: int = 4) -> None:
    """Three numbers: the distance of an even head, the normalised entropy and the Gini coefficient of a row."""
    distance, entropy, unevenness = answer.numbers("(a)", "(b)", "(c)")
    slips = {
        words / 2: "that is the last position, more or less; the mean goes over all of them",
        (words - 1) / 2: "that is the row of the last position; the mean goes over all of them",
        (words - 1) / 4: "the first position is left out of the mean",
        float(words): "a query looks back at all earlier tokens, not only at the first",
    }
    way = "what is the distance in row i, and what is the mean of that from row 1 on?"
    demand_number(distance, words / 4, way=way, name="(a)", within=0.001, slips=slips)
    slips = {
        math.log(chosen): "those are nats; asked for is the share of the largest possible entropy",
        math.log2(chosen): "those are bits; asked for is the share of the largest possible entropy",
        chosen / seen: "that is the share of the keys; entropy takes a logarithm",
    }
    way = "compare the logarithms of two numbers of keys"
    demand_number(entropy, math.log(chosen, seen), way=way, name="(b)", within=0.001, slips=slips)
    right = (seen - chosen) / (seen - 1)
    slips = {
        (seen - chosen)
        / seen: "that is the usual coefficient; with its factor m / (m - 1) a single key has 1",
        1 - right: "that is what is missing to 1",
    }
    way = f"put the {seen} weights in rising order; only the last {chosen} are not zero"
    demand_number(unevenness, right, way=way, name="(c)", within=0.001, slips=slips)


def _drawn(n: int, seed: int, heads: int = 2) -> Tensor:
    """Causal patterns (head, query, key)."""
    scores = 2 * torch.randn(heads, n, n, generator=torch.Generator().manual_seed(seed)).double()
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


@exercise(_CHAPTER)
def distance(answer: Answer) -> None:
    """Write `distance(pattern)`: how many positions back the rows of (..., query, key) look on average."""
    for n, seed in ((5, 0), (9, 1), (24, 2)):
        pattern = _drawn(n, seed)
        found, right = number(answer(pattern.clone())), mean_distance(pattern)
        back = torch.arange(n)[:, None] - torch.arange(n)
        rows = (pattern * back).sum(-1)
        for slip, text in (
            (rows.mean(), "the first position has no choice; leave its row out"),
            (-right, "a query looks back: the distance is its place less that of the key"),
            (rows[..., -1].mean(), "the mean goes over all rows but the first"),
            (rows[..., 1:].mean(0).sum(), "that is a sum over rows, not their mean"),
        ):
            demand(not close(found, float(slip), 1e-6), text)
        demand(close(found, right, 1e-6), f"expected {right:.4g} for {n} tokens, got {found:.4g}")


@exercise(_CHAPTER)
def price(answer: Answer) -> None:
    """Write `price(loss, pattern)`: by how much the loss rises when a causal head attends evenly instead."""
    for n, seed in ((4, 3), (7, 4), (12, 5)):
        pattern = _drawn(n, seed)
        wanted = _drawn(n, seed + 50)

        def loss(given: Tensor, wanted: Tensor = wanted) -> float:
            return float((given - wanted).square().sum() + (given.sum(-1) - 1).square().sum())

        even = torch.ones_like(pattern).tril()
        even = even / even.sum(-1, keepdim=True)
        found, right = number(answer(_counted(loss), pattern.clone())), loss(even) - loss(pattern)
        for other, text in (
            (
                torch.full_like(pattern, 1 / n),
                "even over all that the query *may see*: no later key",
            ),
            (torch.zeros_like(pattern), "zeros are no attention at all; rows must sum to one"),
            (torch.ones_like(pattern).tril() / n, "rows must sum to one"),
        ):
            demand(not close(found, loss(other) - loss(pattern), 1e-6), text)
        demand(not close(found, -right, 1e-6), "a rise is the loss afterwards less the loss before")
        demand(not close(found, loss(even), 1e-6), "that is the loss, not its rise")
        demand(close(found, right, 1e-6), f"expected a rise of {right:.4g}, got {found:.4g}")


def _counted(loss: Callable[[Tensor], float]) -> Callable[[Tensor], float]:
    """A loss that takes only patterns of the right shape and tells what is wrong with others."""

    def checked(given: Tensor) -> float:
        demand(
            isinstance(given, Tensor) and given.ndim == 3,
            "the loss takes a pattern of the shape that was given: (head, query, key)",
        )
        return loss(given.double())

    return checked


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
