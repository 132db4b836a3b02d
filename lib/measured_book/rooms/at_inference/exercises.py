"""Exercises of the chapter on attention at inference."""

from __future__ import annotations

import math
from typing import Any

import torch

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/attention/at-inference"


@exercise(
    _CHAPTER,
    Drawing(
        "A model has {layers} layers, {heads} heads of width {width}, weights of {weights} gigabytes and a "
        "GPU of {memory} (of 10^9 bytes); numbers take two bytes. Three numbers: (a) the gigabytes of the "
        "cache of a text of {length} tokens; (b) how many such texts fit beside the weights; (c) and with "
        "{groups} key-value heads, the weights unchanged.",
        lambda chance: {
            "layers": chance.choice((24, 40, 48)),
            "heads": chance.choice((16, 24, 40)),
            "width": chance.choice((64, 96)),
            "length": chance.choice((1024, 2048, 3072)),
            "weights": chance.choice((9.5, 14.6, 21.4)),
            "memory": chance.choice((48, 96)),
            "groups": chance.choice((2, 4)),
        },
    ),
)
def memory(
    answer: Answer,
    layers: int = 32,
    heads: int = 32,
    width: int = 128,
    length: int = 4096,
    weights: float = 13.5,
    memory: int = 80,
    groups: int = 8,
) -> None:
    """Gigabytes of a cache, texts that fit beside the weights, and the same with eight key-value heads."""
    cache, texts, grouped = answer.numbers("(a)", "(b)", "(c)")
    size = 2 * layers * heads * width * length * 2 / 1e9
    free, share = memory - weights, heads // groups
    fit = float(math.floor(free / size))
    more = float(math.floor(free / (size / share)))
    demand_number(
        cache,
        size,
        way="two vectors for each layer and token",
        name="(a)",
        slips={
            size / 2: "keys and values are two vectors, of two bytes a number",
            size / layers: "every layer has a cache of its own",
        },
    )
    demand_number(
        texts,
        fit,
        way="take the weights from the memory first, and round down",
        name="(b)",
        within=0.002,
        slips={
            float(math.floor(memory / size)): "the weights take their share of the memory",
            fit + 1: "the last one does not fit altogether",
        },
    )
    demand_number(
        grouped,
        more,
        way="what does a text's cache shrink by?",
        name="(c)",
        within=0.002,
        slips={
            share * fit: "divide the free bytes anew; there is room for more than that",
            more + 1: "the last one does not fit altogether",
            fit: f"keys and values of {groups} heads instead of {heads}",
            float(math.floor(2 * free / size)): "what share of the heads is left?",
        },
    )


@exercise(_CHAPTER)
def slot(answer: Answer) -> None:
    """Write `slot(t, window, sinks)`: where token t lies in a ring of the last tokens beside the first ones."""
    for window, sinks in ((3, 1), (4, 0), (1, 2), (5, 3)):
        held: dict[int, int] = {}
        for t in range(4 * (window + sinks)):
            found = number(answer(t, window, sinks))
            shown = f"for window={window} and sinks={sinks} token {t} goes to slot {found:g}"
            demand(found == int(found), f"{shown}: slots are counted in whole numbers")
            demand(
                0 <= found < window + sinks, f"{shown}: there are {window + sinks}, counted from 0"
            )
            gone = held.get(int(found))
            demand(
                gone is None or gone >= sinks, f"{shown}, where one of the first tokens should stay"
            )
            oldest = t - window
            demand(
                gone is None or gone == oldest,
                f"{shown} and overwrites token {gone}; the oldest of the window is {oldest}",
            )
            held[int(found)] = t


