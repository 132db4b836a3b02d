"""Measuring: what is missing is measured, once, and what is there is never lost."""

import json
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from demo_room import Inline, Room
from measured_book.evidence.results import read_result
from measured_book.measuring.measurement import measurements_of, rooms
from measured_book.measuring.scheduler import measure, measure_all
from measured_book.measuring.state import status
from measured_book.measuring.trials import Trial, read_trial, write_trial
from measured_transformer.provenance import digests


def run(room: Room, inline: Inline, **options: object) -> object:
    return measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None, **options)


def test_rooms_are_found_by_what_they_declare(room: Room) -> None:
    assert rooms() == ["demo"]
    assert list(measurements_of("demo")) == ["losses", "draws"]
    with pytest.raises(ValueError, match="got 'damo'; the nearest is demo"):
        measurements_of("damo")


def test_every_seed_is_measured_and_the_result_written(room: Room, inline: Inline) -> None:
    report = run(room, inline)
    assert sorted(report.written) == ["demo.draws", "demo.losses"]
    assert not report.failed
    result = read_result(room.results / "losses.json")
    assert result.seeds == [0, 10, 20]
    assert result.what == "The loss of the last step."
    loss = result.dataset.loss
    assert loss.dims == ("seed", "arm")
    assert list(loss.arm.values) == ["pre", "post"]
    assert len(np.unique(loss)) == 6
    told = result.provenance
    assert {
        "commit",
        "training",
        "reading",
        "device",
        "kind",
        "versions",
        "seconds",
        "date",
    } <= set(told)
    assert len(result.openings["pre"]["0"]) == 4


def test_what_holds_is_not_measured_again(room: Room, inline: Inline) -> None:
    run(room, inline)
    inline.calls.clear()
    report = run(room, inline)
    assert report.held == ["demo.losses", "demo.draws"]
    assert inline.calls == []


def test_values_are_those_of_the_training_itself(room: Room, inline: Inline) -> None:
    from measured_transformer.training.loop import train

    run(room, inline)
    module = __import__("importlib").import_module("measured_book.rooms.demo.measure")
    loss = read_result(room.results / "losses.json").dataset.loss
    alone = train(module.shaped("post", 8), module.TASK, seed=10, steps=4, learning_rate=0.01)
    assert float(loss.sel(seed=10, arm="post")) == alone.losses[-1]


def test_trainings_that_two_measurements_share_are_trained_once(room: Room, inline: Inline) -> None:
    room.write(
        room.file.read_text()
        + '''

@measurement(seeds=3, trainings=trainings)
def again(seed, runs, *, width=8):
    """The same runs."""
    return {"first": runs["pre"].losses[0]}
'''
    )
    both = [room.measurement("losses"), room.measurement("again")]
    measure_all(both, executor=inline, progress="nothing", say=lambda _: None)
    assert inline.calls.count("train_one") == 6


def test_more_seeds_cost_only_the_new_ones(room: Room, inline: Inline) -> None:
    run(room, inline)
    before = read_result(room.results / "losses.json").dataset.loss
    inline.calls.clear()
    room.edit("seeds=3", "seeds=5")
    assert status(room.measurement("losses")).state == "stale"
    run(room, inline)
    assert inline.calls.count("train_one") == 4
    assert inline.calls.count("take_by_name") == 2
    after = read_result(room.results / "losses.json").dataset.loss
    assert (after.sel(seed=before.seed) == before).all()


def test_a_seed_that_fails_leaves_the_others(room: Room, inline: Inline) -> None:
    room.edit('return {"error":', 'assert seed != 10, "a bad draw"\n    return {"error":')
    report = run(room, inline)
    assert report.written == ["demo.losses"]
    assert "1 of 2 seeds failed (seed 10: AssertionError: a bad draw" in report.failed["demo.draws"]
    assert not (room.results / "draws.json").exists()
    kept = list(Path("_build/measuring/demo.draws").rglob("*.json"))
    assert [path.name for path in kept] == ["0.json"]
    room.edit('assert seed != 10, "a bad draw"\n    ', "")
    assert run(room, inline).written == ["demo.draws"]


