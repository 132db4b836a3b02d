"""Exercises of the chapter on the learning rate."""

from __future__ import annotations

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

_CHAPTER = "book/training/learning-rate"
_OPTIMISERS = "book/training/optimisers"


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers for the curvatures {least}, {middle} and {most}: the rate above which "
        "descent diverges, and "
        "the best rate.",
        lambda chance: {
            "least": chance.randint(2, 5),
            "middle": chance.randint(6, 12),
            "most": 10 * chance.randint(4, 20),
        },
    ),
)
def edge(answer: Answer, least: int = 1, middle: int = 4, most: int = 100) -> None:
    """Two numbers for the curvatures 1, 4 and 100: the rate above which descent diverges, and the best rate."""
    del middle  # it decides nothing, which is a part of the question
    limit, best = answer.numbers("the limit", "the best rate")
    way = "by which factor does one step multiply the error of the steepest direction?"
    slips = {
        1
        / most: "there the steepest direction is solved in one step; it may overshoot without diverging",
        2 / least: "the steepest direction decides",
    }
    demand_number(limit, 2 / most, way=way, name="the limit", slips=slips)
    way = "at the best rate the slowest and the steepest direction shrink alike, one of them overshooting"
    slips = {
        1
        / most: "there the steepest direction is solved at once; a larger rate is better for the slowest",
        2 / most: "at the limit the steepest direction never shrinks",
    }
    right = 2 / (least + most)
    demand_number(best, right, way=way, name="the best rate", within=0.004, slips=slips)


@exercise(_CHAPTER)
def parts(answer: Answer) -> None:
    """Write `parts(table)`: the variances due to the rate (rows), the width (columns) and both together."""
    noise = normal(3, 2, seed=1)
    sums = normal(3, 1, seed=2) + normal(1, 2, seed=3)
    rows, columns = normal(3, 1, seed=4).expand(3, 2), normal(1, 4, seed=5).expand(5, 4)
    _check_parts(answer, "here only rows differ", rows, no_share=1)
    _check_parts(answer, "here only columns differ", columns, no_share=0)
    _check_parts(answer, "here each entry is a row's number plus a column's", sums, no_share=2)
    _check_parts(answer, "with any table", noise)
    _check_parts(answer, "with 10 added to each entry", noise + 10)


def _check_parts(answer: Answer, words: str, table: Tensor, no_share: int | None = None) -> None:
    found = tensor(answer(table.numpy().copy()), (3,), name="what `parts` returns")
    text = (
        f"{words}, a variance comes out negative; deviations are squared before they are averaged"
    )
    demand(found.min() > -1e-12, text)
    if no_share is not None:
        text = {
            0: "yet the rate has a share: is the mean taken along the right axis?",
            1: "yet the width has a share: is the mean taken along the right axis?",
            2: "yet something is due to both together: what would an entry be without an interaction?",
        }[no_share]
        demand(found[no_share] < 1e-12, f"{words}, {text}")
    text = f"{words}, the parts do not add up to the variance of the table; how often is the mean taken off?"
    demand(close(found.sum(), table.var(correction=0), 1e-9), text)
    text = f"{words}, the parts add up, but the rate's is not the variance of the row means"
    demand(close(found[0], table.mean(dim=1).var(correction=0), 1e-9), text)


@exercise(_OPTIMISERS)
def half_life(answer: Answer) -> None:
    """Write `half_life(beta)`: the steps after which a gradient's weight in the running average has halved."""
    for beta in (0.5, 0.9, 0.98, 0.999):
        found = number(answer(beta))
        text = (
            "1 / (1 - beta) steps is how far the average reaches: where a weight is 1/e, not a half"
        )
        demand(abs(found - 1 / (1 - beta)) > 1e-9, text)
        demand(found > 0, "a number of steps is positive; look at the sign of your logarithms")
        weight = beta**found
        text = f"after {found:.4g} steps a weight is multiplied by {weight:.3f}; it shall be halved"
        demand(close(weight, 0.5, 1e-6), text)


@exercise(_OPTIMISERS)
def rare_step(answer: Answer) -> None:
    """Write `rare_step(beta2, every)`: Adam's step when a gradient of 1 comes once in `every` steps.

    It is counted in units of the rate; all other gradients are zero, beta1 = 0, epsilon = 0, and training has
    gone on for long.
    """
    for beta2, every in ((0.98, 100), (0.999, 100), (0.5, 3)):
        found = number(answer(beta2, every))
        second = (1 - beta2) / (1 - beta2**every)
        demand(not close(found, 1 / second), "that is 1 / v; Adam divides by the root of v")
        demand(
            not close(found, second**0.5), "that is the root of v, by which the gradient is divided"
        )
        text = "that counts only the latest appearance; the earlier ones are still in v"
        demand(not close(found, (1 - beta2) ** -0.5), text)
        text = "v is taken just before the token appears; Adam first adds the new gradient to v, then divides"
        demand(not close(found, (second * beta2 ** (every - 1)) ** -0.5), text)
        text = "v right after an appearance is a geometric series over all the appearances so far; sum it"
        demand(close(found, second**-0.5), text)
    found = number(answer(0.9, 1))
    demand(close(found, 1.0), "with the same gradient in every step the step is one rate")


