"""No printed number leaves its interval where all that is kept comes back."""

from __future__ import annotations

import pytest
from measured_book.evidence.registry import claims
from measured_book.measuring.judging import judge_room, room_of
from measured_book.measuring.printed import expressions, left

ROOMS = sorted({room_of(claim) for claim in claims().values()})


def test_a_chapter_of_two_rooms_prints_numbers_of_both():
    assert "places.accuracy[heads=1,step=500]|mean:.0%" in expressions("heads")
    assert "rise[order=random,removed=8]|mean:.2f" in expressions("one_head")
    assert not [one for one in expressions("heads") if one.startswith("one_head/")]


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_leaves_its_interval_when_all_that_is_kept_comes_back(room: str) -> None:
    kept = judge_room(room)
    measured = {n: one.result for n, one in kept.results.items() if one.result is not None}
    assert left(kept, measured, {name: [0] for name in measured}) == []
