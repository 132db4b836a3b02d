"""Exercises of *The attention sink of a language model*."""

from __future__ import annotations

import math

import torch

from measured_book.exercises.answers import Answer, close, demand, demand_number, normal, tensor
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/real-language-model/sink"


@exercise(
    _CHAPTER,
    Drawing(
        "A sink has a score of {score}, {others} other keys have a score of 0; the sink's value is "
        "{shorter} times shorter than the others'. Two numbers: (a) the weight of the sink; (b) its share "
        "of the lengths of all weighted vectors.",
        lambda chance: {
            "score": chance.choice((3, 4, 6)),
            "others": chance.choice((7, 12, 20, 31)),
            "shorter": chance.choice((20, 40, 100)),
        },
    ),
)
def nothing_left(answer: Answer, score: int = 5, others: int = 9, shorter: int = 50) -> None:
    """Two numbers: the weight of a sink whose score is 5 above nine others, its share of what arrives."""
    weight, share = answer.numbers("(a)", "(b)")
    e = math.exp(score)
    right = e / (e + others)
    slips = {
        e / (e + 1): f"there are {others} other keys, not one",
        score / (score + others): "the softmax takes the exponential of the scores",
    }
    way = f"e^{score} over e^{score} + {others}"
    demand_number(weight, right, way=way, name="(a)", within=0.005, slips=slips)
    arrived = right / shorter
    carried = arrived / (arrived + (1 - right))
    slips = {arrived: "that is what arrives from the sink; divide by all that arrives"}
    way = f"a {shorter}th of its weight, over that and the weight of the others"
    demand_number(share, carried, way=way, name="(b)", within=0.01, slips=slips)


@exercise(_CHAPTER)
def seen(answer: Answer) -> None:
    """Write `seen(length, window, sinks)`: the Boolean mask (query, key) of a window that keeps sinks."""
    for length, window, sinks in ((6, 2, 1), (7, 3, 2), (5, 5, 0), (8, 3, 1)):
        query, key = torch.arange(length)[:, None], torch.arange(length)[None]
        past = key <= query
        right = past & ((key > query - window) | (key < sinks))
        found = tensor(answer(length, window, sinks), (length, length)).bool()
        for slip, text in (
            ((key > query - window) | (key < sinks), "no query sees a later key"),
            (past & (key > query - window), "the first keys stay: those below `sinks`"),
            (
                past & ((key >= query - window) | (key < sinks)),
                "a window of 3 holds three keys, the query's own included",
            ),
            (
                past & ((key > query - window + sinks) | (key < sinks)),
                "sinks come on top of the window, they take no room in it",
            ),
        ):
            demand(slip.equal(right) or not found.equal(slip), text)
        demand(found.equal(right), f"for {(length, window, sinks)} other keys are seen")


@exercise(_CHAPTER)
def constant_read(answer: Answer) -> None:
    """Write `constant_read(states)`: the mean cosine between RMS-normalised states of different rows."""
    for rows, width, seed in ((2, 5, 0), (3, 8, 1), (5, 6, 2)):
        states = normal(rows, width, seed=seed)
        states[:, 1] += 4.0
        unit = states / states.norm(dim=-1, keepdim=True)
        likeness = unit @ unit.T
        others = ~torch.eye(rows, dtype=torch.bool)
        right = likeness[others].mean()
        found = tensor(answer(states.clone()), ())
        centred = states - states.mean(-1, keepdim=True)
        centred = centred / centred.norm(dim=-1, keepdim=True)
        for slip, text in (
            (likeness.mean(), "a row is always like itself: leave the diagonal out"),
            (
                (states @ states.T)[others].mean(),
                "that is a product, not a cosine: divide by both lengths",
            ),
            ((centred @ centred.T)[others].mean(), "RMSNorm takes no mean away"),
        ):
            demand(not close(found, slip), text)
        demand(close(found, right), f"for {rows} states of width {width} the mean is another one")
