"""Exercises of the chapter on schedules."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from measured_transformer.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    normal,
    number,
)
from measured_transformer.exercises.registry import exercise
from measured_transformer.training.schedules import Constant, ExponentialDecay, InverseSquareRoot

_CHAPTER = "book/training/schedules"


@exercise(_CHAPTER)
def budget(answer: Answer) -> None:
    """Three numbers: the least time constant, the share spent within it, the step of the root's decay."""
    constant, share, step = answer.numbers("(a)", "(b)", "(c)")
    way = "the rates of an exponential decay are a geometric series: how large is its sum?"
    demand_number(
        constant, 299.5, way=way, name="(a)", slips={0.0048: "divide by the peak instead"}
    )
    slips = {
        math.exp(-1): "that is what is left after these steps",
        0.5: "that is the half-life's share",
    }
    way = "compare the sum up to the time constant with the whole sum"
    demand_number(share, 1 - math.exp(-1), way=way, name="(b)", slips=slips)
    slips = {
        406.25: "counted from the end of the warm-up; the steps of the ramp are steps too",
        625.0: "the ramp has spent a part of the budget already",
        400.0: "the ramp spends half of what a constant rate would",
        300.0: "that is for a constant rate; here it falls",
    }
    way = "take off what the ramp spends; what is left is the peak times a sum of roots"
    demand_number(step, 506.25, way=way, name="(c)", slips=slips)


@exercise(_CHAPTER)
def rescaled(answer: Answer) -> None:
    """Write `rescaled(step, peak, warmup)`: the rate at a step, counted from 0, of the decay by the root."""
    for peak, warmup in ((3.5e-4, 200), (1.0, 10), (2.0, 1)):
        rates = np.array([number(answer(step, peak, warmup)) for step in range(8 * warmup)]) / peak
        demand(rates[0] > 0, "the first step has a rate of zero (or less)")
        text = f"the highest rate is {rates.max():.4g} times the peak"
        demand(close(rates.max(), 1.0, 1e-6), text)
        top = int(rates.argmax())
        text = (
            f"the highest rate comes at step {top}; the warm-up's last step is number {warmup - 1}"
        )
        demand(top == warmup - 1, text)
        ramp = np.arange(1, warmup + 1) / warmup
        demand(
            close(float(np.abs(rates[:warmup] - ramp).max()), 0.0),
            "the warm-up is not a straight line from zero",
        )
        fourfold = rates[4 * warmup - 1]
        text = "four times as far as the peak the rate shall be a half of it"
        demand(close(fourfold, 0.5, 1e-6), f"{text}, and is {fourfold:.4f}")
        fall = np.array([InverseSquareRoot(warmup)(step) for step in range(8 * warmup)])
        demand(
            close(float(np.abs(rates - fall).max()), 0.0),
            "after the peak the rate does not fall by the root",
        )


@exercise(_CHAPTER)
def wasteful(answer: Answer) -> None:
    """Write `wasteful(schedule, rate, steps)`: whether a twentieth of the steps spends nine tenths of it all.

    The first twentieth, or less; `schedule(step)` is the factor on the rate, and the sum is that of all rates.
    """
    steps = 4000
    cases: list[tuple[str, Callable[[int], float], bool]] = [
        ("a constant rate", Constant(), False),
        ("an exponential decay over 25 steps", ExponentialDecay(0.96, every=1), True),
        ("an exponential decay over 2500 steps", ExponentialDecay(0.96, every=100), False),
        ("the root's decay", InverseSquareRoot(100), False),
        (
            "a decay that spends nine tenths just before a twentieth",
            _decay(190 / math.log(10)),
            True,
        ),
        (
            "a decay that spends nine tenths just after a twentieth",
            _decay(210 / math.log(10)),
            False,
        ),
        ("a rate that is zero after 150 of 4000 steps", lambda step: float(step < 150), True),
        (
            "a rate that is zero but for the last 150 of 4000 steps",
            lambda step: float(step >= 3850),
            False,
        ),
    ]
    for rate in (0.001, 3.0):
        for words, schedule, wrong in cases:
            found = answer(schedule, rate, steps)
            if not isinstance(found, (bool, np.bool_)):
                raise Fault(f"expected True or False, got {type(found).__name__}")
            demand(
                found == wrong,
                f"{words} is called {'wasteful' if found else 'no waste'}, with a rate of {rate}",
            )


def _decay(constant: float) -> Callable[[int], float]:
    return lambda step: math.exp(-step / constant)


@exercise(_CHAPTER)
def pair_noise(answer: Answer) -> None:
    """Write `pair_noise(a, b)`: the deviation of the difference of two single runs, one from each arm."""
    for n, m, seed in ((8, 8, 1), (5, 12, 2), (2, 2, 3)):
        a, b = normal(n, seed=seed).numpy(), 3 * normal(m, seed=10 + seed).numpy()
        found = number(answer(a, b))
        first, second = a.var(ddof=1), b.var(ddof=1)
        right = (first + second) ** 0.5
        demand(not close(found, right**2), "that is the variance of the difference")
        demand(
            not close(found, first**0.5 + second**0.5),
            "deviations of independent runs do not add up; what does?",
        )
        demand(
            not close(found, abs(first - second) ** 0.5),
            "taking a difference does not take noise away",
        )
        text = "divided by n, a variance from a sample comes out too small"
        demand(not close(found, (a.var() + b.var()) ** 0.5), text)
        text = "that is for the difference of two means; single runs are compared here"
        demand(not close(found, (first / n + second / m) ** 0.5), text)
        if n == m:
            text = "the runs are paired by seed there; two single runs from different seeds are not"
            demand(n == 2 or not close(found, (a - b).std(ddof=1)), text)
        demand(
            close(found, right),
            "the variances of two independent runs together give another deviation",
        )