def test_a_damaged_trial_is_measured_again(room: Room, inline: Inline) -> None:
    room.edit(
        'return {"error":', 'import os; assert not os.path.exists("stop")\n    return {"error":'
    )
    Path("stop").touch()
    room.edit("1e-12 * (1 + seed)", "1e-12 * (1 + seed) / (seed != 10)")
    run(room, inline)
    Path("stop").unlink()
    for path in Path("_build/measuring/demo.draws").rglob("*.json"):
        path.write_text(path.read_text().replace("1e-12", "2e-12"))
    report = run(room, inline)
    assert "seed 10" in report.failed["demo.draws"]


class OnePlace(Inline):
    """Takes one call at a time."""

    _max_workers = 0.5


def test_a_whole_number_among_fractions_is_no_other_form(room: Room) -> None:
    room.edit('"control": 1.0', '"control": 0 if seed == 0 else 0.5')
    assert run(room, OnePlace(), renew=True).failed == {}
    room.edit("0 if seed == 0 else 0.5", "0 if seed == 0 else 0.25")
    report = run(room, OnePlace())
    assert report.failed == {}
    kept = read_result(room.results / "draws.json").variables["control"][1]
    assert kept.tolist() == [0.0, 0.25]


def test_a_result_of_another_form_is_refused_with_the_first_seed(room: Room) -> None:
    one = OnePlace()
    run(room, one)
    before = (room.results / "draws.json").read_bytes()
    room.edit('"control": 1.0', '"other": 1.0')
    room.edit("@measurement(seeds=2)", "@measurement(seeds=9)")
    one.calls.clear()
    report = run(room, one)
    said = report.failed["demo.draws"]
    assert "gives other names or shapes" in said
    assert "(control, other)" in said
    assert "make measure CHAPTER=demo RENEW=1" in said
    assert one.calls == ["take_by_name"]
    assert (room.results / "draws.json").read_bytes() == before
    assert "demo.draws" in run(room, one, renew=True).written
    assert set(read_result(room.results / "draws.json").variables) == {"error", "other"}
    assert one.calls.count("take_by_name") == 9 + 3  # what was kept of the first is taken


@pytest.mark.parametrize("renew", [False, True])
def test_a_file_that_cannot_be_trusted_is_left_alone_and_nothing_is_measured(
    room: Room, inline: Inline, renew: bool
) -> None:
    run(room, inline)
    path = room.results / "draws.json"
    path.write_text(path.read_text().replace("1.0", "2.0"))
    before = path.read_bytes()
    inline.calls.clear()
    report = run(room, inline, renew=renew)
    said = report.failed["demo.draws"]
    assert str(path) in said
    assert "changed after it was measured" in said
    assert "make measure CHAPTER=demo" in said
    assert path.read_bytes() == before
    assert inline.calls.count("take_by_name") == (3 if renew else 0)  # the other one's
    path.unlink()
    assert "demo.draws" in run(room, inline).written


def test_a_trial_comes_back_as_it_was(tmp_path: Path) -> None:
    variables = {
        "number": ((), np.asarray(1.5)),
        "row": (("arm",), np.array([1.0, np.nan, np.inf])),
        "solved": ((), np.asarray(True)),
        "none": (("arm",), np.zeros(0, dtype=np.int64)),
    }
    trial = Trial(10, variables, {"a/b": [0.1, math.nan]}, 2.5, ("cpu X",))
    write_trial(trial, tmp_path / "10.json")
    back = read_trial(tmp_path / "10.json")
    assert back is not None
    for name, (axes, values) in variables.items():
        assert back.variables[name][0] == axes
        assert back.variables[name][1].shape == values.shape
        assert back.variables[name][1].dtype == values.dtype
        np.testing.assert_array_equal(back.variables[name][1], values)
    assert math.isnan(back.openings["a/b"][1])
    assert (back.seconds, back.kinds) == (2.5, ("cpu X",))


