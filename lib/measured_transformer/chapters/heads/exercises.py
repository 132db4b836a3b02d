"""Exercises of the chapter on many heads."""

from __future__ import annotations

import math

import torch

from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    first,
    normal,
    number,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/attention/heads"


@exercise(_CHAPTER)
def terms(answer: Answer) -> None:
    """Write `terms(concatenated, W_O, n_heads)`: what each head adds, (n_heads, n, d), one after the other."""
    for heads, width, n, d in ((3, 2, 4, 6), (2, 3, 1, 4), (1, 2, 3, 5), (4, 1, 5, 3)):
        outputs, weight = normal(n, heads * width, seed=1), normal(heads * width, d, seed=2)
        found = tensor(answer(outputs, weight, heads), (heads, n, d), name="what `terms` returns")
        demand(
            close(found.sum(0), outputs @ weight), "the terms do not add up to what the layer adds"
        )
        for head in range(heads):
            others = torch.ones(heads * width, dtype=torch.bool)
            others[head * width : (head + 1) * width] = False
            changed = outputs + 3 * others
            again = tensor(answer(changed, weight, heads), (heads, n, d))
            demand(
                close(again[head], found[head]),
                f"the term of head {head} changes when only other heads' outputs change",
            )
            silent = torch.where(others, outputs, 0.0)
            again = tensor(answer(silent, weight, heads), (heads, n, d))
            demand(
                close(again[head], torch.zeros(n, d)),
                f"head {head} adds something although its own output is zero",
            )


@exercise(_CHAPTER)
def choices(answer: Answer) -> None:
    """The rank of a score form ($d = 768$, $d_h = 64$), its entries, and the numbers that decide it."""
    rank, entries, free = answer.numbers("the rank", "the entries", "the independent numbers")
    way = "through how many numbers does every score pass?"
    demand_number(
        rank, 64.0, name="the rank", way=way, slips={768.0: "that is the width of the stream"}
    )
    way = "the form takes a state on either side"
    slips = {768.0 * 64: "that is one of its two factors"}
    demand_number(entries, 768.0 * 768, name="the number of entries", way=way, slips=slips)
    way = "which changes of the two factors leave their product as it is?"
    slips = {
        2.0 * 768 * 64: "that counts both factors; some changes of them cancel in the product",
        768.0 * 768: "that many a matrix of full rank would need",
    }
    right = 2.0 * 768 * 64 - 64 * 64
    demand_number(free, right, name="the third number", way=way, within=0.001, slips=slips)


@exercise(_CHAPTER)
def blend(answer: Answer) -> None:
    """Two weights with which one head can bring two one-hot tokens in one vector, so that their order shows."""
    near, far = answer.numbers("the weight one place back", "the weight three places back")
    demand(min(near, far) > -1e-9, "weights of a head are never negative")
    demand(
        abs(near + far - 1) < 1e-6,
        f"a head's weights sum to one, these to {near + far:.6g}",
    )
    demand(
        min(near, far) > 1e-6,
        "one of the two places is not looked at, so nothing is known of its token",
    )
    demand(
        abs(near - far) > 1e-6,
        "with these weights the vector of the tokens a, b is that of b, a",
    )


@exercise(_CHAPTER)
def virtual(answer: Answer) -> None:
    """Three weights of a virtual head: on the own position, one place back and two places back."""
    found = answer.numbers("the own position", "one back", "two back")
    demand(
        abs(sum(found) - 1) < 1e-6,
        f"the weights of a pattern sum to one, these to {sum(found):.6g}",
    )
    way = "over how many paths does the second head reach that position, and what is each worth?"
    names = ("the weight on the own position", "the weight one back", "the weight two back")
    for value, right, name in zip(found, (0.25, 0.5, 0.25), names, strict=True):
        demand_number(value, right, name=name, way=way)


@exercise(_CHAPTER)
def excess(answer: Answer) -> None:
    """Write `excess(A, B)`: the composition score of what A writes and what B reads, over its baseline."""
    whole = torch.eye(4, dtype=torch.float64)
    same = number(answer(whole[:, :1] @ whole[:1], whole[:, :1] @ whole[:1]))
    demand(
        close(same, 2.0),
        "of two maps along one and the same direction, in a stream of width 4, the score is as large as it can "
        f"be, yet what comes is {same:.6g}",
    )
    apart = number(answer(whole[:, :1] @ whole[:1], whole[:, 1:2] @ whole[1:2]))
    demand(close(apart, 0.0), f"B reads nothing of what A writes, yet what comes is {apart:.6g}")
    first_map, second = normal(3, 6, seed=1), normal(6, 5, seed=2)
    found = number(answer(first_map, second))
    louder = number(answer(7 * first_map, second / 3))
    demand(close(found, louder), "the result depends on how large the two matrices are")
    squares = []
    for seed in range(60):
        turn = torch.linalg.qr(normal(6, 6, seed=100 + seed)).Q
        squares.append(number(answer(first_map @ turn, second)) ** 2)
    mean = math.sqrt(math.fsum(squares) / len(squares))
    demand(
        abs(mean - 1) < 0.15,
        f"with random rotations between the two, the root of the mean square is {mean:.2f} rather than 1",
    )
    both = (normal(6, 6, seed=3), normal(6, 6, seed=4))
    forth, back = number(answer(*both)), number(answer(both[1], both[0]))
    expected = (both[0] @ both[1]).norm() / (both[1] @ both[0]).norm()
    wrong = torch.tensor([not close(forth / back, expected)])
    demand(not first(wrong), "what A writes is to be read by B, in this order")
