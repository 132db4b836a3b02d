"""Measuring in slices: what fits is done, measurements one after another, nothing twice, here or elsewhere."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_room import Room
from fake_cuda import fake_cuda
from measured_book.evidence.results import read_result
from measured_book.measuring import __main__ as command
from measured_book.measuring import archives, scheduler, work
from measured_book.measuring.attestations import attestations_of
from measured_book.measuring.jobs import job
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.progress import Progress
from measured_book.measuring.scheduler import measure_all
from measured_book.measuring.slices import RESERVE, MostShared, Slice, TimeUpError
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import tuned_table, tuning
from measured_transformer.training.store import Store

ROOM = '''
"""What this chapter measures."""

from measured_book.measuring import Search, job, measurement, tuned
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_heads=2, n_layers=1)


def of(seed, *steps):
    return {n: job(CONFIG, TASK, seed, steps=n, learning_rate=0.01) for n in steps}


def own(seed):
    return of(seed, 9)


def shares(seed):
    return of(seed, 8)


def both(seed):
    return of(seed, 8, 7)


def chosen(seed):
    search = Search("arm", CONFIG, TASK, (1e-2, 1e-1, 3e-1), [1, 11], 2)
    return {"it": job(CONFIG, TASK, seed, steps=4, learning_rate=tuned(search))}


@measurement(seeds=2, trainings=own)
def alone(seed, runs):
    return {"loss": runs[9].losses[-1]}


@measurement(seeds=2, trainings=shares)
def first(seed, runs):
    return {"loss": runs[8].losses[-1]}


@measurement(seeds=2, trainings=both)
def second(seed, runs):
    return {"loss": runs[8].losses[-1] - runs[7].losses[-1]}


@measurement(seeds=2, trainings=chosen)
def third(seed, runs):
    return {"rate": runs["it"].rates[0]}
'''
NAMES = ("alone", "first", "second", "third")
TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_heads=2, n_layers=1)


class Clock:
    """Stands still but for what moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Ticking(Executor):
    """Does a call where it is submitted, after which its clock is so many seconds on.

    Attributes:
        trained: steps, learning rate and seed of each training, in their order.
        calls: the names of the functions that were called.
    """

    def __init__(self, clock: Clock, seconds: float = 10.0) -> None:
        self.clock, self.seconds = clock, seconds
        self.trained: list[tuple[int, float, int]] = []
        self.calls: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        name = fn.__name__
        self.calls.append(name)
        if name.startswith("train_"):
            jobs = args[0] if name == "train_stack" else [args[0]]
            told = [(each.settings["steps"], each.settings["learning_rate"]) for each in jobs]
            self.trained += [(*one, each.seed) for one, each in zip(told, jobs, strict=True)]
        result = fn(*args, **kwargs)
        self.clock.now += self.seconds
        future.set_result(result)
        return future


