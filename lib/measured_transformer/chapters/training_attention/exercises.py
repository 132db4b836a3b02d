"""Exercises of the chapter on how attention learns where to look."""

from __future__ import annotations

import math

import torch

from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/attention/training-attention"


@exercise(_CHAPTER)
def even(answer: Answer) -> None:
    """Three numbers: the variance of the scores, the tokens that it takes, and the width."""
    variance, tokens, width = answer.numbers("(a)", "(b)", "(c)")
    slips = {
        0.5: "that is the variance of a query's entry; a score multiplies queries with keys",
        1.0: "that is Xavier's rule for a square matrix; this one has three times the rows",
        1 / 16: "the scores are divided by the root of the width once, not twice",
    }
    way = "variance of an entry of q, of an entry of k, times the width, over the width"
    demand_number(variance, 0.25, way=way, name="(a)", within=0.003, slips=slips)
    slips = {
        12.5: "that is the logarithm of the number",
        math.exp(50): "that is for a variance of one",
        math.exp(25): "the formula halves the variance",
        10**12.5: "the logarithm is the natural one",
    }
    way = "set 1 - variance / (2 ln n) equal to 0.99 and solve for n"
    demand_number(tokens, math.exp(12.5), way=way, name="(b)", within=0.01, slips=slips)
    slips = {
        2500.0: "that width gives the scores a variance of one",
        625.0: "that width gives the scores a variance of a sixteenth",
    }
    way = "the variance of an entry is 0.02 squared; the scores' is the square of width times that"
    demand_number(width, 1250.0, way=way, name="(c)", within=0.003, slips=slips)


@exercise(_CHAPTER)
def nudge(answer: Answer) -> None:
    """Write `nudge(weights, values, upstream)`: what one step of rate 1 adds to a query's scores."""
    for n, width in ((3, 1), (2, 4), (6, 3)):
        weights = (2 * normal(n, seed=n)).softmax(0)
        values, upstream = normal(n, width, seed=n + 10), normal(width, seed=n + 20)
        found = tensor(answer(weights, values, upstream), (n,), name="what `nudge` returns")
        agreement = values @ upstream
        right = -weights * (agreement - weights @ agreement)
        demand(not close(found, -right), "that is the gradient; a step goes against it")
        demand(
            not close(found, -(agreement - weights @ agreement)),
            "every score moves as if it had the same weight",
        )
        demand(
            not close(found, -weights * agreement),
            "all scores could rise together; the others' agreement is missing",
        )
        demand(close(found.sum(), 0.0), "the moves do not sum to zero, as those of a softmax do")
        demand(close(found, right), "the moves sum to zero, but are not those of the softmax")


@exercise(_CHAPTER)
def couple(answer: Answer) -> None:
    """Write `couple(weights, token, rise)`: all weights after one token's score has risen."""
    for n, token, rise in ((3, 0, 1.0), (5, 2, -2.0), (4, 3, 0.5)):
        weights = normal(n, seed=n).softmax(0)
        scores = weights.log()
        scores[token] += rise
        right = scores.softmax(0)
        found = tensor(answer(weights, token, rise), (n,), name="what `couple` returns")
        demand(close(found.sum(), 1.0), "the weights do not sum to one")
        others = [j for j in range(n) if j != token]
        rest = torch.tensor(others)
        kept = close(found[rest] / found[rest].sum(), right[rest] / right[rest].sum())
        demand(kept, "the others no longer share what is left in their old proportions")
        demand(
            close(found, right), "the others share rightly, but the token's own weight is not it"
        )
