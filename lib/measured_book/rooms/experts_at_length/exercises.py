"""An exercise on the scores of a router, in *Mixtures of experts*."""

from __future__ import annotations

import math
from typing import Any

from measured_book.exercises.answers import Answer, close, demand, normal, number
from measured_book.exercises.registry import exercise

_CHAPTER = "book/feed-forward/mixture-of-experts"


@exercise(_CHAPTER)
def z_loss(answer: Answer) -> None:
    """Write `z_loss(scores)`: mean over tokens of the square of the logarithm of the sum of exponentials."""
    for tokens, experts, seed in ((5, 8, 0), (64, 4, 1)):
        scores = 3 * normal(tokens, experts, seed=seed)
        found = number(answer(scores.clone()))
        each = scores.logsumexp(-1)
        demand(
            not close(found, float(each.mean() ** 2)),
            "square first, then take the mean over tokens",
        )
        demand(
            not close(found, float(scores.square().sum(-1).mean())),
            "the square is of one number a token, the logarithm of its sum of exponentials",
        )
        demand(
            not close(found, float(scores.logsumexp(0).square().mean())),
            "the sum is over experts, which are the columns",
        )
        demand(close(found, float(each.square().mean())), "another number than the z-loss")
    large: Any = answer(1000.0 + normal(3, 4, seed=2))
    demand(
        math.isfinite(float(large)),
        "the exponential of large scores overflows: take the largest out of the sum first",
    )
