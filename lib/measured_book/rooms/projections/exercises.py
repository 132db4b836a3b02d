"""Exercises of the chapter on shared projections."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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

_CHAPTER = "book/attention/projections"


@exercise(_CHAPTER, chosen_inputs=True)
def mutual(answer: Answer) -> None:
    """Write `mutual(scores)`: the number of pairs whose positions both score the other above themselves."""
    table = torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.0, 3.0], [1.0, 1.0, 5.0]])
    found = number(answer(table))
    demand(found != 2, "every pair is counted once, not once for each of its two sides")
    text = "the first two prefer each other, the third prefers nobody to itself: that is one pair"
    demand(found != 0, f"a pair is missing; {text}")
    demand(found == 1, text)
    calm = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    demand(number(answer(calm)) == 0, "equal scores are no preference")
    q = normal(9, 3, seed=1)
    demand(
        number(answer(q @ q.T)) == 0,
        "a shared projection leaves no such pair, yet some are counted",
    )
    scores = normal(9, 9, seed=2)
    own = scores.diagonal()
    pairs = sum(
        bool(scores[i, j] > own[i] and scores[j, i] > own[j]) for i in range(9) for j in range(i)
    )
    text = "in a table of nine positions the number of pairs is wrong: whose own score is compared?"
    demand(number(answer(scores)) == pairs, text)


@exercise(_CHAPTER)
def turn(answer: Answer) -> None:
    """Write `turn(w_query, w_key, a)`: the query matrix times `a`, and the key matrix that keeps all scores."""
    for d, h, seed in ((4, 2, 1), (6, 3, 2), (3, 1, 3)):
        w_query, w_key = normal(d, h, seed=seed), normal(d, h, seed=seed + 10)
        a = torch.eye(h, dtype=torch.float64) + 0.4 * normal(h, h, seed=seed + 20)
        found = answer(w_query, w_key, a)
        demand(isinstance(found, (tuple, list)) and len(found) == 2, "two matrices are asked for")
        new_query = tensor(found[0], (d, h), name="the query matrix")
        new_key = tensor(found[1], (d, h), name="the key matrix")
        demand(close(new_query, w_query @ a, 1e-8), "the query matrix is not multiplied by `a`")
        demand(not close(new_key, w_key, 1e-8), "the keys stay as they are, so the scores move")
        text = "as many scores as before move: is `a` undone, or done a second time?"
        demand(not close(new_key, w_key @ a, 1e-8), text)
        x = normal(5, d, seed=seed + 30)
        before = (x @ w_query) @ (x @ w_key).T
        after = (x @ new_query) @ (x @ new_key).T
        text = "the scores move; write down the product of the new queries and keys, transposes included"
        demand(close(after, before, 1e-7), text)


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers, width {width}, head of {head}: directions of the scores, projections "
        "separate, then shared.",
        lambda chance: {"width": 8 * chance.randint(9, 20), "head": chance.randint(5, 12)},
    ),
)
def knobs(answer: Answer, width: int = 64, head: int = 8) -> None:
    """Two numbers, width 64, head of 8: directions of the scores, projections separate, then shared."""
    separate, shared = answer.numbers("separate", "shared")
    slips = {
        2.0 * width * head: (
            "that is the number of weights; some changes of them leave all scores as they are"
        ),
        float(head**2): "that is the number of directions that change nothing",
        float(width**2): "a matrix of that size has as many entries, but its rank is limited",
    }
    way = "how many numbers has the matrix that can be undone on the other side?"
    right = 2.0 * width * head - head**2
    demand_number(separate, right, name="the first", way=way, within=1e-4, slips=slips)
    slips = {
        1.0 * width * head: (
            "that is the number of weights; some changes of them leave all scores as they are"
        ),
        1.0 * width * head - head**2: (
            "not every invertible matrix goes unnoticed when both sides get the same one"
        ),
        right
        / 2: "a shared projection has half of the weights, but not half of the hidden directions",
    }
    way = "which matrices may be put behind a projection that meets itself?"
    right = width * head - head * (head - 1) / 2
    demand_number(shared, right, name="the second", way=way, within=1e-4, slips=slips)


@exercise(
    _CHAPTER,
    Drawing(
        "Four numbers: kilobytes (of 1024 bytes) that a token leaves in the cache of {layers} "
        "layers, two bytes per "
        "number: MHA with {heads} heads of width {head}, GQA with {groups} groups, MQA, and MLA "
        "with a latent of "
        "{latent} and a turned key of {turned}.",
        lambda chance: {
            "layers": 8 * chance.randint(2, 10),
            "heads": chance.choice((16, 24, 40, 64)),
            "head": chance.choice((64, 96, 128)),
            "groups": chance.choice((2, 4)),
            "latent": chance.choice((256, 384, 768)),
            "turned": chance.choice((32, 48, 64)),
        },
    ),
)
def cache(
    answer: Answer,
    layers: int = 32,
    heads: int = 32,
    head: int = 128,
    groups: int = 8,
    latent: int = 512,
    turned: int = 64,
) -> None:
    """Four numbers: kilobytes that a token leaves in the cache with MHA, GQA, MQA and MLA."""
    found = answer.numbers("(a)", "(b)", "(c)", "(d)")
    way = "count the numbers that one layer keeps, then layers, then bytes"
    number = 2 * layers / 1024  # what one number of one layer adds
    pair = 2 * head * number
    right = {
        "(a)": heads * pair,
        "(b)": groups * pair,
        "(c)": pair,
        "(d)": (latent + turned) * number,
    }
    for (name, wanted), given in zip(right.items(), found, strict=True):
        slips = {
            wanted
            / 2: "two bytes a number: has a factor of two been forgotten, or keys or values?",
            wanted / layers: "that is one layer",
            wanted * 1.024: "a kilobyte has 1024 bytes here",
        }
        if name == "(d)":
            slips[latent * number] = "the turned key is kept as well"
            slips[2 * wanted] = "the latent serves keys and values both, it is kept once"
            slips[(latent + heads * turned) * number] = "all heads share one turned key"
        demand_number(given, wanted, name=name, way=way, within=1e-4, slips=slips)


class _Shapes(TorchDispatchMode):
    """Remembers the shape of every tensor that is made while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.seen.add(tuple(made.shape))
        return made


@exercise(_CHAPTER)
def absorbed(answer: Answer) -> None:
    """Write `absorbed(queries, latents, up_key, up_value)`: a head of MLA, without keys and values."""
    n_query, n_key, rank, width = 3, 11, 4, 7
    queries, latents = normal(n_query, width, seed=1), normal(n_key, rank, seed=2)
    up_key, up_value = normal(rank, width, seed=3), normal(rank, width, seed=4)
    given, seen = answer.watched(_Shapes, queries, latents, up_key, up_value)
    found = tensor(given, (n_query, width), name="what is mixed")
    keys, values = latents @ up_key, latents @ up_value

    def mixed(scale: float) -> torch.Tensor:
        return (scale * queries @ keys.T).softmax(-1) @ values

    demand(not close(found, mixed(1.0), 1e-8), "the scores are not divided")
    text = "scores are divided by the root of the width of a head, whatever the rank of the latent"
    demand(not close(found, mixed(rank**-0.5), 1e-8), text)
    demand(close(found, mixed(width**-0.5), 1e-8), "it is not what keys and values would give")
    alone = (sorted((n_key, width)), [n_key * width])
    made = {shape for shape in seen if sorted(n for n in shape if n != 1) in alone}
    demand(not made, "keys or values were made: move the brackets until they are not needed")
