"""What carries over: two verdicts, one outcome, counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from measured_book.evidence.carries import NOT, OPEN, OVER, Carries, carries
from measured_book.evidence.expressions import Scope
from measured_book.evidence.registry import Written
from measured_book.evidence.schema import Threshold
from measured_book.evidence.verdicts import Verdict, named
from measured_book.measuring.carrying import Asked, Said, asked_rows, headline
from measured_book.measuring.judging import Judged, Shown
from xarray import Dataset

ROW = replace(
    carries().rows[0],
    rule=Threshold(at_least=1.0),
    evidence={"value": (Written("one.value", "carries.toml, line 1"),)},
    also=(),
    minilm=None,
)
DECLARED = Carries("One model.", (ROW,), {})


def said(verdict: str) -> Said:
    return Said(0.5, (0.4, 0.6), Verdict(verdict))


class Kept:
    """A result as far as judging looks at it."""

    def __init__(self, values: list[float]) -> None:
        self.seeds = list(range(len(values)))
        self.dataset = Dataset({"value": ("seed", np.array(values))}, {"seed": self.seeds})
        self.variables = {"value": ()}
        self.provenance = {"date": "2026-11-29"}


def room(values: list[float] | None) -> Judged:
    kept = None if values is None else Kept(values)
    shown = Shown("one", "One.", "current", "not measured yet", kept)  # type: ignore[arg-type]
    return Judged(
        "carry_over", {}, {}, {"one": shown},
        scope=Scope({} if kept is None else {"one": kept.dataset}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("small", "values", "outcome"),
    [
        ("confirmed", [2.0, 2.1, 1.9], OVER),
        ("confirmed", [0.2, 0.3, 0.1], NOT),
        ("refuted", [0.2, 0.3, 0.1], OVER),
        ("not reproduced", [0.2, 0.3, 0.1], OVER),
        ("refuted", [2.0, 2.1, 1.9], NOT),
        ("confirmed", [0.2, 1.9, 1.0], OPEN),
        ("confirmed", None, OPEN),
    ],
)
def test_an_outcome_compares_two_verdicts(
    small: str, values: list[float] | None, outcome: str
) -> None:
    (found,) = asked_rows(small=lambda *_: said(small), real=room(values), declared=DECLARED)
    assert found.outcome == outcome
    assert bool(found.problem) == (values is None)
    if values is not None:
        assert found.real is not None
        assert found.real.effect == pytest.approx(np.mean(values))


def test_an_undecided_small_model_has_no_finding_to_carry() -> None:
    with pytest.raises(ValueError, match="leave the row out"):
        asked_rows(small=lambda *_: said("inconclusive"), real=room([1.0, 2.0]), declared=DECLARED)


def test_holm_is_over_all_rows() -> None:
    values = [1.2, 1.6, 1.3, 1.5]  # alone it is above 1, by a little
    (alone,) = asked_rows(small=lambda *_: said("confirmed"), real=room(values), declared=DECLARED)
    assert alone.outcome == OVER
    others = tuple(
        replace(
            ROW,
            part=f"part_{i}",
            evidence={"value": (Written(f"one.value + {i} / 1000000", "carries.toml, line 1"),)},
        )
        for i in range(30)
    )
    many = asked_rows(
        small=lambda *_: said("confirmed"), real=room(values), declared=Carries("", others, {})
    )
    assert {one.outcome for one in many} == {OPEN}


def test_the_headline_counts_findings_once_and_claims_too() -> None:
    row = replace(ROW, also=(("DD-2.9a", "distance"),))
    asked = [
        Asked(row, said("confirmed"), said("confirmed"), None),
        Asked(row, said("confirmed"), said("refuted"), None),
        Asked(row, said("confirmed"), None, None),
    ]
    found = headline(asked)
    assert (found.findings, found.over, found.not_over, found.undecided) == (3, 1, 1, 1)
    assert found.claims == 2


@pytest.mark.parametrize("told", [{}, {"said_of": "larger models"}, {"misprint": "a sign"}])
@pytest.mark.parametrize("verdict", Verdict)
def test_a_finding_is_the_same_in_the_words_of_its_chapter(verdict, told):
    by_rule, in_words = (Said(0.0, None, each) for each in (verdict, named(verdict, told)))
    assert by_rule.is_there == in_words.is_there
