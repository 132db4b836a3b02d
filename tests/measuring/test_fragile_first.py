"""Which verdicts other seeds are asked for first, and that half as many seeds are measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from bookpress import fragile_first
from bookpress.fragile_first import Fragile, fragility, measure_first
from demo_room import Inline, Room
from measured_book.evidence.registry import Difference, Proportion, Threshold
from measured_book.evidence.results import read_result

RULE = Threshold(at_least=1.0)


def record(*values: float, verdict: str) -> dict[str, object]:
    return {"combine": "levels", "verdict_alone": verdict, "values": {"value": list(values)}}


def test_the_nearer_to_the_threshold_the_more_fragile() -> None:
    sure = record(3.0, 3.1, 2.9, 3.0, 3.1, 2.9, 3.0, 3.1, verdict="confirmed")
    near = record(1.1, 1.6, 0.9, 1.5, 1.4, 1.0, 1.7, 1.2, verdict="confirmed")
    assert fragility({"": RULE}, sure) == 0
    assert 0.1 < fragility({"": RULE}, near) <= 1


def test_pairs_stay_together_and_shares_are_drawn() -> None:
    rule = Difference(direction="greater", smallest_effect=0.5)
    paired = {"treatment": [1.0, 11.0, 21.0, 31.0], "baseline": [0.0, 10.0, 20.0, 30.0]}
    told = {"combine": "levels", "verdict_alone": "confirmed", "values": paired}
    assert fragility({"": rule}, told) == 0  # each pair differs by one, whatever the draw
    half = Proportion(at_least=0.5)
    runs = {"combine": "levels", "verdict_alone": "inconclusive"}
    runs["values"] = {"successes": [5.0], "trials": [10.0]}
    assert fragility({"": half}, runs) < 0.5


def test_parts_are_combined_as_the_claim_says() -> None:
    parts = [
        {"name": "low", "values": {"value": [0.1, 0.2, 0.1, 0.2]}},
        {"name": "high", "values": {"value": [3.1, 3.2, 3.1, 3.2]}},
    ]
    told = {"combine": "levels", "verdict_alone": "conditional", "parts": parts}
    rules = {"low": RULE, "high": RULE}
    assert fragility(rules, told) == 0
    assert fragility(rules, {**told, "combine": "every", "verdict_alone": "confirmed"}) == 1


@pytest.fixture
def inline(room: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings in this process, and an offset that ends with the test."""
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "0")
    whole = fragile_first.measure_all
    monkeypatch.setattr(
        fragile_first,
        "measure_all",
        lambda these: whole(these, executor=inline, progress="nothing", say=lambda _: None),
    )


def test_half_as_many_other_seeds_are_measured(room: Room, inline: None) -> None:
    planned = [Fragile("DD-7.7", "demo", "confirmed", 0.5, ("losses",), 1.0)]
    assert measure_first(planned, minutes=0.0) == 0
    assert measure_first(planned, minutes=10.0, most=0.5) == 0
    assert measure_first(planned, minutes=10.0) == 1
    found = read_result(Path("_build/seeds-1000/demo/results/losses.json"))
    assert found.seeds == [10000, 10010]