class Machine:
    """A machine that measures: its executor, and its clock."""

    def __init__(self, patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self._patch, self._folder = patch, tmp_path
        self.archive = tmp_path / "it.tar"
        self.clock = Clock()
        self.executor = Ticking(self.clock)
        self.moved_to("a-book")
        patch.setattr(work.Workers, "_own", lambda workers: self.executor)
        patch.setattr(command, "Slice", partial(Slice, clock=self.clock))

    def moved_to(self, name: str) -> None:
        """Go on in another book, with a table of learning rates of its own: another machine."""
        book, table = self._folder / name, self._folder / f"{name}.jsonl"
        (book / "book").mkdir(parents=True, exist_ok=True)
        (book / "_config.yml").write_text("")
        self._patch.chdir(book)
        self._patch.setenv("MEASURED_RESULTS_DIR", str(book / "results-gpu"))
        for module in (tuned_table, tuning):
            self._patch.setattr(module, "PACKAGED", table)

    def slice(self, seconds: float, *words: str) -> int:
        """Measure in one slice, in which so many seconds are left for calls."""
        minutes = seconds / 60 / (1 - RESERVE[0])
        return command.main(["demo", "--minutes", str(minutes), *words])

    def carried(self, seconds: float) -> int:
        return self.slice(seconds, "--archive", str(self.archive))

    @property
    def results(self) -> dict[str, np.ndarray]:
        found = sorted(Path("results-gpu/demo/results").glob("*.json"))
        return {
            f"{path.stem} {name}": values
            for path in found
            for name, (_, values) in read_result(path).variables.items()
        }


@pytest.fixture(params=["cpu", "cuda"])
def machine(
    request: pytest.FixtureRequest,
    room: Room,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Machine]:
    room.write(ROOM)
    monkeypatch.setenv("MEASURED_DEVICE", request.param)
    monkeypatch.setenv("MEASURED_DEVICE_PROCESSES", "1")
    monkeypatch.setattr(work, "_processes", lambda: 1)
    if request.param == "cpu":
        yield Machine(monkeypatch, tmp_path)
        return
    with fake_cuda():
        yield Machine(monkeypatch, tmp_path)


def whole(machine: Machine) -> dict[str, np.ndarray]:
    """The results of a measuring without a limit, on a machine of its own."""
    machine.moved_to("whole")
    assert command.main(["demo"]) == 0
    found = machine.results
    assert len(found) == len(NAMES)
    machine.moved_to("a-book")
    machine.executor.trained.clear()
    machine.executor.calls.clear()
    return found


# Slices -------------------------------------------------------------------------------------------


def test_slices_end_with_the_results_of_one_measuring_and_train_nothing_twice(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, counts = whole(machine), []
    for _ in range(30):
        start = machine.clock.now
        assert machine.slice(40) == 0
        assert machine.clock.now - start <= 40
        counts.append(len(machine.results))
        said = capsys.readouterr().out
        if "time is up" not in said:
            break
        left = f"time is up: {counts[-1]} of 4 measured, "
        assert left in said
        assert "; the same command goes on from there\n" in said
    assert counts[-1] == 4
    assert 1 < counts.index(4) < 29
    assert counts[1] > 0, "measurements are finished one after another"
    trained = machine.executor.trained
    assert len(trained) == len(set(trained)) == 2 + 2 + 2 + 6 + 2
    np.testing.assert_equal(machine.results, expected)


def test_what_is_shared_comes_first_and_measurements_one_after_another(machine: Machine) -> None:
    machine.slice(1e4)
    steps = list(dict.fromkeys(steps for steps, _, _ in machine.executor.trained))
    # eight steps count for two measurements, half for each; a search is followed by what waited for it
    assert steps == [8, 2, 4, 7, 9]


def test_without_a_limit_the_longest_still_come_first(machine: Machine) -> None:
    command.main(["demo"])
    steps = list(dict.fromkeys(steps for steps, _, _ in machine.executor.trained))
    assert [one for one in steps if one != 2] in ([9, 8, 7, 4], [8, 9, 7, 4])


def test_renewing_in_slices_begins_with_what_was_measured_longest_ago(machine: Machine) -> None:
    whole(machine)
    assert machine.slice(1e4) == 0
    paths = {name: Path(f"results-gpu/demo/results/{name}.json") for name in NAMES}
    shutil.rmtree("_build/runs")
    dates = {"alone": 1, "second": 2, "first": 3, "third": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler.Task, "date", property(lambda task: float(dates[task.one.name])))
        before = {name: path.stat().st_mtime_ns for name, path in paths.items()}
        machine.executor.trained.clear()
        assert machine.slice(70, "--renew") == 0
    after = {name: path.stat().st_mtime_ns for name, path in paths.items()}
    assert [name for name in NAMES if after[name] != before[name]][:1] == ["alone"]
    assert machine.executor.trained[0][0] == 9


def test_a_call_that_would_end_too_late_is_not_started(machine: Machine) -> None:
    report = measure_all(
        [measurements_of("demo")["alone"]],
        progress="nothing",
        say=lambda _: None,
        limit=Slice(25 / 60 / (1 - RESERVE[0]), machine.clock),
    )
    assert report.time_is_up
    assert len(machine.executor.calls) == 2, "a third would have ended after 30 s of 25"


class Stuck(Ticking):
    """Its third call never ends."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if len(self.calls) == 2:
            self.clock.now = 1e6
            self.calls.append("stuck")
            self.stuck = Future[Any]()
            return self.stuck
        return super().submit(fn, *args, **kwargs)


def test_what_runs_when_the_time_is_up_is_ended_and_the_rest_kept(machine: Machine) -> None:
    machine.executor = Stuck(machine.clock)
    assert machine.slice(1000) == 0
    assert machine.executor.stuck.cancelled()
    done = machine.executor.trained
    assert done
    machine.executor = Ticking(machine.clock)
    assert machine.slice(1000) == 0
    assert len(machine.results) == 4
    assert not set(done) & set(machine.executor.trained)


def test_processes_end_with_their_slice(room: Room) -> None:
    """The processes of this machine, which are killed."""
    room.write(ROOM)
    one, clock = measurements_of("demo")["alone"], Clock()
    asked = [work.Wanted(one, 0, one.settings(), one.code().whole)]

    def one_slice() -> None:
        with work.Workers(None, Progress("nothing"), limit=Slice(1, clock)) as workers:
            made.append(workers)
            begin = workers.submit

            def submit(call: Any) -> Future[Any]:
                future = begin(call)
                clock.now = 1e6
                return future

            workers.submit = submit  # type: ignore[method-assign]
            list(workers.outcomes(asked, Store(Path("_build/runs"))))

    made: list[Any] = []
    with pytest.raises(TimeUpError):
        one_slice()
    assert all(each._process.poll() is not None for each in made[0]._executor._all)


def test_what_fails_is_reported_when_the_time_is_up_too(
    machine: Machine, room: Room, capsys: pytest.CaptureFixture[str]
) -> None:
    room.edit('return {"loss": runs[8].losses[-1]}', 'raise ArithmeticError(f"no {seed}")')
    machine.executor.submit = failing(machine.executor)  # type: ignore[method-assign]
    assert machine.slice(120) == 1
    said = capsys.readouterr()
    assert "time is up: " in said.out
    assert "demo.first: " in said.err
    assert "ArithmeticError: no 0" in said.err


def failing(executor: Ticking) -> Callable[..., Future[Any]]:
    """As the executor, but that an error becomes the call's outcome."""
    submit = executor.submit

    def tried(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        try:
            return submit(fn, *args, **kwargs)
        except Exception as error:
            future = Future[Any]()
            future.set_exception(error)
            executor.clock.now += executor.seconds
            return future

    return tried


def test_fingerprints_that_a_slice_had_no_time_for_are_taken_by_the_next(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MEASURED_RESULTS_DIR")
    clock = machine.clock
    monkeypatch.setattr(work.Workers, "is_local", False)  # whose kernels are no others
    taking = command.keep_fingerprints

    def late(those: Any, **more: Any) -> Any:
        those = list(those)
        if len(scheduler_written()) == 4 and clock.now < 1e5:
            clock.now = 1e5
            raise TimeUpError
        return taking(those, **more)

    def scheduler_written() -> list[Path]:
        folder = archives.folder_for("demo")
        return list(folder.glob("*.json")) if folder.is_dir() else []

    monkeypatch.setattr(command, "keep_fingerprints", late)
    assert machine.slice(1000) == 0
    said = capsys.readouterr().out
    assert "time is up: 4 of 4 measured, 4 of them in this slice, fingerprints are left" in said
    assert attestations_of("demo") == {}
    assert machine.slice(1000) == 0
    assert sorted(attestations_of("demo")) == sorted(NAMES)
    assert "time is up" not in capsys.readouterr().out


@pytest.mark.parametrize("minutes", ["0", "-3", "nine", "nan", "inf", ""])
def test_a_time_that_is_none_is_refused(
    room: Room, minutes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["demo", "--minutes", minutes]) == 2
    said = capsys.readouterr().err
    assert said == f"error: expected a positive number of minutes for a slice, got {minutes!r}\n"
    assert not room.results.exists()


def test_slices_are_for_measuring_alone(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["demo", "--repeat", "--minutes", "3"]) == 2
    assert "with measuring alone" in capsys.readouterr().err


# The order ----------------------------------------------------------------------------------------


def ordered(
    wanted: dict[str, tuple[int, ...]],
    fits: Callable[[Any, float], bool] = lambda *_: True,
    **ranks: float,
) -> list[int]:
    """The steps of trainings in the order of a slice, for measurements that want such steps."""
    shared = MostShared[int](lambda n: [name for name, own in wanted.items() if n in own], ranks)
    for steps in sorted({n for own in wanted.values() for n in own}, reverse=True):
        shared.put(job(CONFIG, TASK, 0, steps=steps, learning_rate=0.01), steps)
    found = []
    while shared and (taken := shared.take(stacked=True, fits=fits)):
        found += taken
    return found


def test_the_most_shared_come_first() -> None:
    wanted = {"a": (100,), "b": (100, 90), "c": (100, 80), "d": (70,)}
    assert ordered(wanted) == [100, 70, 80, 90]


def test_a_measurement_is_finished_before_the_next_is_begun() -> None:
    wanted = {"a": (50, 51, 52), "b": (30, 31, 32), "c": (90,)}
    found = [next(name for name, own in wanted.items() if n in own) for n in ordered(wanted)]
    assert found == ["c", *3 * ["b"], *3 * ["a"]]


def test_what_cannot_be_finished_comes_last_and_ranks_before_all() -> None:
    wanted = {"a": (10, 900), "b": (300,), "c": (400,)}

    def fits(run: Any, units: float) -> bool:
        return bool(run.settings["steps"] < 500)

    assert ordered(wanted, fits) == [300, 400, 10]
    found = ordered(wanted, a=0.0, b=2.0, c=1.0)
    assert (set(found[:2]), found[2:]) == ({10, 900}, [400, 300])


def test_a_stack_is_what_one_call_trains() -> None:
    shared = MostShared[int](lambda _: ["a"])
    for seed in range(5):
        shared.put(job(CONFIG, TASK, seed, steps=3, learning_rate=0.01), seed)
    assert shared.take(stacked=False, fits=lambda *_: True) == [0]
    assert shared.take(stacked=True, fits=lambda *_: True) == [1, 2, 3, 4]
    assert not shared


def test_a_rate_is_what_calls_have_taken() -> None:
    clock = Clock()
    limit = Slice(100 / 60 / (1 - RESERVE[0]), clock)
    assert limit.estimate(["stack"], 1e9) == 0.0, "of the first nobody knows"
    future = Future[Any]()
    limit.watch(future, clock(), ["look a", "look"], 2.0)
    clock.now = 30.0
    future.set_result(None)
    assert limit.estimate(["look b", "look"], 3.0) == 45.0
    assert limit.left == pytest.approx(70.0)
    assert limit.fits(["look"], 4.0)
    assert not limit.fits(["look"], 5.0)
    assert not limit.fits(["look"], 6.0, resumes=True), "the next slice has time for it"
    assert limit.fits(["look"], 7.0, resumes=True), "no slice has, and it goes on from its middle"
    clock.now = 1e3
    assert not limit.fits(["look"], 0.0)
    with pytest.raises(TimeUpError):
        limit.check()


# Another machine ----------------------------------------------------------------------------------


def test_another_machine_goes_on_and_trains_nothing_twice(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = whole(machine)
    for number in range(40):
        machine.moved_to(f"book-{number}")
        assert machine.carried(50) == 0
        if "time is up" not in capsys.readouterr().out:
            break
    assert 1 < number < 39
    trained = machine.executor.trained
    assert len(trained) == len(set(trained)) == 14
    assert machine.executor.calls.count("take_by_name") == 8
    np.testing.assert_equal(machine.results, expected)
    names = {line["name"] for line in tuned_table.lines_of(tuned_table.PACKAGED)}
    assert names == {"arm"}, "the rate that another one chose"
    assert not list(machine.archive.parent.glob(".*.part"))
    with tarfile.open(machine.archive) as archive:
        assert not [name for name in archive.getnames() if name.startswith(("runs", "trials"))]


def test_an_archive_is_left_after_an_interruption(machine: Machine) -> None:
    class Interrupted(Ticking):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if len(self.calls) == 3:
                raise KeyboardInterrupt
            return super().submit(fn, *args, **kwargs)

    machine.executor = Interrupted(machine.clock)
    assert machine.carried(1e4) == 130
    done = machine.executor.trained
    machine.moved_to("b-book")
    machine.executor = Ticking(machine.clock)
    assert machine.carried(1e4) == 0
    assert len(machine.results) == 4
    assert not set(done) & set(machine.executor.trained)


def test_a_size_leaves_runs_out_and_says_so(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.slice(50, "--archive", str(machine.archive), "--archive-limit", "0.001")
    assert (
        " more are too much for 0.001 MB and are trained again elsewhere" in capsys.readouterr().out
    )
    with tarfile.open(machine.archive) as archive:
        assert not [name for name in archive.getnames() if name.startswith("runs")]
    assert machine.slice(50, "--archive", "x.tar", "--archive-limit", "much") == 2


def begun(machine: Machine) -> bytes:
    """An archive with something of all that one can hold, left by another machine."""
    machine.executor.seconds = 10
    for _ in range(30):
        machine.carried(40)
        with tarfile.open(machine.archive) as archive:
            names = archive.getnames()
        if all(any(n.startswith(w) for n in names) for w in ("results", "trials", "runs")):
            break
    else:
        raise AssertionError(names)
    machine.moved_to("b-book")
    return machine.archive.read_bytes()


def refused(machine: Machine, data: bytes, capsys: pytest.CaptureFixture[str]) -> str:
    """Refuse an archive: one sentence, nothing measured or unpacked, and the file as it was."""
    machine.archive.write_bytes(data)
    machine.executor.calls.clear()
    capsys.readouterr()
    assert machine.carried(1000) == 2
    assert machine.executor.calls == []
    assert machine.archive.read_bytes() == data
    assert not list(Path.cwd().rglob("*.json"))
    assert not list(Path.cwd().rglob("*.safetensors"))
    said = capsys.readouterr().err
    assert said.startswith(f"error: {machine.archive}: expected ")
    assert said.endswith("; it is left as it is: name another file, or remove it\n")
    assert said.count("\n") == 1
    return said


def rewritten(data: bytes, change: Callable[[tarfile.TarInfo, bytes], bytes | None]) -> bytes:
    """The archive with members that were changed, and its own words about them unchanged."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(fileobj=out, mode="w") as new:
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            told = change(member, file.read())
            if told is not None:
                member.size = len(told) if member.isfile() else 0
                new.addfile(member, io.BytesIO(told))
    return out.getvalue()


def with_member(data: bytes, member: tarfile.TarInfo, content: bytes = b"") -> bytes:
    out = io.BytesIO(data)
    with tarfile.open(fileobj=out, mode="a") as archive:
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def test_a_damaged_archive_is_refused(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    data = begun(machine)
    for cut in (0, 100, len(data) // 2, len(data) // 3):
        refused(machine, data[:cut], capsys)
    refused(machine, b"no archive at all" * 100, capsys)
    turned = rewritten(
        data, lambda member, told: told[:-1] + b"?" if "runs" in member.name else told
    )
    assert "it is damaged" in refused(machine, turned, capsys)
    lacking = rewritten(data, lambda member, told: None if "trials" in member.name else told)
    assert "it is damaged" in refused(machine, lacking, capsys)
    bare = rewritten(data, lambda member, told: b"[]" if member.name == archives.ABOUT else told)
    refused(machine, bare, capsys)
    machine.archive.write_bytes(data)
    assert machine.carried(1e4) == 0, "what is whole is taken"


def test_a_hostile_archive_is_refused(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    data, outside = begun(machine), Path.cwd().parent / "outside.json"
    names = ("../x", "results/../../x.json", str(outside), "results/demo/results/../../x.json")
    for name in names:
        assert repr(name.lstrip()) in refused(
            machine, with_member(data, tarfile.TarInfo(name), b"{}"), capsys
        )
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
        member = tarfile.TarInfo("results/demo/results/link.json")
        member.type, member.linkname = kind, "/etc/passwd"
        assert "link.json" in refused(machine, with_member(data, member), capsys)
    twice = tarfile.TarInfo(archives.ABOUT)
    refused(machine, with_member(data, twice, b"{}"), capsys)
    assert not outside.exists()


def test_an_archive_of_another_set_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = begun(machine)

    def elsewhere(member: tarfile.TarInfo, told: bytes) -> bytes:
        if member.name != archives.ABOUT:
            return told
        about = json.loads(told)
        about["set"] = "another device with seed offset 0"
        return json.dumps(about).encode()

    assert "got form 1 of another device" in refused(machine, rewritten(data, elsewhere), capsys)
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "1000")
    refused(machine, data, capsys)


def test_what_other_code_measured_is_not_mixed_in(machine: Machine, room: Room) -> None:
    begun(machine)
    room.edit("d_model=8", "d_model=4")
    machine.executor.trained.clear()
    machine.executor.calls.clear()
    assert machine.carried(1e4) == 0
    assert machine.executor.calls.count("take_by_name") == 8
    assert len(machine.executor.trained) == 14
    assert len(list(Path("_build/runs").glob("*.safetensors"))) >= 12


def test_another_kind_of_machine_trains_anew(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(machine)
    results = sum(name.startswith("results") for name in names_in(machine.archive))
    own = archives.circumstances

    def elsewhere() -> dict[str, str]:
        return {**own(), "kind": "another kind"}

    for module in (archives, scheduler):
        monkeypatch.setattr(
            module, "environment", lambda: {"kind": "another kind", "device": "x", "versions": {}}
        )
    monkeypatch.setattr(archives, "circumstances", elsewhere)
    machine.executor.calls.clear()
    assert machine.carried(1e4) == 0
    assert machine.executor.calls.count("take_by_name") == 2 * (4 - results)
    assert results > 0


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        return opened.getnames()
