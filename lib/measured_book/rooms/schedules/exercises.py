"""Exercises of the chapter on schedules."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from measured_transformer.training.schedules import Constant, ExponentialDecay, InverseSquareRoot

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    number,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/training/schedules"


@exercise(
    _CHAPTER,
    Drawing(
        "A weight must be able to travel {travel} in total; the peak rate is {peak}. Three numbers: (a) the "
        "least time constant of an exponential decay; (b) the share of that budget that is spent in so many "
        "steps; (c) the step at which a warm-up of {ramp} steps and inverse-square-root decay from the same "
        "peak have spent the budget, with the chapter's approximation of the sum of roots.",
        lambda chance: {
            "travel": chance.choice((0.8, 1.5, 2.4)),
            "peak": chance.choice((0.002, 0.003, 0.005)),
            "ramp": chance.choice((25, 64, 144)),
        },
    ),
)
def budget(answer: Answer, travel: float = 1.2, peak: float = 0.004, ramp: int = 100) -> None:
    """Three numbers: the least time constant, the share spent within it, the step of the root's decay."""
    constant, share, step = answer.numbers("(a)", "(b)", "(c)")

    def after(spent: float) -> float:
        """The step at which the rest of the budget is spent, when the ramp has spent so much."""
        return ((travel - spent) / (2 * peak * math.sqrt(ramp)) + math.sqrt(ramp)) ** 2

    right = after(peak * ramp / 2)
    way = "the rates of an exponential decay are a geometric series: how large is its sum?"
    slips = {travel * peak: "divide by the peak instead"}
    demand_number(constant, travel / peak - 0.5, way=way, name="(a)", slips=slips)
    slips = {
        math.exp(-1): "that is what is left after these steps",
        0.5: "that is the half-life's share",
    }
    way = "compare the sum up to the time constant with the whole sum"
    demand_number(share, 1 - math.exp(-1), way=way, name="(b)", slips=slips)
    slips = {
        right - ramp: "counted from the end of the warm-up; the steps of the ramp are steps too",
        after(0.0): "the ramp has spent a part of the budget already",
        after(peak * ramp): "the ramp spends half of what a constant rate would",
        travel / peak: "that is for a constant rate; here it falls",
    }
    way = "take off what the ramp spends; what is left is the peak times a sum of roots"
    demand_number(step, right, way=way, name="(c)", slips=slips)


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
def bounce(answer: Answer) -> None:
    """Write `bounce(rate)`: how far from the floor y ends up, when batches pull to 1 and to -1 in turns."""
    for rate in (1.0, 0.5, 0.1, 1.5):
        found = number(answer(rate))
        right = _bounced(rate)
        demand(found >= 0, "a distance from the floor is not negative")
        demand(not close(found, 2 * right), "that is from one side to the other")
        if rate == 1.0:
            text = "at a rate of 1 each step lands where its batch has the floor, which is 1 away"
            demand(close(found, 1.0), text)
        text = "that is the height on the wall, not the distance"
        demand(rate == 1.0 or not close(found, right**2 / 2), text)
        text = f"from {found:.4g} a step with rate {rate:g} and a pull to -1 does not lead to {-found:.4g}"
        demand(close(found, right, 1e-6), text)


def _bounced(rate: float) -> float:
    """Where a weight that was sent to and fro for long stands."""
    y = 0.0
    for step in range(2000):
        y -= rate * (y - (1.0 if step % 2 == 0 else -1.0))
    return abs(y)


@exercise(_CHAPTER)
def cooled(answer: Answer) -> None:
    """Write `cooled(step, steps, warmup, decay)`: warm-up, plateau, and a fall as 1 minus the root."""
    for steps, warmup, decay in ((100, 10, 20), (40, 1, 40), (60, 5, 12)):
        found = np.array([number(answer(step, steps, warmup, decay)) for step in range(steps)])
        start = steps - decay
        demand(found.max() <= 1 + 1e-9, "the factor goes above 1")
        ramp = np.arange(1, warmup + 1) / warmup
        if start >= warmup:
            demand(found[0] > 0, "the first step has a rate of zero: it is wasted")
            text = f"the warm-up does not rise linearly to 1 at step number {warmup - 1}"
            demand(_near(found[:warmup], ramp), text)
            text = "between warm-up and decay the factor is not 1"
            demand(_near(found[warmup:start], np.ones(start - warmup)), text)
        share = np.arange(decay) / decay
        fall = found[start:]
        demand(
            not _near(fall, 1 - share),
            "that is a straight line; the root of the share is asked for",
        )
        text = "the decay begins one step late or early: its first step has a share of 0"
        demand(not _near(fall[:-1], 1 - share[1:] ** 0.5), text)
        demand(not _near(fall, (1 - share) ** 0.5), "that is the root of one minus the share")
        demand(
            _near(fall, 1 - share**0.5),
            "the last steps do not fall as 1 minus the root of the share",
        )


def _near(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.shape == expected.shape and bool(np.allclose(found, expected, atol=1e-6))


@exercise(_CHAPTER)
def area(answer: Answer) -> None:
    """Write `area(rates, kept)`: the annealing area after each step, falls weighted by how long ago."""
    cases = (
        ([1.0, 1.0, 0.5, 0.5], 0.5),
        ([2.0] * 5, 0.9),
        ([float(rate) for rate in np.linspace(1, 0, 30)], 0.95),
        ([0.3, 0.6, 0.6, 0.1], 0.8),
    )
    for rates, kept in cases:
        found = np.array([float(one) for one in answer(list(rates), kept)])
        demand(found.size == len(rates), f"{len(rates)} rates have {found.size} sums")
        falls = -np.diff(rates, prepend=rates[0])
        momentum = np.array(
            [
                sum(f * kept ** (i - k) for k, f in enumerate(falls[: i + 1]))
                for i in range(len(rates))
            ]
        )
        right = np.cumsum(momentum)
        moves = bool(np.abs(falls).max() > 0)
        demand(not (moves and _near(found, -right)), "a fall counts as positive")
        text = "those are the momenta; the second sum adds them up"
        demand(not (moves and _near(found, momentum)), text)
        text = "falls are summed, and nothing is kept from step to step"
        demand(not (moves and _near(found, np.cumsum(falls))), text)
        demand(
            _near(found, right), f"rates {rates[:4]} with {kept:g} kept give {right[:4].round(3)}"
        )