def test_one_that_differs_among_seeds_fails_alone(room: Room, inline: Inline) -> None:
    room.edit('"control": 1.0', '"control": ("draw", [1.0] * (1 + seed // 10))')
    report = run(room, inline)
    assert report.written == ["demo.losses"]
    assert "same names and shapes from every seed" in report.failed["demo.draws"]


def test_one_whose_trainings_cannot_be_told_fails_alone(room: Room, inline: Inline) -> None:
    room.edit("n_layers=1", "n_layers=0")
    report = run(room, inline)
    assert report.written == ["demo.draws"]
    assert "3 of 3 seeds failed (seeds 0, 10, 20: ValueError: " in report.failed["demo.losses"]


def test_what_holds_holds_for_these_versions_alone(
    room: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(room, inline)
    monkeypatch.setattr(digests, "_version", lambda package: "0.0.1")
    now = status(room.measurement("losses"))
    assert now.state == "unattested"
    assert "measured with other versions of packages" in now.why
    assert status(room.measurement("draws")).state == "current"  # plain Python


def test_data_count_and_are_missed_by_name(room: Room, inline: Inline) -> None:
    data = room.folder / "draws.txt"
    data.write_text("a")
    room.edit(
        "@measurement(seeds=2)",
        f"@measurement(seeds=2, data=[__import__('pathlib').Path({str(data)!r})])",
    )
    run(room, inline)
    assert status(room.measurement("draws")).state == "current"
    data.write_text("b")
    assert status(room.measurement("draws")).state == "unattested"
    data.unlink()
    now = status(room.measurement("draws"))
    assert now.state == "unattested"
    assert str(data) in now.why
    assert str(data) in run(room, inline).failed["demo.draws"]


def test_seeds_that_give_other_shapes_are_refused(room: Room, inline: Inline) -> None:
    room.edit('"control": 1.0', '"control": ("draw", [1.0] * (1 + seed // 10))')
    with pytest.raises(ValueError, match="same names and shapes from every seed"):
        measure(room.measurement("draws"), seeds=2, executor=inline, progress=False)


def test_a_folder_that_cannot_be_written_to_keeps_the_seeds(
    room: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tempfile.mkstemp

    def refuses(
        dir: Path, **options: str
    ) -> tuple[int, str]:  # root may write wherever it is forbidden
        if dir == room.results:
            raise PermissionError(13, "Permission denied", str(dir))
        return made(dir=dir, **options)

    monkeypatch.setattr(tempfile, "mkstemp", refuses)
    report = run(room, inline)
    assert "Permission denied" in report.failed["demo.draws"]
    assert "all 2 seeds are kept in" in report.failed["demo.draws"]
    monkeypatch.setattr(tempfile, "mkstemp", made)
    inline.calls.clear()
    assert sorted(run(room, inline).written) == ["demo.draws", "demo.losses"]
    assert inline.calls == []


def test_a_full_disk_keeps_the_seeds(
    room: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from measured_book.measuring import scheduler

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scheduler, "write_result", full)
    report = run(room, inline)
    assert "No space left" in report.failed["demo.draws"]
    assert "all 2 seeds are kept in" in report.failed["demo.draws"]
    monkeypatch.undo()


def test_measuring_in_a_notebook_gives_a_dataset_and_writes_no_result(
    room: Room, inline: Inline
) -> None:
    data = measure(room.measurement("losses"), seeds=2, executor=inline, progress=False, width=4)
    assert data.loss.shape == (2, 2)
    assert not room.results.exists()
    with pytest.raises(TypeError, match="has the settings width, got depth"):
        measure(room.measurement("losses"), seeds=2, executor=inline, depth=4)


def test_another_set_of_seeds_lies_apart(
    room: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "1000")
    run(room, inline)
    assert not room.results.exists()
    path = Path("_build/seeds-1000/demo/results/draws.json")
    assert json.loads(path.read_text())["coords"]["seed"] == [10000, 10010]
