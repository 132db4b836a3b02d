"""Repeating: values come back, or the run fails and says which did not."""

import pytest
from demo_room import Inline, Room
from measured_transformer.evidence.results import read_result
from measured_transformer.measuring import repeating
from measured_transformer.measuring.repeating import attest, flipped, repeat
from measured_transformer.measuring.scheduler import measure_all
from measured_transformer.measuring.state import standing


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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TASK, seed, steps=4", "TASK, seed + 1, steps=4"),
        ("runs[arm].losses[-1]", "-runs[arm].losses[-1]"),
    ],
)
def test_it_bites_on_any_machine(
    measured: Room, inline: Inline, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: False)
    measured.edit(old, new)
    assert not again(measured, inline)[0].passed


def test_a_changed_epsilon_shows_in_first_losses_on_any_machine(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: False)
    measured.edit("d_model=width", "norm_eps=1e-2, d_model=width")
    losses, _ = again(measured, inline)
    assert any("first losses" in where for where in losses.comparison.where)


def test_rounding_is_forgiven_on_another_kind_of_machine(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.edit("runs[arm].losses[-1]", "runs[arm].losses[-1] * (1 + 1e-9)")
    assert not again(measured, inline)[0].passed
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: False)
    losses = again(measured, inline)[0]
    assert losses.passed
    assert losses.comparison.within == 2


def test_the_opening_alone_where_a_measurement_says_so(measured: Room, inline: Inline) -> None:
    measured.edit("trainings=trainings)", 'trainings=trainings, repeat="opening")')
    inline.calls.clear()
    losses = repeat([measured.measurement("losses")], executor=inline, say=lambda _: None)[0]
    assert inline.calls == ["open_by_name"]
    assert losses.passed
    assert losses.comparison.equal == 2 * 4


def test_what_is_missing_or_damaged_fails(measured: Room, inline: Inline) -> None:
    path = measured.results / "draws.json"
    path.write_text(path.read_text().replace("1.0", "2.0"))
    _, draws = again(measured, inline)
    assert not draws.passed
    assert "draws.json" in draws.problem
    path.unlink()
    assert "make measure CHAPTER=demo" in again(measured, inline)[1].problem


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
