"""Exercises of the chapter on gradients and where the norm stands."""

from __future__ import annotations

import math

import torch

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/norms/norm-gradients"


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers: what is left of a gradient on the skip path of {blocks} blocks, post-norm and "
        "pre-norm; each branch writes a vector as long as the stream and at right angles to it.",
        lambda chance: {"blocks": chance.choice((4, 6, 8, 10, 14, 16, 18, 20))},
    ),
)
def on_the_skip(answer: Answer, blocks: int = 12) -> None:
    """Two numbers: what is left of a gradient on the skip path of 12 blocks, post-norm and pre-norm."""
    post, pre = answer.numbers("post-norm", "pre-norm")
    slips = {
        2.0 ** (-2 * blocks): "that is the factor of the squared length",
        2.0 ** (-blocks / 2): "a block has two sublayers, and each has its norm",
        2.0**-0.5: "that is one sublayer's factor",
        0.0: f"a factor, {2 * blocks} times, is small, not zero",
    }
    way = "find one norm's factor on a gradient first; then count the norms on the path"
    demand_number(post, 2.0**-blocks, way=way, name="post-norm", within=0.01, slips=slips)
    slips = {2.0**-blocks: "which norms lie on the skip path of a pre-norm model?"}
    way = "what stands on the skip path of a pre-norm model?"
    demand_number(pre, 1.0, way=way, name="pre-norm", within=0.001, slips=slips)


@exercise(_CHAPTER)
def tower(answer: Answer) -> None:
    """Write `tower(first, writes)`: the gradient's length at each state of a pre-norm tower, upwards."""
    cases = ((1.0, [1.0]), (1.0, [1.0, 1.0, 1.0]), (2.0, [0.5, 3.0, 1.0, 0.2]), (1.0, [4.0, 0.1]))
    for first, writes in cases:
        found = tensor(answer(first, list(writes)), shape=(len(writes) + 1,))
        sizes = _sizes(first, writes)
        right = 1 / sizes
        shown = f"for a first size of {first:g} and writes of {writes} it gives {_written(found)}"
        slips = {
            "those are the sizes; the final norm divides a gradient by the last of them": sizes,
            "that would be so without the final norm, which the gradient meets first": sizes[-1]
            / sizes,
            "nothing changes there: what comes back through the branches?": right[-1].expand(
                len(sizes)
            ),
            "that is in the order of the way down; the embedding comes first": right.flip(0),
            "those are squared lengths": right.square(),
        }
        for words, slip in slips.items():
            demand(close(found, right) or not close(found, slip), f"{shown}: {words}")
        along = _lengths_added(sizes, writes)
        demand(
            close(found, right) or not close(found, along),
            f"{shown}: at right angles it is the squared lengths that add up",
        )
        demand(close(found, right), f"{shown}; follow three sublayers by hand, up and down")


def _sizes(first: float, writes: list[float]) -> torch.Tensor:
    squares = torch.tensor([first, *writes], dtype=torch.float64).square()
    return squares.cumsum(0).sqrt()


def _lengths_added(sizes: torch.Tensor, writes: list[float]) -> torch.Tensor:
    """The slip of adding lengths in place of their squares."""
    factors = 1 + torch.tensor(writes, dtype=torch.float64) / sizes[:-1]
    below = factors.flip(0).cumprod(0).flip(0)
    return torch.cat([below, torch.ones(1, dtype=torch.float64)]) / sizes[-1]


def _written(values: torch.Tensor) -> str:
    return ", ".join(f"{float(value):.3g}" for value in values)


