"""An exercise on weight decay and one on rates over depth, each in the chapter that explains it."""

from __future__ import annotations

import math

from measured_book.exercises.answers import Answer, demand, normal, number
from measured_book.exercises.registry import exercise

_OPTIMISERS, _DEPTH = "book/training/optimisers", "book/norms/step-size"


@exercise(_OPTIMISERS)
def left(answer: Answer) -> None:
    """Write `left(factors, peak, decay, independent)`: the share of a weight that decay alone leaves."""
    for steps, peak, decay, independent, seed in (
        (2, 0.1, 0.5, False, 0),
        (5, 0.2, 0.8, False, 1),
        (5, 0.2, 0.8, True, 2),
        (40, 0.03, 0.1, True, 3),
    ):
        factors = normal(steps, seed=seed).sigmoid().tolist()
        found = number(answer(list(factors), peak, decay, independent))
        where = "with independent decay" if independent else "with decoupled decay"

        def kept(by: float, factors: list[float] = factors) -> float:
            return math.prod(1 - by * factor for factor in factors)

        def same(other: float, found: float = found) -> bool:
            return math.isclose(found, other, rel_tol=1e-6, abs_tol=1e-12)

        right = kept(decay if independent else peak * decay)
        text = "the peak is no part of it" if independent else "the rate contains the peak"
        demand(not same(kept(peak * decay if independent else decay)), f"{where}, {text}")
        flat = (1 - (decay if independent else peak * decay)) ** steps
        demand(not same(flat), f"{where}, each step has a factor of its own")
        demand(not same(1 - right), "that share is lost; asked is the one that is left")
        demand(same(right), f"{where}, another share: steps act one after the other")


@exercise(_DEPTH)
def rule_of_depth(answer: Answer) -> None:
    """Write `rule_of_depth(m, exponent)`: the factor on the rate, and the size of the first sum of writes."""
    for m, exponent in ((2.0, 1.0), (4.0, 0.5), (4.0, 0.0), (16.0, 0.75)):
        found = answer(m, exponent)
        two = isinstance(found, (tuple, list)) and len(found) == 2
        demand(two, "return two numbers: the factor on the rate, and the size")
        rate = number(found[0], name="the factor on the rate")
        size = number(found[1], name="the size")
        where = f"with m = {m:g} and an exponent of {exponent:g}"

        def same(one: float, other: float) -> bool:
            return math.isclose(one, other, rel_tol=1e-6)

        wanted = m ** (exponent - 1), m ** (0.5 - exponent)
        demand(
            same(wanted[0], 1 / wanted[0]) or not same(rate, 1 / wanted[0]),
            f"{where}, that is how far the sum moves; the rate has to undo it",
        )
        demand(
            same(wanted[0], wanted[1]) or not same(rate, m ** (exponent - 0.5)),
            f"{where}, changes in one direction add up as lengths, not as squares",
        )
        demand(same(rate, wanted[0]), f"{where}, another factor on the rate")
        demand(
            same(m ** (1 - exponent), wanted[1]) or not same(size, m ** (1 - exponent)),
            f"{where}, first writes are at right angles: squares add up",
        )
        demand(same(size, wanted[1]), f"{where}, another size of the first sum")
