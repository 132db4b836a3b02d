"""Exercises of the chapter on loss spikes; that on alarms stands in the room of warm-up."""

from __future__ import annotations

import math

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/training/spikes"


@exercise(
    _CHAPTER,
    Drawing(
        "Three numbers for a rate of {rate}, a curvature of {curvature}, gradients that were {size}: steps of "
        "silence until the limit, for second betas of 0.98 and 0.999, and the half-life of v at 0.98.",
        lambda chance: {
            "rate": chance.choice((0.002, 0.004, 0.02)),
            "curvature": chance.choice((2.0, 5.0, 10.0)),
            "size": chance.choice((0.2, 0.5, 1.0)),
        },
    ),
)
def silence(answer: Answer, rate: float = 0.01, curvature: float = 4.0, size: float = 0.1) -> None:
    """Three numbers: steps of silence until Adam's limit at beta2 0.98 and at 0.999, and the half-life of v."""
    short, long, half = answer.numbers("beta2 = 0.98", "beta2 = 0.999", "half-life")
    limit = 2 * (1 + 0.9) / (1 - 0.9)
    shrink = math.log(limit * size / (rate * curvature))  # of the root of v

    def steps(beta: float, ways: float = 2.0) -> float:
        return ways * shrink / -math.log(beta)

    way = "v is multiplied by beta2 in each silent step; rate times curvature over its root reaches the limit"
    for found, beta in ((short, 0.98), (long, 0.999)):
        slips = {
            steps(beta, 1.0): "v stands under a root",
            steps(beta, -2.0): "the average shrinks, so the number of steps is positive",
            2 * math.log(2 * size / (rate * curvature)) / -math.log(beta): (
                "the limit of 2 is that of plain descent; momentum raises it"
            ),
            2 * math.log(limit * size / rate) / -math.log(beta): "where is the curvature?",
        }
        demand_number(found, steps(beta), way=way, name=f"beta2 = {beta}", within=0.02, slips=slips)
    slips = {
        2 * math.log(2) / -math.log(0.98): "that is the half-life of its root",
        math.log(2) / -math.log(0.999): "that is for 0.999",
    }
    demand_number(
        half,
        math.log(2) / -math.log(0.98),
        way="after how many factors of 0.98 is a half left?",
        name="the half-life",
        within=0.02,
        slips=slips,
    )


@exercise(_CHAPTER)
def qk_clip(answer: Answer) -> None:
    """Write `qk_clip(w_q, w_k, largest, cap)`: both matrices of a head, shrunk where scores are too large."""
    for seed, largest, cap in (
        (0, 400.0, 100.0),
        (1, 90.0, 100.0),
        (2, 12.0, 3.0),
        (3, 50.0, 50.0),
    ):
        w_q, w_k = normal(6, 4, seed=seed), normal(6, 4, seed=seed + 10)
        found = answer(w_q, w_k, largest, cap)
        demand(
            isinstance(found, tuple | list) and len(found) == 2,
            "two matrices are asked for, the new W_Q and the new W_K",
        )
        new_q, new_k = tensor(found[0], (6, 4)), tensor(found[1], (6, 4))
        before = w_q.double() @ w_k.double().T
        after = new_q.double() @ new_k.double().T
        if largest <= cap:
            text = f"with a largest score of {largest:g} under a cap of {cap:g} nothing needs to change"
            demand(close(after, before, 1e-6), text)
            continue
        ratio = float((after * before).sum() / before.square().sum())
        demand(
            close(after, ratio * before, 1e-5),
            "the products of queries and keys shall all shrink by one factor",
        )
        text = (
            f"a largest score of {largest:g} becomes {ratio * largest:.4g}, with a cap of {cap:g}"
        )
        hint = {
            True: "each matrix got the whole factor, so the product got its square",
            False: "by which factor must the product shrink?",
        }[close(ratio, (cap / largest) ** 2, 1e-4)]
        demand(close(ratio, cap / largest, 1e-4), f"{text}; {hint}")
        sizes = (
            new_q.double().norm() / w_q.double().norm(),
            (new_k.double().norm() / w_k.double().norm()),
        )
        demand(
            close(sizes[0], sizes[1], 1e-4),
            "one matrix shrinks more than the other; share the factor evenly",
        )
