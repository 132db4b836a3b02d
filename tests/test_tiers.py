"""What `make test` leaves out comes in another run: each case of many in one of ten commits."""

from __future__ import annotations

import pytest
import tiers
from measured_book.measuring.shares import SHARES

CASES = [
    f"tests/exercises/test_every_exercise.py::test_a_wrong_answer_fails_with_words[{number}]"
    for number in range(1000)
]

FILES = [f"{file}::test_anything" for file in tiers.WHOLE]


def run_at(monkeypatch, share: int, tier: str = "test") -> set[str]:
    monkeypatch.setenv("MEASURED_TIER", tier)
    monkeypatch.setattr(tiers, "_due", lambda: share)
    return {name for name in (*CASES, *FILES) if not tiers.is_another_turn(name)}


def test_ten_commits_run_each_case_once(monkeypatch):
    runs = [run_at(monkeypatch, share) for share in range(SHARES)]
    assert sum(map(len, runs)) == len(CASES) + len(FILES)
    assert set.union(*runs) == {*CASES, *FILES}
    assert max(map(len, runs)) < 2 * len(CASES) / SHARES


def test_files_are_dealt_out_evenly(monkeypatch):
    """As many a run as in any other, give or take one, and of the ten heaviest one each."""
    runs = [run_at(monkeypatch, share) & set(FILES) for share in range(SHARES)]
    assert max(map(len, runs)) - min(map(len, runs)) <= 1
    assert all(len(run & set(FILES[:SHARES])) == 1 for run in runs)


def test_a_contributors_loop_and_the_weekly_run_leave_no_case_to_another(monkeypatch):
    for tier in ("check", "all"):
        assert run_at(monkeypatch, 0, tier) == {*CASES, *FILES}


@pytest.mark.parametrize(
    "folder", ["models", "parts", "internals", "inference", "interop", "tasks"]
)
def test_every_test_of_the_library_runs_each_time(folder):
    named = tiers.IN_TURN.keys() | tiers.WHOLE.keys()
    assert not [one for one in named if one.startswith(f"tests/{folder}/")]


def test_other_tests_take_no_turns(monkeypatch):
    monkeypatch.setenv("MEASURED_TIER", "test")
    monkeypatch.setattr(tiers, "_due", lambda: -1)
    assert not tiers.is_another_turn("tests/models/test_decoder.py::test_shapes")


def test_every_pattern_names_tests_that_exist(pytestconfig):
    for pattern in tiers.NIGHTLY | tiers.IN_TURN | tiers.WHOLE:
        file, _, name = pattern.partition("::")
        if not file.removesuffix("*").endswith(".py"):  # a kind of test of many files
            continue
        source = (pytestconfig.rootpath / file.removesuffix("*")).read_text(encoding="utf-8")
        if name.removesuffix("*"):
            assert f"def {name.removesuffix('*')}" in source, pattern
