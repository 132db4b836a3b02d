"""Exercises of the chapter on models without norms."""

from __future__ import annotations

import math
from statistics import NormalDist

import torch

from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    first,
    normal,
    number,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/norms/without-norms"


@exercise(_CHAPTER)
def growth(answer: Answer) -> None:
    """Write `growth(write, k)`: the stream's length after k writes, two numbers: with norms, without."""
    for write, k in ((0.75, 2), (0.75, 1), (0.5, 24), (1.0, 6), (0.2, 48)):
        found = answer(write, k)
        demand(
            isinstance(found, (tuple, list)) and len(found) == 2,
            "expected two numbers, with norms and without",
        )
        normed, bare = number(found[0], "with norms"), number(found[1], "without")
        shown = f"for write={write:g} and k={k} it gives {normed:.4g} and {bare:.4g}"
        right = math.sqrt(1 + k * write**2), (1 + write**2) ** (k / 2)
        if k > 1:
            demand(
                not (close(normed, right[1]) and close(bare, right[0])),
                f"{shown}: the two are exchanged; whose writes grow with the stream?",
            )
            demand(not close(normed, right[0] ** 2), f"{shown}: the first is a *squared* length")
            demand(not close(bare, right[1] ** 2), f"{shown}: the second is a *squared* length")
            demand(
                not close(bare, (1 + write) ** k),
                f"{shown}: the second adds lengths as if all writes pointed along the stream",
            )
            demand(
                not close(normed, 1 + k * write),
                f"{shown}: the first adds lengths as if all writes pointed along the stream",
            )
            demand(
                not close(bare, right[0]),
                f"{shown}: without norms, how long is the second write?",
            )
        demand(
            close(normed, right[0]), f"{shown}; with norms, add up squared lengths, one at a time"
        )
        demand(
            close(bare, right[1]),
            f"{shown}; without norms, by which factor does each write stretch?",
        )


@exercise(_CHAPTER)
def branch_size(answer: Answer) -> None:
    """Write `branch_size(n_layers)`: how long writes may be, over the stream's length, for it to double."""
    for layers in (2, 1, 6, 12, 48):
        found = number(answer(layers))
        shown = f"for {layers} blocks it gives {found:.4g}"
        right = math.sqrt(2 ** (1 / layers) - 1)
        demand(
            not close(found, 2 ** (1 / layers) - 1) or layers == 1,
            f"{shown}: that is the square of a length",
        )
        demand(
            not close(found, 2 ** (1 / (2 * layers)) - 1),
            f"{shown}: at right angles, squared lengths are added and not lengths",
        )
        demand(
            not close(found, math.sqrt(4 ** (1 / layers) - 1)),
            f"{shown}: how often does a block write?",
        )
        demand(
            not close(found, math.sqrt(2 ** (1 / (2 * layers)) - 1)),
            f"{shown}: then the *squared* length doubles, not the length",
        )
        demand(
            not close(found, math.sqrt(3 / (2 * layers))),
            f"{shown}: that is for writes of one length; here each is measured against a stream that grew",
        )
        demand(
            close(found, right),
            f"{shown}; each write multiplies the squared length by the same factor: by which?",
        )


@exercise(_CHAPTER)
def first_gradients(answer: Answer) -> None:
    """Write `first_gradients(x, up, gradient)`: of `up` and `down` in x + relu(x @ up) @ down, down = 0."""
    for seed in range(3):
        x, gradient = normal(4, 3, seed=seed), normal(4, 3, seed=seed + 10)
        up = normal(3, 5, seed=seed + 20)
        found = answer(x, up, gradient)
        demand(
            isinstance(found, (tuple, list)) and len(found) == 2,
            "expected two tensors, the gradient of `up` and that of `down`",
        )
        of_up = tensor(found[0], shape=(3, 5), name="the gradient of `up`")
        of_down = tensor(found[1], shape=(5, 3), name="the gradient of `down`")
        hidden = (x @ up).relu()
        demand(
            not close(of_down, torch.zeros(5, 3)),
            "the gradient of `down` is zero: then nothing would ever move; what does `down` multiply?",
        )
        demand(
            not close(of_down, (x @ up).T @ gradient),
            "the gradient of `down` uses what comes before the ReLU",
        )
        right = hidden.T @ gradient
        demand(
            close(of_down, right),
            f"the gradient of `down` is another one, first at {first((of_down - right).abs() > 1e-6)}; "
            "it is the hidden row's transpose times the gradient of what is written",
        )
        demand(
            close(of_up, torch.zeros(3, 5)),
            "the gradient of `up` is not what autograd finds; through which matrix must it come back?",
        )


@exercise(_CHAPTER)
def smallest(answer: Answer) -> None:
    """Write `smallest(d)`: the median of the smallest of d sizes |z| of standard normal numbers z."""
    for d in (2, 1, 32, 64, 512):
        found = number(answer(d))
        shown = f"for d={d} it gives {found:.4g}"
        right = NormalDist().inv_cdf(1 - 2 ** (-1 / d) / 2)
        if d > 1:
            largest = NormalDist().inv_cdf((1 + 2 ** (-1 / d)) / 2)
            demand(not close(found, largest), f"{shown}: that is the largest, not the smallest")
        signed = NormalDist().inv_cdf(1 - 2 ** (-1 / d)) if d > 1 else 0.0
        demand(not close(found, signed), f"{shown}: a size has no sign; two tails lie beyond it")
        demand(
            abs(found - right) <= 1e-3 * right,
            f"{shown}; with which probability is one size above it, if all d are with one half?",
        )
