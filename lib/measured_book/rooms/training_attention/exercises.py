"""Exercises of the chapter on how attention learns where to look."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

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
from measured_book.rooms.training_attention.watching import area

_CHAPTER = "book/attention/training-attention"


@exercise(
    _CHAPTER,
    Drawing(
        "Three numbers: (a) the variance of a score where inputs have variance 1 and queries and keys come "
        "from a matrix of {rows} d rows and d columns by Xavier's rule; (b) at how many tokens the "
        "normalised entropy reaches {level}; (c) the width at which weights with a standard deviation of "
        "{deviation} give scores the same variance.",
        lambda chance: {
            "rows": chance.choice((2, 4, 5)),
            "level": chance.choice((0.98, 0.985, 0.995)),
            "deviation": chance.choice((0.01, 0.03, 0.04)),
        },
    ),
)
def even(answer: Answer, rows: int = 3, level: float = 0.99, deviation: float = 0.02) -> None:
    """Three numbers: the variance of the scores, the tokens that it takes, and the width."""
    variance, tokens, width = answer.numbers("(a)", "(b)", "(c)")
    entry = 2 / (rows + 1)
    right, one = entry**2, 1 / (2 * (1 - level))
    slips = {
        entry: "that is the variance of a query's entry; a score multiplies queries with keys",
        1.0: "that is Xavier's rule for a square matrix; this one has several times the rows",
        right**2: "the scores are divided by the root of the width once, not twice",
    }
    way = "variance of an entry of q, of an entry of k, times the width, over the width"
    demand_number(variance, right, way=way, name="(a)", within=0.003, slips=slips)
    slips = {
        right * one: "that is the logarithm of the number",
        math.exp(one): "that is for a variance of one",
        math.exp(2 * right * one): "the formula halves the variance",
        10 ** (right * one): "the logarithm is the natural one",
    }
    way = f"set 1 - variance / (2 ln n) equal to {level} and solve for n"
    demand_number(tokens, math.exp(right * one), way=way, name="(b)", within=0.01, slips=slips)
    slips = {
        1 / deviation**2: "that width gives the scores a variance of one",
        right / deviation**2: "that width gives the scores the square of that variance",
    }
    way = f"the variance of an entry is {deviation} squared; the scores' is the square of width times that"
    demand_number(width, entry / deviation**2, way=way, name="(c)", within=0.003, slips=slips)


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


@exercise(
    _CHAPTER,
    Drawing(
        "Three normalised entropies of rows over {keys} keys: two keys, one key, half and rest.",
        lambda chance: {"keys": chance.choice((6, 10, 12, 16, 20))},
    ),
)
def rows(answer: Answer, keys: int = 8) -> None:
    """Three normalised entropies of rows over eight keys: two keys, one key, half and rest."""
    two, one, half = answer.numbers("(a)", "(b)", "(c)")
    slips = {
        math.log(2): f"divide by the largest value, ln {keys}",
        2 / keys: "that is a share of the keys, but the logarithm counts doublings",
        1.0: f"that is even attention over all {keys}",
    }
    way = "two equal weights have the entropy ln 2"
    demand_number(two, math.log(2) / math.log(keys), way=way, name="(a)", within=0.01, slips=slips)
    slips = {
        1.0: "one key is the least even attention there is",
        1 / keys: "a logarithm of one is zero",
    }
    demand_number(one, 0.0, way="what is 1 ln 1?", name="(b)", within=0.005, slips=slips)
    others = keys - 1
    right = math.log(2) + math.log(others) / 2
    slips = {
        right: f"divide by the largest value, ln {keys}",
        0.5: "half the weight is not half the entropy",
        (math.log(2) / 2 + math.log(others) / 2)
        / math.log(keys): f"the others share a half: their weights are 1/{2 * others}",
    }
    way = f"one term for the leader, {others} equal terms for the rest"
    demand_number(half, right / math.log(keys), way=way, name="(c)", within=0.005, slips=slips)


def _copied(pattern: Tensor, tokens: list[int], *, shift: int = 1, first: bool = False) -> float:
    weights = []
    for query, token in enumerate(tokens):
        before = [key for key in range(query) if tokens[key] == token]
        if before:
            weights.append(float(pattern[query, (before[0] if first else before[-1]) + shift]))
    return sum(weights) / len(weights)


@exercise(_CHAPTER)
def induction_score(answer: Answer) -> None:
    """Write `induction_score(pattern, tokens)`: mean weight on what followed a token when it came last."""
    cases = ([5, 2, 9, 5, 2, 9, 5], [1, 1, 0, 1, 3, 0], [4, 0, 4, 1, 4, 2, 0])
    for seed, tokens in enumerate(cases):
        n = len(tokens)
        scores = 2 * normal(n, n, seed=seed)
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        pattern = scores.masked_fill(hidden, -math.inf).softmax(-1)
        found = number(answer(pattern, torch.tensor(tokens)))
        right = _copied(pattern, tokens)

        def like(other: float, found: float = found, right: float = right) -> bool:
            return close(found, other) and not close(right, other)

        demand(
            not like(_copied(pattern, tokens, shift=0)),
            "that is the weight on the token itself where it came before; asked for is what followed it",
        )
        demand(
            not like(_copied(pattern, tokens, first=True)),
            "where a token came several times, the last time counts",
        )
        several = sum(token in tokens[:place] for place, token in enumerate(tokens))
        demand(
            not like(right * several / n),
            "the mean is over the positions whose token has come before, not over all",
        )
        demand(
            close(found, right), f"expected {right:.4g} for the tokens {tokens}, got {found:.4g}"
        )


@exercise(_CHAPTER)
def curve(answer: Answer) -> None:
    """Write `area(failed, others)`: the chance that a failed run's score is the higher one, ties half."""
    rng = np.random.default_rng(0)
    cases = [
        (np.array([3.0, 4.0]), np.array([1.0, 2.0])),
        (np.array([1.0, 1.0]), np.array([1.0])),
        (np.array([1.0]), np.array([2.0, 0.0, 0.0])),
        (rng.normal(size=7), rng.normal(size=5)),
        (rng.integers(0, 3, size=9).astype(float), rng.integers(0, 3, size=4).astype(float)),
    ]
    for failed, others in cases:
        found = number(answer(failed, others))
        both = np.concatenate([failed, others])
        labels = np.arange(len(both)) < len(failed)
        right = area(both, labels)
        shown = f"for {len(failed)} failed runs and {len(others)} others it gives {found:.4g}"
        mirrored = close(found, 1 - right) and not close(right, 0.5)
        demand(not mirrored, f"{shown}: that is the chance that the *other* one is higher")
        strict = float((failed[:, None] > others[None, :]).mean())
        tied = close(found, strict) and not close(strict, right)
        demand(not tied, f"{shown}: what about ties?")
        demand(close(found, right), f"{shown}; compare every failed run with every other one")


