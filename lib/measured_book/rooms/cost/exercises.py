"""Exercises of the chapter on what attention costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

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

_CHAPTER = "book/attention/cost"


@exercise(
    _CHAPTER,
    Drawing(
        "Three numbers: at what n/d all of attention costs as much as the network, (a) for a gated network "
        "with three matrices and a hidden width of {gated} d; (b) for the plain network of width 4 d, when "
        "there are {share} times fewer key-value heads; (c) for a plain network with a hidden width of "
        "{plain} d.",
        lambda chance: {
            "gated": chance.choice((3, 4, 5)),
            "share": chance.choice((2, 4, 16)),
            "plain": chance.choice((3, 5, 6, 8)),
        },
    ),
)
def equal(answer: Answer, gated: float = 8 / 3, share: int = 8, plain: int = 2) -> None:
    """Three lengths in units of d at which attention and network cost the same: gated, shared, narrow."""
    of_gated, shared, other = answer.numbers("(a)", "(b)", "(c)")
    right = (6 * gated - 8) / 4
    slips = {
        float(gated - 2): "a gated network has three matrices, not two",
        6 * gated / 4: "attention has projections, too",
    }
    way = "count the network's three products; then set it equal to all of attention"
    demand_number(of_gated, right, way=way, name="(a)", within=0.01, slips=slips)
    right = (16 - 4 - 4 / share) / 4
    slips = {
        (16 - 8 / share)
        / 4: "queries and output are not shared; only keys and values become cheaper",
        (16 - 6 - 2 / share) / 4: "both keys and values become cheaper",
        2.0: "fewer numbers come out of the projections of keys and values",
        right / share: "all query heads still meet all keys: the pairs cost what they did",
    }
    way = "what is left of the eight n d d when keys and values have fewer heads?"
    demand_number(shared, right, way=way, name="(b)", within=0.005, slips=slips)
    slips = {
        float(plain): "that is where the term in n n alone reaches the network",
        1.0: "solve it, do not guess",
    }
    way = f"with a hidden width of {plain} d, how do the network and the projections compare?"
    demand_number(other, float(plain - 2), way=way, name="(c)", within=0.005, slips=slips)


@exercise(_CHAPTER)
def window(answer: Answer) -> None:
    """Write `useful(n, w)`: pairs of a query and a key under a causal mask with a window of w tokens."""
    for n, w in ((4, 4), (1, 1), (6, 2), (10, 3), (5, 1), (512, 128)):
        found = number(answer(n, w))
        right = sum(min(query + 1, w) for query in range(n))
        shown = f"for n={n} and w={w} the count is {found:g}"
        demand(
            not close(found, float(n * w)) or right == n * w,
            f"{shown}: the first queries see fewer",
        )
        if w < n:
            causal = n * (n + 1) / 2
            demand(not close(found, causal), f"{shown}: that is the whole causal triangle")
        demand(
            not close(found, float(right - n)) or n == 0,
            f"{shown}: a query sees itself, too",
        )
        demand(close(found, float(right)), f"{shown}; count a small one on your fingers")


@exercise(_CHAPTER)
def online(answer: Answer) -> None:
    """Write `online(maximum, total, score)`: the largest score and the sum of exponentials, one score later."""
    for scores in ([2.0], [1.0, 3.0, 2.0], [3.0, 1.0, 2.0], [5.0, 5.0], [1000.0, 1001.0, 999.0]):
        maximum, total = -math.inf, 0.0
        for k, score in enumerate(scores):
            given = answer(maximum, total, score)
            found = Answer(given).numbers("the maximum", "the total")
            seen = scores[: k + 1]
            text = f"after the scores {seen} the maximum is {found[0]:g}"
            demand(close(found[0], max(seen)), text)
            right = sum(math.exp(each - max(seen)) for each in seen)
            text = f"after the scores {seen} the total is {found[1]:.6g}"
            kept = total + math.exp(score - found[0])
            demand(
                close(found[1], right) or not close(found[1], kept),
                f"{text}: the earlier terms still refer to the old maximum",
            )
            demand(
                close(found[1], right) or not close(found[1], right - math.exp(score - found[0])),
                f"{text}: where is the new score's own term?",
            )
            demand(close(found[1], right), f"{text}: each term is e to its score less the maximum")
            maximum, total = found


@exercise(_CHAPTER)
def tile(answer: Answer) -> None:
    """Write `tile(maximum, total, mixed, scores, values)`: the three things kept, one tile of keys later."""
    for queries, sizes, lift in ((1, (1, 1), 0.0), (3, (2, 3, 1), 0.0), (2, (4, 2), 800.0)):
        scores = [3 * normal(queries, size, seed=i) + lift * i for i, size in enumerate(sizes)]
        values = [normal(size, 4, seed=10 + i) for i, size in enumerate(sizes)]
        state = (
            torch.full((queries,), -math.inf, dtype=torch.float64),
            torch.zeros(queries, dtype=torch.float64),
            torch.zeros(queries, 4, dtype=torch.float64),
        )
        for i in range(len(sizes)):
            found = answer(*state, scores[i], values[i])
            shown = f"after {i + 1} of {len(sizes)} tiles"
            text = f"expected three tensors (maximum, total, mixed), got {type(found).__name__}"
            demand(isinstance(found, (tuple, list)) and len(found) == 3, text)
            seen, told = torch.cat(scores[: i + 1], 1), torch.cat(values[: i + 1])
            maximum = tensor(found[0], (queries,), name=f"{shown} the maximum")
            total = tensor(found[1], (queries,), name=f"{shown} the total")
            mixed = tensor(found[2], (queries, 4), name=f"{shown} the mixture")
            demand(close(maximum, seen.amax(1)), f"{shown} the maximum is not that of all scores")
            weights = (seen - seen.amax(1, keepdim=True)).exp()
            demand(close(total, weights.sum(1)), f"{shown} the total is off: which maximum counts?")
            right = weights @ told
            text = f"{shown} the mixture is divided already; divide once, at the end"
            demand(close(mixed, right) or not close(mixed, right / total[:, None]), text)
            demand(close(mixed, right), f"{shown} the mixture is off: it shrinks as the total does")
            state = (maximum, total, mixed)


def _numbers_in(cache: Any) -> int:
    """How many numbers lie in tensors, however they are nested."""
    if isinstance(cache, Tensor):
        return cache.numel()
    if isinstance(cache, Mapping):
        return sum(_numbers_in(each) for each in cache.values())
    if isinstance(cache, (tuple, list)):
        return sum(_numbers_in(each) for each in cache)
    return 0


@exercise(_CHAPTER)
def cache(answer: Answer) -> None:
    """Write `step(cache, x, w_query, w_key, w_value)`: the cache and one head's output, one token later."""
    width, d_head = 6, 4
    weights = [normal(width, d_head, seed=i) for i in range(3)]
    sequences = [0.4 * normal(5, width, seed=10 + i) for i in range(2)]
    kept: list[Any] = [None, None]
    for t in range(5):
        for which, sequence in enumerate(sequences):  # in turn: each has a cache of its own
            found = answer(kept[which], sequence[t].clone(), *weights)
            text = f"expected two things, the cache and the output, got {type(found).__name__}"
            demand(isinstance(found, (tuple, list)) and len(found) == 2, text)
            kept[which] = found[0]
            shown = f"after {t + 1} token{'s' * (t > 0)}"
            output = tensor(found[1], (d_head,), name=f"{shown} the output")
            query, keys, values = (
                sequence[t] @ weights[0],
                *(sequence[: t + 1] @ w for w in weights[1:]),
            )
            scores = keys @ query
            right = (scores / math.sqrt(d_head)).softmax(0) @ values
            slips = {
                "scores are divided by the root of the head's width": scores.softmax(0) @ values,
                "that is the root of the model's width": (scores / math.sqrt(width)).softmax(0)
                @ values,
            }
            if t:
                slips["a token sees itself, too"] = (scores[:-1] / math.sqrt(d_head)).softmax(
                    0
                ) @ values[:-1]
            for words, wrong in slips.items():
                demand(close(output, right) or not close(output, wrong), f"{shown}: {words}")
            text = f"{shown} the output is not that of attention over all tokens so far"
            demand(
                close(output, right), f"{text}; two sequences take turns, each with its own cache"
            )
            stored, due = _numbers_in(kept[which]), 2 * (t + 1) * d_head
            faults = {
                (t + 1) * width: "with the tokens kept, all keys are computed again at each step",
                3 * (t + 1) * d_head: "no later token asks for an earlier query",
            }
            fault = faults.get(stored, "one key and one value for each token")
            text = f"{shown} the cache holds {stored} numbers instead of {due}: {fault}"
            demand(stored == due, text)


@exercise(_CHAPTER)
def moved(answer: Answer) -> None:
    """Write `moved(n, d, size)`: numbers that tiled attention moves, with so many queries in a tile."""
    for n, d, size in ((11, 4, 4), (1024, 64, 128), (8, 4, 8), (4, 2, 2)):
        found = number(answer(n, d, size))
        times = -(-n // size)
        right = 2 * n * d + n + 2 * n * d * times
        shown = f"for n={n}, d={d} and tiles of {size} it gives {found:g}"
        slips = {
            2 * n * d + 2 * n * d * times: "one more number a query is stored, the logarithm",
            n * d + n + 2 * n * d * times: "queries are loaded and mixtures are stored",
            2 * n * d + n + n * d * times: "keys and values are two matrices",
            4 * n * n + 4 * n * d: "that is the plain form",
            4 * n * d + n: "keys and values are loaded once for each tile of queries",
            2 * n * d
            + n
            + 2 * n * d * n / size: "the last tile may be smaller, and still loads all keys",
        }
        for wrong, words in slips.items():
            demand(
                close(found, float(right)) or not close(found, float(wrong)), f"{shown}: {words}"
            )
        demand(
            close(found, float(right)), f"{shown}; count what a tile of queries loads and stores"
        )
