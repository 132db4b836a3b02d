"""Repeating: values come back, or the run fails and says which did not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from demo_room import Inline, Room
from measured_book.evidence import seeds
from measured_book.evidence.results import read_result, write_result
from measured_book.measuring import comparing, repeating
from measured_book.measuring.repeating import attest, flipped, repeat
from measured_book.measuring.scheduler import locked, measure_all
from measured_book.measuring.state import standing


@pytest.fixture
def measured(room: Room, inline: Inline) -> Room:
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    return room


def again(room: Room, inline: Inline) -> list[repeating.Repeated]:
    return repeat(room.all, executor=inline, say=lambda _: None)


def test_everything_comes_back_equal(measured: Room, inline: Inline) -> None:
    before = (measured.results / "losses.json").read_bytes()
    losses, draws = again(measured, inline)
    assert losses.passed
    assert draws.passed
    assert losses.exact
    assert losses.comparison.equal == 2 + 2 * 4  # two values, and the first losses of two trainings
    assert (losses.comparison.within, losses.comparison.outside) == (0, 0)
    assert flipped([losses, draws]) == {}
    assert (measured.results / "losses.json").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 0.01", "RATE = 0.010001"),
        ("d_model=width", "norm_eps=1.1e-5, d_model=width"),
        ("TASK, seed, steps=4", "TASK, seed + 1, steps=4"),
        ("runs[arm].losses[-1]", "-runs[arm].losses[-1]"),
    ],
)
def test_it_bites(measured: Room, inline: Inline, old: str, new: str) -> None:
    measured.edit(old, new)
    losses, _ = again(measured, inline)
    assert not losses.passed
    assert losses.comparison.outside
    assert "outside" in repeating.line_of(losses)


def test_what_reads_a_corpus_that_is_not_here_is_left_out_and_said_to_be(
    measured: Room, inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEASURED_DATA_DIR", str(tmp_path))
    measured.edit("trainings=trainings)", 'trainings=trainings, corpora=("a.txt", "b.txt"))')
    (tmp_path / "a.txt").touch()
    losses, draws = again(measured, inline)
    assert draws.passed
    assert losses.lacks == ["b.txt"]
    assert not losses.trials
    assert "left out: its corpus is not here (b.txt)" in repeating.line_of(losses)
    (tmp_path / "b.txt").touch()
    assert again(measured, inline)[0].passed


def test_nothing_is_attested_without_its_corpus(
    measured: Room, inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEASURED_DATA_DIR", str(tmp_path))
    measured.edit("trainings=trainings)", 'trainings=trainings, corpora=("a.txt",))')
    measured.edit("RATE = 0.01", "RATE = 0.01 + 0.0")
    (losses,) = attest(measured.all, executor=inline, say=lambda _: None)
    assert "its corpus is not here (a.txt)" in losses.problem
    assert not standing(losses.measurement).of_this_code
    (tmp_path / "a.txt").touch()
    (losses,) = attest(measured.all, executor=inline, say=lambda _: None)
    assert not losses.problem
    assert standing(losses.measurement).of_this_code


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another kind of machine than the one that results were measured on."""
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 0.01", "RATE = 0.010001"),
        ("d_model=width", "norm_eps=1e-6, d_model=width"),
        ("TASK, seed, steps=4", "TASK, seed + 1, steps=4"),
        ("runs[arm].losses[-1]", "-runs[arm].losses[-1]"),
    ],
)
@pytest.mark.parametrize("repeated", ["1", '"opening"'])
def test_it_bites_on_any_machine(
    measured: Room, inline: Inline, old: str, new: str, repeated: str, elsewhere: None
) -> None:
    measured.edit("trainings=trainings)", f"trainings=trainings, repeat={repeated})")
    assert again(measured, inline)[0].passed
    measured.edit(old, new)
    looks = "losses[-1]" in old  # which is no part of an opening
    assert again(measured, inline)[0].passed is (looks and repeated != "1")


