"""Exercises of *What carries over*."""

from __future__ import annotations

from itertools import product

from measured_book.exercises.answers import Answer, demand, demand_number
from measured_book.exercises.registry import exercise

_CHAPTER = "book/real-language-model/carry-over"


@exercise(_CHAPTER)
def outcome(answer: Answer) -> None:
    """Write `outcome(small, real)`: two verdicts in, "carries over", "does not" or "undecided" out."""
    absent = {"refuted", "not reproduced"}
    for small, real in product(
        ("confirmed", "refuted", "not reproduced"),
        ("confirmed", "refuted", "not reproduced", "inconclusive"),
    ):
        said = answer(small, real)
        demand(
            said in ("carries over", "does not", "undecided"),
            f"expected one of the three outcomes in words, got {said!r}",
        )
        if real == "inconclusive":
            demand(said == "undecided", "an inconclusive verdict decides nothing")
            continue
        same = (small in absent) == (real in absent)
        if small in absent and real in absent:
            demand(
                said == "carries over",
                "an effect that is missing in both models carries over too: that it is missing is the finding",
            )
        demand(
            said == ("carries over" if same else "does not"),
            "a finding carries over where the effect is there in both models, or in neither",
        )


@exercise(_CHAPTER)
def chance(answer: Answer) -> None:
    """Two numbers: the share of rows that agree by chance, with even odds and with seven confirmed of ten."""
    even, lopsided = answer.numbers("(a)", "(b)")
    way = "both say yes, or both say no: p q + (1 - p)(1 - q)"
    demand_number(
        even, 0.5, way=way, name="(a)", within=0.001, slips={0.25: "both may say no, too"}
    )
    slips = {0.49: "that is the case in which both say yes; both may say no"}
    demand_number(lopsided, 0.7 * 0.7 + 0.3 * 0.3, way=way, name="(b)", within=0.001, slips=slips)
