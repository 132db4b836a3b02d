"""Exercises of the chapter on the learning rate."""

from __future__ import annotations

import math

from torch import Tensor

from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    number,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/training/learning-rate"


@exercise(_CHAPTER)
def edge(answer: Answer) -> None:
    """Two numbers for the curvatures 1, 4 and 100: the rate above which descent diverges, and the best rate."""
    limit, best = answer.numbers("the limit", "the best rate")
    way = "by which factor does one step multiply the error of the steepest direction?"
    slips = {
        0.01: "there the steepest direction is solved in one step; it may overshoot without diverging",
        2.0: "the steepest direction decides",
    }
    demand_number(limit, 0.02, way=way, name="the limit", slips=slips)
    way = "at the best rate the slowest and the steepest direction shrink alike, one of them overshooting"
    slips = {
        0.01: "there the steepest direction is solved at once; a larger rate is better for the slowest",
        0.02: "at the limit the steepest direction never shrinks",
    }
    demand_number(best, 2 / 101, way=way, name="the best rate", within=0.004, slips=slips)


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


@exercise(_CHAPTER)
def drawing(answer: Answer) -> None:
    """Three numbers: how many of 20 even draws and of 20 logarithmic ones lie below 0.01; the chance in (c)."""
    even, logarithmic, chance = answer.numbers("(a)", "(b)", "(c)")
    share = "that is a share; asked for is a number of draws"
    way = "which share of the whole length lies below 0.01?"
    slips = {40 / 3: "that is the number for a logarithmic scale", 0.0991: share}
    demand_number(even, 20 * 0.0099 / 0.0999, way=way, name="(a)", within=0.02, slips=slips)
    way = "how many powers of ten does the range have, and how many of them lie below 0.01?"
    demand_number(logarithmic, 40 / 3, way=way, name="(b)", within=0.03, slips={2 / 3: share})
    good = math.log10(3) / 3
    way = "which chance has one draw to miss the good rates, and which have all twenty?"
    slips = {
        good: "that is the chance of one draw",
        20 * good: "chances of several draws do not add up; a chance above 1 shows it",
        (1 - good) ** 20: "that is the chance that none is good",
        1 - (1 - 1 / 3) ** 20: "a factor of three is log10(3) of one power of ten",
    }
    demand_number(chance, 1 - (1 - good) ** 20, way=way, name="(c)", within=0.005, slips=slips)


@exercise(_CHAPTER)
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


@exercise(_CHAPTER)
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