@exercise(_CHAPTER)
def matched(answer: Answer) -> None:
    """Write `matched(score, failed, group)`: the area over pairs of runs of the same group."""
    rng = np.random.default_rng(1)
    groups = np.repeat([0, 1, 2, 3], [6, 5, 8, 3])
    for seed in range(3):
        score = rng.normal(size=len(groups)) + 3 * groups
        failed = rng.random(len(groups)) < 0.2 + 0.2 * groups
        failed[groups == 3] = True  # a group without a pair
        failed[0], failed[1] = True, False
        order = np.random.default_rng(seed).permutation(len(groups))
        score, failed, group = score[order], failed[order], groups[order]
        found = number(answer(score.copy(), failed.copy(), group.copy()))
        won = pairs = 0.0
        areas = []
        for one in range(4):
            of = group == one
            count = int(failed[of].sum() * (~failed[of]).sum())
            if count:
                areas.append(area(score[of], failed[of]))
                won, pairs = won + count * areas[-1], pairs + count
        pooled = area(score, failed)
        demand(not close(found, pooled), "that compares runs of different groups, too")
        mean = float(np.mean(areas))
        demand(
            not close(found, mean) or close(mean, won / pairs),
            "a mean over groups counts a pair of a small group for more than one of a large group",
        )
        demand(
            close(found, won / pairs),
            f"expected {won / pairs:.4g} over {pairs:.0f} pairs, got {found:.4g}",
        )
