"""What a page prints is judged again from what it asks for alone, in each room of the book."""

from __future__ import annotations

import pytest
from measured_book.evidence.registry import claims
from measured_book.measuring.judging import Judged, judge_again, judge_room, readings_in, value_of
from measured_book.measuring.printed import expressions, left

ROOMS = sorted({claim.chapter.rpartition("/")[2].replace("-", "_") for claim in claims().values()})


def said(judged: Judged, expression: str) -> str | None:
    try:
        return value_of(judged, expression)
    except (KeyError, ValueError):
        return None


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_leaves_its_interval_when_all_that_is_kept_comes_back(room: str) -> None:
    kept = judge_room(room)
    measured = {n: one.result for n, one in kept.results.items() if one.result is not None}
    assert left(kept, measured, {name: [0] for name in measured}) == []


@pytest.mark.parametrize("room", ["warm_up", "schedules", "at_inference"])
def test_each_expression_brings_what_it_stands_on(room: str) -> None:
    kept = judge_room(room)
    asked = [one for one in expressions(room) if readings_in(kept, one)]
    assert asked
    for one in asked:
        again = judge_again(kept, {}, only=readings_in(kept, one))
        if (
            ".p_holm" not in one and "verdict" not in one
        ):  # those stand on all of the chapter's claims
            assert said(again, one) == said(kept, one), one
