"""What the command says of arguments and folders that do not fit: one sentence, and exit status 2."""

from pathlib import Path

import pytest
from demo_room import Inline, Room
from measured_book.measuring.__main__ import main
from measured_book.measuring.attesting import keep_fingerprints
from measured_book.measuring.scheduler import measure_all


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    return told


def test_an_unknown_chapter_gives_the_nearest(room: Room, capsys) -> None:
    told = complaint(capsys, "--status", "domo")
    assert "expected a chapter that declares measurements, got 'domo'; the nearest is demo" in told


@pytest.mark.parametrize("share", ["x", "99", "-1", "1.5"])
def test_a_share_that_is_none_says_which_there_are(room: Room, capsys, share: str) -> None:
    told = complaint(capsys, "--repeat", f"--share={share}")
    assert f"expected a share from 0 to 9, or 'due', got '{share}'" in told


@pytest.mark.parametrize("command", ["--status", "--attest", "--repeat"])
@pytest.mark.parametrize("made", ["nothing", "a file"])
def test_a_folder_of_results_that_is_not_there_is_named(
    room: Room, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, made: str
) -> None:
    place = tmp_path / "results-gpu"
    if made == "a file":
        place.touch()
    monkeypatch.setenv("MEASURED_RESULTS_DIR", str(place))
    told = complaint(capsys, command, "demo")
    assert f"expected in MEASURED_RESULTS_DIR a folder with results, got {str(place)!r}" in told


def test_nothing_is_measured_into_a_file(
    room: Room, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "results-gpu"
    place.write_text("kept")
    monkeypatch.setenv("MEASURED_RESULTS_DIR", str(place))
    assert main(["demo"]) == 1
    told = capsys.readouterr().err.splitlines()
    why = f"expected a folder in MEASURED_RESULTS_DIR, got the file {place}"
    assert set(told[:2]) == {f"demo.losses: {why}", f"demo.draws: {why}"}
    assert place.read_text() == "kept"


def test_what_another_set_lacks_is_named_where_it_should_lie(
    room: Room, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEASURED_RESULTS_DIR", str(tmp_path))
    assert main(["--status", "demo"]) == 1
    assert f"{tmp_path}/demo/results/losses.json is missing" in capsys.readouterr().out


def test_truncated_fingerprints_stop_the_command(room: Room, inline: Inline, capsys) -> None:
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    assert keep_fingerprints(room.all, executor=inline, say=lambda _: None) == {}
    path = room.folder / "fingerprints.json"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    for command in ("--status", "--attest", "--repeat"):
        told = complaint(capsys, command, "demo")
        assert f"{path}: expected fingerprints in JSON" in told
        assert "restore it from the repository, or delete it" in told
    assert (room.folder / "results" / "losses.json").is_file()