def test_what_bites_elsewhere_are_first_losses_in_double_precision(
    measured: Room, inline: Inline, elsewhere: None
) -> None:
    measured.edit("d_model=width", "norm_eps=1e-6, d_model=width")
    losses, _ = again(measured, inline)
    assert losses.comparison.outside > 2
    assert any("first losses of pre" in where for where in losses.comparison.where)


def test_rounding_is_forgiven_on_another_kind_of_machine(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.edit("runs[arm].losses[-1]", "runs[arm].losses[-1] * (1 + 1e-9)")
    assert not again(measured, inline)[0].passed
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: False)
    losses = again(measured, inline)[0]
    assert losses.passed
    assert losses.comparison.within == 2
    assert losses.comparison.equal == 2 * 4


def test_the_spread_of_few_seeds_is_widened() -> None:
    """About one new draw in a thousand lies farther from a kept one than is allowed, at any number of seeds."""
    rng = np.random.default_rng(0)
    for count in (3, 6, 20):
        old = rng.normal(size=(count, 4000))
        new = rng.normal(size=4000)
        outside = ~comparing._within(new, old, 0, 0.0)
        assert 0 < outside.mean() < 0.004


@pytest.mark.parametrize(
    ("old", "new", "passes"),
    [
        ('"control": 1.0', '"control": 1.0005 + 0.3 * (seed > 0)', True),
        ('"control": 1.0', '"control": 1.002 + 0.3 * (seed > 0)', False),
        ("1e-12 *", "-1e-12 *", True),  # what is rounding may be any
    ],
)
def test_what_trains_nothing_comes_back_nearly_on_any_machine(
    room: Room, inline: Inline, elsewhere: None, old: str, new: str, passes: bool
) -> None:
    room.edit('"control": 1.0', '"control": 1.0 + 0.3 * (seed > 0)')
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    room.edit(f"{old} + 0.3 * (seed > 0)" if "control" in old else old, new)
    assert again(room, inline)[1].passed is passes
    room.edit("@measurement(seeds=2)", '@measurement(seeds=2, tolerance={"control": 0.0})')
    assert again(room, inline)[1].passed  # within the spread of the seeds


def test_a_result_that_lacks_them_gets_them_and_nothing_else(
    measured: Room, inline: Inline
) -> None:
    path = measured.results / "losses.json"
    whole = read_result(path)
    write_result(replace(whole, doubles={}), path)
    now = standing(measured.measurement("losses"))
    assert now.state == "unattested"
    assert "make attest CHAPTER=demo" in now.why
    inline.calls.clear()
    (item,) = attest(measured.all, executor=inline, say=lambda _: None)
    assert item.passed
    assert inline.calls == ["open_by_name"]
    after = read_result(path)
    assert (after.doubles, after.provenance) == (whole.doubles, whole.provenance)
    np.testing.assert_array_equal(after.dataset.loss, whole.dataset.loss)
    assert standing(measured.measurement("losses")).state == "current"


