"""No printed number leaves its interval where all that is kept comes back."""

from __future__ import annotations

import pytest
from measured_book.evidence.registry import claims
from measured_book.measuring.judging import judge_room
from measured_book.measuring.printed import left

ROOMS = sorted({claim.chapter.rpartition("/")[2].replace("-", "_") for claim in claims().values()})


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_leaves_its_interval_when_all_that_is_kept_comes_back(room: str) -> None:
    kept = judge_room(room)
    measured = {n: one.result for n, one in kept.results.items() if one.result is not None}
    assert left(kept, measured, {name: [0] for name in measured}) == []
