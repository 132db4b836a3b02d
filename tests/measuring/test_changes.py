"""Two sets of results side by side: what moved, what flipped, and how it is told."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from demo_room import Inline, Room
from measured_book.evidence.results import read_result, write_result
from measured_book.measuring.__main__ import main
from measured_book.measuring.changes import (
    Outcome,
    as_markdown,
    changes,
    kept,
    moved,
    results_in,
    set_at,
)
from measured_book.measuring.measurement import measurements_of, rooms
from measured_book.measuring.scheduler import measure_all


@pytest.fixture
def measured(room: Room, inline: Inline) -> Room:
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    return room


def another(room: Room, folder: Path, **added: dict[str, float]) -> Path:
    """Write the room's results into another folder, with something added to variables."""
    for path in sorted((room.folder / "results").glob("*.json")):
        result = read_result(path)
        variables = dict(result.variables)
        for name, number in added.get(path.stem, {}).items():
            axes, values = variables[name]
            variables[name] = (axes, values + number)
        provenance = {**result.provenance, "device": "a GPU"}
        changed = replace(result, variables=variables, provenance=provenance)
        write_result(changed, folder / "demo" / "results" / path.name)
    return folder


def test_a_set_beside_itself_has_no_changes(measured: Room):
    found = changes(kept(), kept(), ["demo"])
    assert (found.count("within"), found.count("outside")) == (0, 0)
    assert found.count("equal") == 3 * 2 + 2 * 2
    assert found.judged == 2
    assert (found.verdicts, found.intervals, found.unjudged) == ([], [], {})
    assert "**0 intervals moved, 0 verdicts flipped** (of 2 claims judged" in as_markdown(found)


def test_a_shifted_arm_moves_its_interval_and_flips_its_verdict(measured: Room, tmp_path: Path):
    other = another(measured, tmp_path / "gpu", losses={"loss": np.array([-5.0, 0.0])})
    found = changes(kept(), results_in(other), ["demo"])
    (flip,) = found.verdicts
    assert (flip.room, flip.claim, flip.before.verdict) == ("demo", "DD-7.7", "not reproduced")
    assert flip.after.verdict == "confirmed"
    (move,) = found.intervals
    assert move.before.effect is not None
    assert move.after.effect == pytest.approx(move.before.effect - 5)
    assert found.count("outside") == 3
    text = as_markdown(found)
    assert "**1 interval moved, 1 verdict flipped**" in text
    assert "| DD-7.7 | demo | not reproduced | confirmed |" in text
    farthest = re.search(r"\| demo\.losses \| (.*) \|", text)
    assert farthest is not None
    assert re.fullmatch(r"(loss \(1 of 2, [\d.e+]+ spreads\)(; )?){3}", farthest[1])
    assert "- After: a GPU (2); torch" in text


def test_rounding_moves_nothing(measured: Room, tmp_path: Path):
    other = another(measured, tmp_path / "gpu", losses={"loss": 1e-8})
    found = changes(kept(), results_in(other), ["demo"])
    assert found.count("within") == 6
    assert (found.verdicts, found.intervals, found.count("outside")) == ([], [], 0)


def test_an_identity_that_fails_flips(measured: Room, tmp_path: Path):
    found = changes(
        kept(), results_in(another(measured, tmp_path / "gpu", draws={"error": 1.0})), ["demo"]
    )
    assert [(m.claim, m.after.verdict) for m in found.verdicts] == [("CS-1.3", "refuted")]


def test_what_one_set_lacks_is_named_and_the_others_stands_in(measured: Room, tmp_path: Path):
    other = another(measured, tmp_path / "gpu")
    (other / "demo" / "results" / "draws.json").unlink()
    found = changes(kept(), results_in(other), ["demo"])
    assert found.only_before == ["demo.draws"]
    assert found.judged == 2
    assert changes(results_in(other), kept(), ["demo"]).only_after == ["demo.draws"]
    assert "### Only before\n\n- demo.draws" in as_markdown(found)


def test_results_of_another_form_are_named_not_compared(measured: Room, tmp_path: Path):
    other = another(measured, tmp_path / "gpu")
    path = other / "demo" / "results" / "losses.json"
    result = read_result(path)
    write_result(replace(result, variables={"lost": result.variables["loss"]}), path, renew=True)
    found = changes(kept(), results_in(other), ["demo"])
    assert [one.why for one in found.compared if one.why] == ["other names or shapes: loss, lost"]
    text = as_markdown(found)
    assert "- demo.losses: other names or shapes: loss, lost" in text
    assert "### Not judged" in text
    assert "demo: AttributeError" in text