@exercise(_CHAPTER)
def score_gradient(answer: Answer) -> None:
    """Write `score_gradient(pattern, values, g)`: a query's gradient at its scores, from that at its output."""
    for keys, width, seed in ((3, 2, 0), (6, 4, 1), (1, 3, 2)):
        scores = normal(keys, seed=seed)
        values, g = normal(keys, width, seed=seed + 10), normal(width, seed=seed + 20)
        pattern = scores.softmax(0)
        found = tensor(answer(pattern, values, g), shape=(keys,))
        right = pattern * (values @ g - pattern @ values @ g)
        shown = f"with {keys} keys it is off"
        demand(
            close(found, right) or not close(found, values @ g),
            f"{shown}: that is the gradient at the weights; the softmax is still to come",
        )
        demand(
            close(found, right) or not close(found, pattern * (values @ g)),
            f"{shown}: weights sum to one, so raising one score lowers the other weights",
        )
        demand(
            close(found, right) or not close(found, right / pattern),
            f"{shown}: a key with hardly any weight can hardly move the output",
        )
        demand(close(found, right), f"{shown}; write down how each weight depends on each score")
    same = normal(1, 4, seed=3).expand(5, 4)
    found = tensor(answer(normal(5, seed=4).softmax(0), same, normal(4, seed=5)), shape=(5,))
    demand(close(found, torch.zeros(5)), "for equal values the output cannot depend on the scores")


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers: by which factor W = {times} V, with V trained, changes W's first step: descent, Adam.",
        lambda chance: {"times": chance.choice((2, 4, 5, 6, 7, 8))},
    ),
)
def rate_factors(answer: Answer, times: int = 3) -> None:
    """Two numbers: by which factor W = 3 V, with V trained, changes W's first step: descent, Adam."""
    descent, adam = answer.numbers("gradient descent", "Adam")
    slips = {
        float(times): "V's gradient is W's times something, too",
        1 / times: "the other way round: a step of V is how large a step of W?",
        1.0: "V's step is not W's",
        1 / times**2: "the other way round: a step of V is how large a step of W?",
    }
    way = "by the chain rule, what is V's gradient; and what does a step of V do to W?"
    demand_number(
        descent, float(times**2), way=way, name="gradient descent", within=0.001, slips=slips
    )
    slips = {
        float(times**2): "Adam does not see how large a gradient is",
        1.0: "Adam's step of V does not depend on the factor, but W's step is not V's",
        1 / times: "the other way round: a step of V is how large a step of W?",
    }
    way = "how long is Adam's first step of V, whatever its gradient?"
    demand_number(adam, float(times), way=way, name="Adam", within=0.001, slips=slips)


@exercise(_CHAPTER)
def equalise(answer: Answer) -> None:
    """Write `equalise(gradients)`: gradients as long as the geometric mean of their lengths."""
    cases = (
        [normal(4, seed=0), normal(4, seed=1) * 10],
        [normal(3, seed=2) * 0.01, normal(3, seed=3), normal(3, seed=4) * 5],
        [normal(6, seed=5)],
    )
    for gradients in cases:
        given = [g.clone() for g in gradients]
        found = answer(given)
        demand(
            isinstance(found, (list, tuple)) and len(found) == len(gradients),
            f"expected a list of {len(gradients)} gradients, one per block",
        )
        came = [tensor(f, shape=tuple(g.shape)) for f, g in zip(found, gradients, strict=True)]
        lengths = [float(g.norm()) for g in gradients]
        for f, g in zip(came, gradients, strict=True):
            cosine = float(f @ g / (f.norm() * g.norm()).clamp_min(1e-300))
            demand(abs(cosine - 1) < 1e-6, "a block's gradient has another direction than before")
        new = [float(f.norm()) for f in came]
        demand(
            all(abs(n / new[0] - 1) < 1e-6 for n in new),
            "the lengths still differ: " + ", ".join(f"{n:.3g}" for n in new),
        )
        wanted = math.exp(sum(map(math.log, lengths)) / len(lengths))
        arithmetic = sum(lengths) / len(lengths)
        demand(
            close(new[0] / wanted, 1.0) or not close(new[0] / arithmetic, 1.0),
            "that is the arithmetic mean of the lengths; one long gradient decides it alone",
        )
        demand(
            close(new[0] / wanted, 1.0) or not close(new[0], 1.0),
            "all have length one now, so the learning rate means something else than before",
        )
        demand(
            close(new[0] / wanted, 1.0),
            f"for lengths {', '.join(f'{n:.3g}' for n in lengths)} all came out {new[0]:.3g} long",
        )