@exercise(_CHAPTER)
def place(answer: Answer) -> None:
    """Write `place(table, size, t)`: the page of token t and its place in it, from a request's pages."""
    for table, size in (([4, 1, 7], 3), ([2], 5), ([0, 9, 3, 8], 1), ([5, 2], 16)):
        for t in range(len(table) * size):
            found = answer(list(table), size, t)
            page, at = Answer(found).numbers("the page", "the place")
            shown = (
                f"for the pages {table} of {size} tokens, token {t} is given as ({page:g}, {at:g})"
            )
            demand(
                page != t // size or table[t // size] == t // size,
                f"{shown}: that is how many pages come before; which page is it?",
            )
            demand(page == table[t // size], f"{shown}: not the page")
            demand(at == t % size, f"{shown}: not the place in the page, counted from 0")


@exercise(_CHAPTER)
def decide(answer: Answer) -> None:
    """Write `decide(p, q, x, u)`: whether the proposed token x stands, and else what the next is drawn from."""
    cases: list[tuple[list[float], list[float]]] = [
        ([0.5, 0.3, 0.2], [0.2, 0.6, 0.2]),
        ([0.1, 0.2, 0.7], [0.3, 0.3, 0.4]),
        ([0.0, 0.5, 0.5], [0.5, 0.25, 0.25]),
        ([0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]),
    ]
    for first, second in cases:
        p = torch.tensor(first, dtype=torch.float64)
        q = torch.tensor(second, dtype=torch.float64)
        missing = (p - q).clamp(min=0)
        for x in range(len(first)):
            likely = min(1.0, first[x] / second[x])
            for u in (0.05, likely - 0.01, likely + 0.01, 0.97):
                if not 0 <= u < 1:
                    continue
                found = answer(p.clone(), q.clone(), x, u)
                shown = f"for p={first}, q={second}, token {x} and u={u:.2f}"
                if u < likely:
                    demand(
                        isinstance(found, bool) and found,
                        f"{shown} the token stands, and True is due: it does with probability min(1, p/q)",
                    )
                    continue
                demand(found is not True, f"{shown} the token does not stand")
                demand(
                    found is not False, f"{shown}: give the distribution that is drawn from instead"
                )
                given = tensor(found, (len(first),), name=f"{shown} the distribution")
                _demand_residual(given, p, q, missing, shown)


def _demand_residual(given: Any, p: Any, q: Any, missing: Any, shown: str) -> None:
    right = missing / missing.sum()
    slips = {
        "p itself would give tokens twice that the draft has given already": p,
        "q is what has just been refused": q,
        "it must add up to one": missing,
        "no probability is negative": p - q,
    }
    for words, wrong in slips.items():
        demand(close(given, right) or not close(given, wrong), f"{shown}: {words}")
    demand(close(given, right), f"{shown}: what does the draft give too little of?")


@exercise(_CHAPTER)
def worth(answer: Answer) -> None:
    """Write `worth(alpha, ahead, cost)`: how many times as fast a draft makes writing."""
    for alpha, ahead, cost in ((0.7, 4, 0.1), (0.0, 3, 0.05), (0.9, 8, 0.02), (0.5, 1, 0.5)):
        found = number(answer(alpha, ahead, cost))
        tokens = sum(alpha**i for i in range(ahead + 1))
        right = tokens / (1 + cost * ahead)
        shown = f"for alpha={alpha}, {ahead} proposals and cost={cost} it gives {found:.4g}"
        slips = {
            tokens: "the draft takes time, too",
            tokens / (1 + cost): "it runs once for each proposal",
            (tokens - 1) / (1 + cost * ahead): "even a refused proposal ends in a token",
            tokens / (cost * ahead): "the large model runs once, too",
        }
        for wrong, words in slips.items():
            demand(close(found, right) or not close(found, wrong), f"{shown}: {words}")
        demand(close(found, right), f"{shown}; tokens of a round over the time of a round")


@exercise(_CHAPTER)
def checkpoints(answer: Answer) -> None:
    """Write `checkpoints(layers, every)`: states held when only some inputs of blocks are kept."""
    for layers, every in ((16, 4), (16, 1), (16, 16), (10, 3), (7, 2)):
        found = number(answer(layers, every))
        right = -(-layers // every) + every
        shown = f"for {layers} blocks, of which each {every}th input is kept, it gives {found:g}"
        slips = {
            -(-layers // every): "a stretch that is run again needs its own states meanwhile",
            layers // every + every: "the last stretch may be shorter, and its input is kept, too",
            layers + every: "only one stretch at a time is run again",
        }
        for wrong, words in slips.items():
            demand(
                close(found, float(right)) or not close(found, float(wrong)), f"{shown}: {words}"
            )
        demand(close(found, float(right)), f"{shown}; count inputs kept, then the longest stretch")
