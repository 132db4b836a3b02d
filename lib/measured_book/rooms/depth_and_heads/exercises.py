"""Exercises of the chapter on depth and heads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    number,
)
from measured_book.exercises.registry import Drawing, exercise

SUBJECT = "depth"
"""The first word of the exercises' names."""
_CHAPTER = "book/translation/depth-and-heads"


@exercise(
    _CHAPTER,
    Drawing(
        "Two chances, where models differ by luck alone: (a) that one of {models}, named in advance, comes "
        "first; (b) that {order} rise in the hoped-for order.",
        lambda chance: {
            "models": chance.choice((4, 16, 25, 36)),
            "order": chance.choice((3, 4, 5)),
        },
    ),
)
def luck(answer: Answer, models: int = 9, order: int = 3) -> None:
    """Two chances: (a) that one of nine equals comes first; (b) that three rise in the hoped-for order."""
    first, rising = answer.numbers("(a)", "(b)")
    side = math.isqrt(models)
    slips = {1 / side: f"there are {side} depths, and {side} numbers of heads for each"}
    way = f"{models} models that differ by luck alone: who is first?"
    demand_number(first, 1 / models, name="(a)", within=1e-3, way=way, slips=slips)
    slips = {
        1 / order: "that is the chance that the deepest is the best; the others have an order too",
        0.5**order: "the second comparison is not independent of the first: list the orders",
        0.5
        ** (order - 1): "the second comparison is not independent of the first: list the orders",
    }
    way = f"in how many orders can {order} models come out?"
    demand_number(rising, 1 / math.factorial(order), name="(b)", within=1e-3, way=way, slips=slips)


@exercise(_CHAPTER)
def within_and_between(answer: Answer) -> None:
    """Write `ratio(scores)` for a tensor (seed, model): mean range over models by mean range over seeds."""
    for seed in range(4):
        scores = normal(6, 4, seed=seed) + normal(1, 4, seed=seed + 10)
        found = number(answer(scores.clone()))
        models = float((scores.amax(1) - scores.amin(1)).mean())
        seeds = float((scores.amax(0) - scores.amin(0)).mean())
        mean = scores.mean(0)
        slips = {
            seeds / models: "it is upside down: the range over models goes on top",
            float(mean.max() - mean.min()) / seeds: (
                "averaging over seeds first takes the luck out: a table of single runs has it in"
            ),
            float(scores.max() - scores.min())
            / seeds: "take the range at each seed, then the mean",
        }
        for value, words in slips.items():
            demand(not close(found, value) or close(found, models / seeds), words)
        demand(
            close(found, models / seeds),
            f"expected {models / seeds:.4g}, got {found:.4g}; along which axis is each range taken?",
        )


def _share(scores: Tensor) -> float:
    depth = scores.mean((0, 2)) - scores.mean()
    return float(depth.square().mean() / (scores - scores.mean()).square().mean())


@exercise(_CHAPTER)
def depth_share(answer: Answer) -> None:
    """Write `share(scores)`: what part of the variance depth explains, from a tensor (seed, depth, head)."""
    for seed in range(4):
        scores = normal(5, 3, 2, seed=seed) + normal(1, 3, 1, seed=seed + 20)
        found, expected = number(answer(scores.clone())), _share(scores)
        depth = scores.mean((0, 2)) - scores.mean()
        heads = scores.mean((0, 1)) - scores.mean()
        whole = (scores - scores.mean()).square()
        slips = {
            float(heads.square().mean() / whole.mean()): "that is the share of the heads",
            float(depth.square().sum() / whole.sum()): (
                "each mean stands for as many scores as were averaged: compare means with means"
            ),
            math.sqrt(expected): "a variance is a mean of squares, without a root",
        }
        for value, words in slips.items():
            demand(not close(found, value) or close(found, expected), words)
        demand(
            close(found, expected),
            f"expected {expected:.4g}, got {found:.4g}; replace each score by the mean of its depth",
        )


Step = Callable[[tuple[int, ...]], Sequence[float]]


def _model(seed: int, vocab: int) -> Step:
    """A made-up model: logarithms of the probabilities of what follows a text."""

    def step(written: tuple[int, ...]) -> list[float]:
        place = sum((token + 1) * (vocab + 1) ** i for i, token in enumerate(written))
        logits = normal(vocab, seed=seed * 100_003 + place)
        found: list[float] = (1.5 * logits).log_softmax(0).tolist()
        return found

    return step


def _total(step: Step, text: Sequence[int]) -> float:
    return sum(step(tuple(text[:i]))[token] for i, token in enumerate(text))


def _search(step: Step, width: int, length: int) -> list[int]:
    beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for _ in range(length):
        longer = [
            (score + log_prob, (*text, token))
            for score, text in beams
            for token, log_prob in enumerate(step(text))
        ]
        beams = sorted(longer, reverse=True)[:width]
    return list(beams[0][1])


@exercise(_CHAPTER)
def beam(answer: Answer) -> None:
    """Write `beam(step, width, length)`: the likeliest text that a beam of this width finds, as a list."""
    vocab = 4
    for seed in range(12):
        step = _model(seed, vocab)
        for width, length in ((1, 3), (2, 3), (3, 4), (vocab**3, 4)):
            given = answer(step, width, length)
            found = given.tolist() if isinstance(given, Tensor) else list(given)
            demand(
                len(found) == length and all(int(t) in range(vocab) for t in found),
                f"expected {length} tokens from 0 to {vocab - 1}, got {found}",
            )
            expected = _search(step, width, length)
            if found == expected:
                continue
            greedy = _search(step, 1, length)
            demand(found != greedy, "that is the greedy text: keep more than one text at each step")
            texts = [list(text) for text in itertools.product(range(vocab), repeat=length)]
            best = max(texts, key=lambda text: _total(step, text))
            demand(
                found != best,
                f"with a width of {width} a beam does not find the likeliest text of all; how many "
                "texts go on after each step?",
            )
            demand(
                found == expected,
                f"expected {expected}, got {found}; add up logarithms along each text, and let all "
                "continuations of all texts compete",
            )
