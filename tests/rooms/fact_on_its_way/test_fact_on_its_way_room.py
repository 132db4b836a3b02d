"""What the room of a fact on its way asks and computes."""

from __future__ import annotations

import pytest
import torch
from measured_book.rooms.fact_on_its_way import measure as m
from measured_book.rooms.fact_on_its_way.facts import COUNTRIES, OPPOSITES, RELATIONS, facts
from measured_book.rooms.fact_on_its_way.passes import Asked

ASKED = Asked("capital", "France", "Paris", "Italy", "Rome", ("Greece", "Athens"), 0)


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_subject_both_chooses_and_judges(relation: str) -> None:
    judging, choosing = (facts(relation, judge=half) for half in (True, False))
    assert not {one for one, _ in judging} & {one for one, _ in choosing}
    assert min(len(judging), len(choosing)) >= m.FACTS
    assert len({answer for _, answer in judging}) > 1


def test_a_country_is_on_the_same_side_for_every_relation() -> None:
    sides = {
        half: {one for name in RELATIONS[:3] for one, _ in facts(name, judge=half)}
        for half in (True, False)
    }
    assert not sides[True] & sides[False]
    assert len(sides[True] | sides[False]) == len(COUNTRIES)
    assert len({one for pair in OPPOSITES for one in pair}) == 2 * len(OPPOSITES)


def test_an_unknown_relation_is_named() -> None:
    with pytest.raises(ValueError, match="got 'currency'"):
        facts("currency", judge=True)


def test_a_prompt_solves_one_example_and_asks() -> None:
    assert ASKED.prompt() == "The capital of Greece is Athens.\nThe capital of France is"
    assert ASKED.prompt("Italy").endswith("\nThe capital of Italy is")


def test_shares_are_of_the_whole_difference() -> None:
    changed, base, whole = (
        torch.tensor([1.0, 2.0]),
        torch.tensor([-2.0, 0.0]),
        torch.tensor([4.0, 0.5]),
    )
    assert m.share(changed, base, whole) == pytest.approx(5 / 6.5)
    # The second fact's difference of half a nat counts as one.
    torch.testing.assert_close(m.shares(changed, base, whole), torch.tensor([0.5, 2.0]))
