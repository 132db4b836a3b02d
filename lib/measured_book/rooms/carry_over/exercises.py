"""Exercises of *What carries over*."""

from __future__ import annotations

from itertools import product

from measured_book.exercises.answers import Answer, demand, demand_number
from measured_book.exercises.registry import Drawing, exercise

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


@exercise(
    _CHAPTER,
    Drawing(
        "Two models' verdicts have nothing to do with one another. Two numbers: the share of the rows that "
        "agree by chance, (a) if each has the effect in a share {even} of the rows, (b) in {lopsided}.",
        lambda chance: {
            "even": chance.choice((0.3, 0.4, 0.55)),
            "lopsided": chance.choice((0.75, 0.8, 0.9)),
        },
    ),
)
def chance(answer: Answer, even: float = 0.5, lopsided: float = 0.7) -> None:
    """Two numbers: the share of rows that agree by chance, with even odds and with seven confirmed of ten."""
    first, second = answer.numbers("(a)", "(b)")
    way = "both say yes, or both say no: p q + (1 - p)(1 - q)"
    slips = {even**2: "both may say no, too"}
    right = even**2 + (1 - even) ** 2
    demand_number(first, right, way=way, name="(a)", within=0.001, slips=slips)
    slips = {lopsided**2: "that is the case in which both say yes; both may say no"}
    right = lopsided**2 + (1 - lopsided) ** 2
    demand_number(second, right, way=way, name="(b)", within=0.001, slips=slips)