@exercise(_CHAPTER)
def noise_scale(answer: Answer) -> None:
    """Write `noise_scale(small, squared_small, large, squared_large)`: the noise scale from two batch sizes."""
    for small, large, squared, trace in ((1, 16, 1.0, 16.0), (8, 64, 0.5, 3.0), (32, 33, 2.0, 0.1)):
        first, second = squared + trace / small, squared + trace / large
        found = number(answer(small, first, large, second))
        demand(found > 0, "a noise scale is positive: which of the two squared lengths is larger?")
        text = "that is the variance of one example's gradient; it is still to be divided"
        demand(trace == trace / squared or not close(found, trace), text)
        text = "the squared length of a batch's gradient still has the noise of that batch in it"
        demand(not close(found, trace / second) and not close(found, trace / first), text)
        demand(not close(found, squared / trace), "that is one over the noise scale")
        text = "two equations, two unknowns: take their difference, and the true gradient drops out"
        demand(close(found, trace / squared, 1e-6), text)


@exercise(_OPTIMISERS)
def adam_step(answer: Answer) -> None:
    """Write `adam_step(w, g, m, v, t, rate, decay, decoupled)`: the new w, m and v."""
    for decay, decoupled, t in ((0.0, True, 1), (0.0, False, 3), (0.4, True, 2), (0.4, False, 2)):
        w, g, m = (normal(5, seed=seed + t) for seed in range(3))
        v, rate = normal(5, seed=9).square(), 0.1
        given = (w.clone(), g.clone(), m.clone(), v.clone(), t, rate, decay, decoupled)
        found = answer(*given)
        demand(isinstance(found, (tuple, list)) and len(found) == 3, "return the new w, m and v")
        names = ("the new w", "the new m", "the new v")
        new_w, new_m, new_v = (
            tensor(one, (5,), name=name) for one, name in zip(found, names, strict=True)
        )
        kind = "decoupled decay" if decoupled else "an L2 penalty"
        where = f"at step {t}, with {kind} of {decay}"
        wanted_w, wanted_m, wanted_v = _adam_step(w, g, m, v, t, rate, decay, decoupled)
        other_m = _adam_step(w, g, m, v, t, rate, decay, not decoupled)[1]
        text = {
            True: f"{where}, the decay has come into m: it is to stay out of the gradient",
            False: f"{where}, the pull is missing in m: it belongs to the gradient before the means are taken",
        }[decoupled]
        demand(close(other_m, wanted_m) or not close(new_m, other_m), text)
        demand(close(new_m, wanted_m), f"{where}, m is wrong: 0.9 of the old, 0.1 of the gradient")
        demand(close(new_v, wanted_v), f"{where}, v is wrong: 0.98 of the old, 0.02 of the square")
        bare = w - rate * wanted_m / (wanted_v.sqrt() + 1e-8) - rate * decay * w * decoupled
        text = f"{where}, the means are not corrected for having begun at zero"
        demand(not close(new_w, bare, 1e-6), text)
        undecayed = _adam_step(w, g, m, v, t, rate, 0.0, True)[0]
        text = f"{where}, the weight is not pulled"
        demand(decay == 0 or not decoupled or not close(new_w, undecayed, 1e-6), text)
        text = f"{where}, the decay does not contain the rate; in PyTorch it does"
        demand(decay == 0 or not decoupled or not close(new_w, undecayed - decay * w, 1e-6), text)
        demand(close(new_w, wanted_w, 1e-6), f"{where}, w is wrong though m and v are right")


def _adam_step(
    w: Tensor, g: Tensor, m: Tensor, v: Tensor, t: int, rate: float, decay: float, decoupled: bool
) -> tuple[Tensor, Tensor, Tensor]:
    g = g if decoupled else g + decay * w
    m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g.square()
    step = (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-8)
    return w - rate * (step + decay * w * decoupled), m, v


@exercise(_OPTIMISERS)
def orthogonal(answer: Answer) -> None:
    """Write `orthogonal(matrix)`: the nearest orthogonal matrix, by products alone."""
    for rows, columns, ratio, seed in ((3, 3, 2.0, 0), (2, 5, 10.0, 1), (4, 6, 100.0, 2)):
        u, _, v = torch.linalg.svd(normal(rows, columns, seed=seed), full_matrices=False)
        values = torch.logspace(0, -1, rows, base=ratio, dtype=u.dtype)
        for size in (1.0, 30.0):
            matrix = size * (u * values) @ v
            found = tensor(answer(matrix.clone()), (rows, columns), finite=False)
            text = "the iteration runs away: singular values must lie below the root of three at the start"
            demand(found.isfinite().all(), text)
            text = "not only singular values have changed but directions, too: is each product in its order?"
            inside = u.T @ found @ v.T
            outside = (inside - inside.diag().diag()).abs().max()
            demand(outside < 1e-6 * max(1.0, float(found.norm())), text)
            least = float(torch.linalg.svdvals(found).min())
            text = f"a singular value has only come to {least:.3g}; the small ones need more rounds"
            demand(least > 1 - 1e-4, text)
            demand(close(found, u @ v, 1e-4), "the singular values are not all 1")