def test_a_result_of_no_such_first_losses_does_not_get_them(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = measured.results / "losses.json"
    whole = read_result(path)
    others = {
        name: {s: [2 * x for x in v] for s, v in each.items()}
        for name, each in whole.openings.items()
    }
    write_result(replace(whole, doubles={}, openings=others), path)
    before = path.read_bytes()
    for exact in (True, False):
        monkeypatch.setattr(repeating, "same_kind", lambda then, now, exact=exact: exact)
        (item,) = attest(measured.all, executor=inline, say=lambda _: None)
        assert "other first losses than those kept" in item.problem
        assert path.read_bytes() == before


def test_what_was_attested_elsewhere_bites_there_too(
    measured: Room, inline: Inline, elsewhere: None
) -> None:
    measured.edit("for arm in ARMS]", "for arm in tuple(ARMS)]")
    assert all(item.passed for item in attest(measured.all, executor=inline, say=lambda _: None))
    assert standing(measured.measurement("losses")).state == "attested"
    told = read_result(measured.results / "losses.json").provenance["attested"]
    assert told["exact"] is False
    assert "torch" in told["versions"]
    measured.edit("steps=4", "steps=4, clip=0.1")
    (item,) = attest(measured.all, executor=inline, say=lambda _: None)
    assert item.problem


def test_an_attestation_that_cannot_be_written_says_so(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.edit("for arm in ARMS]", "for arm in tuple(ARMS)]")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(repeating, "write_result", full)
    (item,) = attest(measured.all, executor=inline, say=lambda _: None)
    assert "No space left" in item.problem
    assert standing(measured.measurement("losses")).state == "unattested"


def test_what_another_process_measures_is_not_attested_meanwhile(
    measured: Room, inline: Inline
) -> None:
    measured.edit("for arm in ARMS]", "for arm in tuple(ARMS)]")
    said: list[str] = []
    with locked(measured.measurement("losses"), wait=False) as held:
        assert held
        assert attest(measured.all, executor=inline, say=said.append) == []
    assert said == ["demo.losses: another process is measuring it"]


def test_the_opening_alone_where_a_measurement_says_so(measured: Room, inline: Inline) -> None:
    measured.edit("trainings=trainings)", 'trainings=trainings, repeat="opening")')
    inline.calls.clear()
    losses = repeat([measured.measurement("losses")], executor=inline, say=lambda _: None)[0]
    assert inline.calls == ["open_by_name"]
    assert losses.passed
    assert losses.comparison.equal == 2 * 4


def test_seeds_off_by_one_fail(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        seeds._Profile, "seeds", lambda self, *, full, **_: [10 * i + 1 for i in range(full)]
    )
    losses, _ = again(measured, inline)
    assert not losses.passed
    assert "expected seeds 1 among those kept" in repeating.line_of(losses)


def test_what_is_missing_or_damaged_fails(measured: Room, inline: Inline) -> None:
    path = measured.results / "draws.json"
    path.write_text(path.read_text().replace("1.0", "2.0"))
    _, draws = again(measured, inline)
    assert not draws.passed
    assert "draws.json" in draws.problem
    path.unlink()
    assert "make measure CHAPTER=demo" in again(measured, inline)[1].problem


def test_data_that_are_missing_fail_alone(measured: Room, inline: Inline) -> None:
    data = measured.folder / "draws.txt"
    data.write_text("a")
    where = f"data=[__import__('pathlib').Path({str(data)!r})]"
    measured.edit("@measurement(seeds=2)", f"@measurement(seeds=2, {where})")
    measure_all(measured.all, executor=inline, progress="nothing", say=lambda _: None)
    data.unlink()
    losses, draws = again(measured, inline)
    assert losses.passed
    assert not draws.passed
    assert str(data) in draws.problem
    assert not attest(measured.all, executor=inline, say=lambda _: None)[0].passed


def test_a_refactoring_is_attested_and_a_change_is_stale(measured: Room, inline: Inline) -> None:
    losses = measured.measurement("losses")
    measured.edit("for arm in ARMS]", "for arm in tuple(ARMS)]")
    now = standing(measured.measurement("losses"))
    assert now.state == "unattested"
    assert "make attest CHAPTER=demo" in now.why
    assert [item.passed for item in attest(measured.all, executor=inline, say=lambda _: None)] == [
        True
    ]
    assert standing(measured.measurement("losses")).state == "attested"
    told = read_result(measured.results / "losses.json").provenance
    assert told["digest"] != told["attested"]["digest"]
    measured.edit("losses[-1]", "losses[0]")
    (item,) = attest(measured.all, executor=inline, say=lambda _: None)
    assert item.problem
    assert standing(measured.measurement("losses")).state == "stale"
    assert losses.label == "demo.losses"


def test_a_verdict_that_changes_is_found(measured: Room, inline: Inline) -> None:
    measured.edit('"control": 1.0', '"control": 1.0 * (seed != 0)')
    found = again(measured, inline)
    assert flipped(found) == {"CS-1.3": ("confirmed", "inconclusive")}
