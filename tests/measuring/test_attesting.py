"""Attesting: changed code that computes the same is attested without training, and nothing else is."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import measured_transformer.language.packaged as packaged
import pytest
from demo_room import Inline, Room
from measured_book.evidence.results import read_result, write_result
from measured_book.measuring import attesting, repeating
from measured_book.measuring.attestations import attestations_of
from measured_book.measuring.attesting import attest, keep_fingerprints
from measured_book.measuring.scheduler import locked, measure_all
from measured_book.measuring.state import status


@pytest.fixture
def measured(room: Room, inline: Inline) -> Room:
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    assert keep_fingerprints(room.all, executor=inline, say=lambda _: None) == {}
    inline.calls.clear()
    return room


def attested(room: Room, inline: Inline) -> dict[str, str]:
    found = attest(room.all, executor=inline, say=lambda _: None)
    return {item.measurement.name: item.problem for item in found}


SAME = ("for arm in ARMS]", "for arm in tuple(ARMS)]")


def test_a_refactoring_is_attested_without_training_again(measured: Room, inline: Inline) -> None:
    path = measured.results / "losses.json"
    before = path.read_bytes()
    measured.edit(*SAME)
    now = status(measured.measurement("losses"))
    assert now.state == "unattested"
    assert "make attest CHAPTER=demo" in now.why
    assert "other code that reads its trainings" in now.why
    assert attested(measured, inline) == {"losses": ""}
    assert inline.calls == ["take_by_label"]
    assert status(measured.measurement("losses")).state == "attested"
    assert path.read_bytes() == before  # what was measured is left alone
    assert attested(measured, inline) == {}


def test_which_part_of_the_code_changed_is_said(measured: Room) -> None:
    measured.edit("RATE = 0.01", "RATE = 0.01 + 0.0")
    why = status(measured.measurement("losses")).why
    assert "other code of its trainings" in why
    measured.edit(*SAME)
    assert "measured with other code;" in status(measured.measurement("losses")).why


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("losses[-1]", "losses[0]"),
        ("RATE = 0.01", "RATE = 0.0101"),
        ("d_model=width", "norm_eps=1.1e-5, d_model=width"),
    ],
)
def test_a_change_is_stale_on_any_machine(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.setattr(repeating, "same_kind", lambda then, now: False)
    before = attestations_of("demo")
    measured.edit(old, new)
    problem = attested(measured, inline)["losses"]
    assert "differ" in problem
    assert "run make measure CHAPTER=demo" in problem
    assert status(measured.measurement("losses")).state == "stale"
    assert attestations_of("demo") == before
    measured.edit(new, old)
    assert status(measured.measurement("losses")).state == "current"


def test_code_that_went_another_way_and_came_back_is_current(
    measured: Room, inline: Inline
) -> None:
    measured.edit(*SAME)
    attested(measured, inline)
    measured.edit(*reversed(SAME))
    assert status(measured.measurement("losses")).state == "current"


def test_a_result_of_this_code_without_a_fingerprint_gets_it(
    measured: Room, inline: Inline
) -> None:
    before = attestations_of("demo")
    (measured.folder / "fingerprints.json").unlink()
    assert attested(measured, inline) == {"losses": "", "draws": ""}
    assert set(inline.calls) == {"take_by_label"}
    assert attestations_of("demo") == before


def test_a_result_of_unknown_code_is_measured_again_in_full(measured: Room, inline: Inline) -> None:
    path = measured.results / "losses.json"
    whole = read_result(path)
    older = {k: v for k, v in whole.provenance.items() if k not in ("training", "reading")}
    write_result(replace(whole, provenance={**older, "digest": "0" * 64}), path)
    now = status(measured.measurement("losses"))
    assert now.state == "unattested"
    assert "a digest of an older form" in now.why
    assert attested(measured, inline) == {"losses": ""}
    assert "take_by_name" in inline.calls
    assert status(measured.measurement("losses")).state == "attested"


def test_other_values_of_unknown_code_are_not_attested(measured: Room, inline: Inline) -> None:
    path = measured.results / "draws.json"
    whole = read_result(path)
    axes, values = whole.variables["control"]
    others = {**whole.variables, "control": (axes, values + 1)}
    older = {k: v for k, v in whole.provenance.items() if k not in ("training", "reading")}
    write_result(replace(whole, variables=others, provenance={**older, "digest": "0" * 64}), path)
    assert "values differ" in attested(measured, inline)["draws"]
    assert status(measured.measurement("draws")).state == "stale"


def test_a_result_of_a_processor_of_unknown_kind_is_of_another_kind(
    measured: Room, inline: Inline
) -> None:
    path = measured.results / "draws.json"
    whole = read_result(path)
    kind = str(whole.provenance["kind"]).partition(",")[0]  # without its arithmetic
    write_result(replace(whole, provenance={**whole.provenance, "kind": kind}), path)
    losses, draws = repeating.repeat(measured.all, executor=inline, say=lambda _: None).items
    assert losses.exact
    assert not draws.exact
    assert draws.passed


def test_what_cannot_be_written_down_is_said(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.edit(*SAME)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(attesting, "keep_attestation", full)
    assert "No space left" in attested(measured, inline)["losses"]
    assert status(measured.measurement("losses")).state == "unattested"


def test_nothing_is_attested_without_its_corpus(
    measured: Room, inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEASURED_DATA_DIR", str(tmp_path))
    measured.edit("trainings=trainings)", 'trainings=trainings, corpora=("a.txt",))')
    measured.edit("RATE = 0.01", "RATE = 0.01 + 0.0")
    assert "its corpus is not here (a.txt)" in attested(measured, inline)["losses"]
    (tmp_path / "a.txt").touch()
    assert attested(measured, inline) == {"losses": ""}


def test_nothing_is_attested_without_its_checkpoint(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaged, "find_spec", lambda _: None)
    named = 'trainings=trainings, pretrained=("smollm2-135m-instruct",))'
    measured.edit("trainings=trainings)", named)
    measured.edit("RATE = 0.01", "RATE = 0.01 + 0.0")
    assert "not here (smollm2-135m-instruct)" in attested(measured, inline)["losses"]
    monkeypatch.setattr(packaged, "find_spec", lambda _: SimpleNamespace(origin="here"))
    assert attested(measured, inline) == {"losses": ""}


@pytest.mark.parametrize("setting", ["MEASURED_RESULTS_DIR", "MEASURED_SEED_OFFSET"])
def test_another_set_of_results_leaves_the_books_own_fingerprints_alone(
    measured: Room, inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv(setting, "1000" if "SEED" in setting else str(tmp_path / "results-gpu"))
    measured.edit("RATE = 0.01", "RATE = 0.02")
    measure_all(measured.all, executor=inline, progress="nothing", say=lambda _: None)
    kept = (measured.folder / "fingerprints.json").read_bytes()
    with pytest.raises(ValueError, match=f"expected the book's own results.*{setting}=") as told:
        attested(measured, inline)
    assert "\n" not in str(told.value)
    assert (measured.folder / "fingerprints.json").read_bytes() == kept
    monkeypatch.delenv(setting)
    measured.edit("RATE = 0.02", "RATE = 0.01")
    assert status(measured.measurement("losses")).is_valid


def test_what_another_process_measures_is_not_attested_meanwhile(
    measured: Room, inline: Inline
) -> None:
    measured.edit(*SAME)
    said: list[str] = []
    with locked(measured.measurement("losses"), wait=False) as held:
        assert held
        assert attest(measured.all, executor=inline, say=said.append) == []
    assert said == ["demo.losses: another process is measuring it"]


def test_two_at_once_wait_for_one_another(measured: Room, inline: Inline) -> None:
    measured.edit(*SAME)
    said: list[str] = []
    found: list[object] = []
    with attesting._alone(lambda _: None):
        other = threading.Thread(
            target=lambda: found.append(attest(measured.all, executor=inline, say=said.append))
        )
        other.start()
        other.join(0.5)
        assert other.is_alive()
        assert said == ["another process attests; this one waits for it"]
    other.join(60)
    assert len(found) == 1


def test_an_interrupted_one_goes_on_where_it_was(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.edit(*SAME)
    measured.edit('"control": 1.0', '"control": 1.0 + 0.0')
    kept = attesting._keep

    def interrupted(one, *others):
        if one.name == "draws":
            raise KeyboardInterrupt
        return kept(one, *others)

    monkeypatch.setattr(attesting, "_keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attest(measured.all, executor=inline, say=lambda _: None)
    monkeypatch.setattr(attesting, "_keep", kept)
    done = [name for name in ("losses", "draws") if status(measured.measurement(name)).is_valid]
    inline.calls.clear()
    left = attested(measured, inline)
    assert set(left) == {"losses", "draws"} - set(done)
    assert len(inline.calls) == len(left)