@pytest.mark.parametrize(
    ("before", "after", "is_moved"),
    [
        ((1.0, (0.5, 1.5)), (1.4, (0.9, 1.9)), False),
        ((1.0, (0.5, 1.5)), (1.6, (0.4, 2.8)), True),
        ((1.0, (0.2, 1.8)), (1.6, (1.5, 1.7)), True),
        ((1.0, (1.0, 1.0)), (1.0005, (1.0005, 1.0005)), False),
        ((1.0, None), (1.0005, None), False),
        ((1.0, None), (1.1, None), True),
        ((1e-16, None), (3e-15, None), False),
        ((float("inf"), None), (float("inf"), None), False),
        ((float("inf"), None), (1.0, None), True),
        ((None, None), (1.0, (0.5, 1.5)), False),
    ],
)
def test_an_interval_moved_when_it_leaves_the_others_effect_outside(before, after, is_moved):
    assert moved(Outcome("confirmed", *before), Outcome("confirmed", *after)) is is_moved


# Places --------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path, measured: Room) -> Path:
    """A repository whose first commit has the room's results, and whose second those of a GPU as well."""
    root = tmp_path / "repository"
    another(measured, root / "lib" / "measured_book" / "rooms")
    commit(root, "one")
    shifted = {"loss": np.array([-5.0, 0.0])}
    another(measured, root / "results-gpu", losses=shifted)
    another(measured, root / "lib" / "measured_book" / "rooms", losses=shifted)
    commit(root, "two")
    return root


def commit(root: Path, tag: str) -> None:
    own = ["-c", "user.name=A Test", "-c", "user.email=test@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*own, "commit", "-qm", tag], ["tag", tag]):
        subprocess.run(["git", *words], cwd=root, check=True)


def test_a_set_is_a_folder_a_commit_or_a_folder_of_a_commit(repository: Path, measured: Room):
    for place, after in (
        (str(repository / "results-gpu"), "confirmed"),
        ("one", "not reproduced"),
        ("two", "confirmed"),
        ("two:results-gpu", "confirmed"),
    ):
        with set_at(place, repository) as folder:
            found = changes(results_in(folder), kept(), ["demo"])
        assert found.judged == 2, place
        flips = [(m.before.verdict, m.after.verdict) for m in found.verdicts]
        assert flips == ([] if after == "not reproduced" else [(after, "not reproduced")]), place


@pytest.mark.parametrize("place", ["nowhere", "one:no-such-folder"])
def test_a_place_that_is_not_there_is_named(repository: Path, place: str):
    with pytest.raises(ValueError, match=f"got {place!r}"), set_at(place, repository):
        pass


def test_the_command_prints_markdown(
    repository: Path, measured: Room, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.chdir(repository)
    assert main(["demo", "--diff", "one", "--to", "two:results-gpu"]) == 0
    assert "**1 interval moved, 1 verdict flipped**" in capsys.readouterr().out
    assert main(["demo", "--diff", "three"]) == 2
    assert "error: expected a folder, a commit or COMMIT:FOLDER" in capsys.readouterr().err


def test_another_set_is_measured_into_a_folder_of_its_own(
    room: Room, inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MEASURED_RESULTS_DIR", str(tmp_path / "results-gpu"))
    done = measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    assert len(done.written) == 2
    assert not (room.folder / "results").exists()
    assert set(results_in(tmp_path / "results-gpu")["demo"]) == {"draws", "losses"}
    again = measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    assert (len(again.written), len(again.held)) == (0, 2)


def test_tables_in_a_room_that_measures_nothing_are_no_results(measured: Room) -> None:
    other = measured.folder.parent / "compared" / "results"
    other.mkdir(parents=True)
    (other / "table.json").write_text('{"rows": []}')
    assert set(kept()) == {"demo"}


def test_a_chapter_that_neither_set_has_is_refused(
    measured: Room, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["domo", "--diff", str(measured.folder.parent)]) == 2
    assert "got 'domo'; the nearest is demo" in capsys.readouterr().err


def test_all_that_is_kept_can_be_read_and_put_beside_another_set():
    """Whatever else lies in a folder of results would stop every comparison."""
    found = kept()
    assert set(found) == set(rooms())
    declared = {room: set(measurements_of(room)) for room in found}
    assert {room: set(each) for room, each in found.items()} == declared
