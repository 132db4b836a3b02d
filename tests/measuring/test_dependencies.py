"""What a page prints is judged again from what it stands on: from that alone, and from no less."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from measured_book.measuring.dependencies import readings_in, results_of
from measured_book.measuring.judged import Judged
from measured_book.measuring.judging import judge_again, judge_room, value_of
from measured_book.measuring.printed import expressions

ROOMS = ("warm_up", "schedules", "at_inference")
OF_THE_CHAPTER = ("verdict", "p_holm")
"""Statistics of a claim that stand on all claims of its chapter."""


def printed(kept: Judged, expression: str, only: Collection[str]) -> str | None:
    """What is printed when only these claims and functions are asked; None where that is not enough."""
    try:
        return value_of(judge_again(kept, {}, only=only), expression)
    except (KeyError, ValueError):
        return None


@pytest.mark.parametrize("room", ROOMS)
def test_each_expression_brings_what_it_stands_on_and_nothing_else(room: str) -> None:
    kept = judge_room(room)
    asked = {one: needed for one in expressions(room) if (needed := readings_in(kept, one))}
    assert asked
    for one, needed in asked.items():
        text = value_of(kept, one)
        assert text.strip(), one
        if not any(name in one for name in OF_THE_CHAPTER):
            assert printed(kept, one, needed) == text, one
        for name in needed:
            assert printed(kept, one, needed - {name}) is None, (one, name)


def judged_without(kept: Judged, name: str) -> Judged:
    """The room as it is judged where one of its results is missing."""
    missing = replace(kept.results[name], result=None, why=f"{name} is left out")
    return judge_again(replace(kept, results={**kept.results, name: missing}), {})


@pytest.mark.parametrize("room", ROOMS)
def test_each_expression_reads_the_results_without_which_it_says_nothing(room: str) -> None:
    kept = judge_room(room)
    lacking = {name: judged_without(kept, name) for name in kept.results}
    reads = {one: results_of(kept, one) for one in expressions(room)}
    assert any(reads.values())  # not all: some ask for a function that no result decides
    for one, read in reads.items():
        for name, judged in lacking.items():
            if name in read:
                with pytest.raises(ValueError, match=f"{name} is left out"):
                    value_of(judged, one)
            elif not any(word in one for word in OF_THE_CHAPTER):
                assert value_of(judged, one) == value_of(kept, one), one
