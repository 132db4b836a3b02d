"""The pool: what several measurements ask for is done once, together, in a good order, on any machine."""

import json
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

import pytest
from demo_room import Inline, Room
from fake_cuda import fake_cuda
from measured_book.evidence.results import read_result
from measured_book.measuring import __main__ as command
from measured_book.measuring import trials, work
from measured_book.measuring.attesting import attest, keep_fingerprints
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.progress import Progress
from measured_book.measuring.repeating import repeat
from measured_book.measuring.scheduler import Report, measure, measure_all
from measured_book.measuring.trials import header_of
from measured_transformer.training import ensemble, jobs, tuned_table, tuning
from measured_transformer.training.processes import ProcessDiedError
from measured_transformer.training.store import Store
from safetensors import SafetensorError

TWO = '''
"""What this chapter measures."""

from measured_book.measuring import Search, job, measurement, tuned
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_heads=2, n_layers=1)
RATES = (1e-2, 1e-1, 3e-1)


def short(seed):
    return {"short": job(CONFIG, TASK, seed, steps=3, learning_rate=0.01)}


def both(seed):
    return {**short(seed), "long": job(CONFIG, TASK, seed, steps=6, learning_rate=0.01)}


def chosen(seed):
    search = Search("arm", CONFIG, TASK, RATES, [1, 11], 2)
    return {"it": job(CONFIG, TASK, seed, steps=3, learning_rate=tuned(search))}


@measurement(seeds=2, trainings=short)
def first(seed, runs):
    """The short ones."""
    return {"loss": runs["short"].losses[-1]}


@measurement(seeds=2, trainings=both)
def second(seed, runs):
    """Both."""
    return {"loss": runs["long"].losses[-1] - runs["short"].losses[-1]}


@measurement(seeds=2, trainings=chosen)
def third(seed, runs):
    """At a rate that is chosen first."""
    return {"rate": runs["it"].rates[0]}
'''


class OneByOne(Inline):
    """Has one place; tells in `done` what it did, trainings by their steps."""

    _max_workers = 0.5  # the pool has two calls under way for each worker

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        steps = args[0].settings["steps"] if fn.__name__ == "train_one" else ""
        self.done.append(f"{fn.__name__}{steps}")
        return super().submit(fn, *args, **kwargs)


@pytest.fixture
def two(room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    for module in (tuned_table, tuning):
        monkeypatch.setattr(module, "PACKAGED", tmp_path / "tuned.jsonl")
    room.write(TWO)
    return room


def run(room: Room, executor: Any, *names: str, **options: Any) -> Report:
    found = measurements_of(room.name)
    wanted = [found[name] for name in names or ("first", "second")]
    return measure_all(wanted, executor=executor, progress="nothing", say=lambda _: None, **options)


def test_all_trainings_are_one_pool_the_longest_first_and_looks_do_not_wait(two: Room) -> None:
    executor = OneByOne()
    assert sorted(run(two, executor).written) == ["demo.first", "demo.second"]
    trained = [one for one in executor.done if one.startswith("train")]
    assert trained == ["train_one6", "train_one6", "train_one3", "train_one3"]
    assert executor.done.count("take_by_name") == 4
    last = max(i for i, one in enumerate(executor.done) if one.startswith("train"))
    assert executor.done.index("take_by_name") < last  # a seed is looked at as soon as it is ready


def test_what_a_run_took_is_in_the_store_and_in_the_result(two: Room, inline: Inline) -> None:
    run(two, inline)
    store = Store(Path("_build/runs"))
    one = measurements_of("demo")["second"]
    took = [header_of(job, store)["seconds"] for seed in (0, 10) for job in one.jobs(seed).values()]
    assert min(took) > 0
    told = read_result(two.results / "second.json").provenance
    assert told["seconds"] >= round(sum(took), 1) - 0.1


def test_a_search_is_made_in_the_pool_and_kept(two: Room, tmp_path: Path) -> None:
    table = tmp_path / "tuned.jsonl"
    executor = OneByOne()
    assert run(two, executor, "third").written == ["demo.third"]
    assert executor.done.count("train_one2") == 6
    assert executor.done.count("train_one3") == 2
    assert len(table.read_text().splitlines()) == 1
    again = OneByOne()
    run(two, again, "third", renew=True)
    assert again.done == ["take_by_name"] * 2


LOOKS_FOR_A_RATE = """

from measured_transformer.training.tuning import search_losses


def loss(rate, seed):
    return abs(rate - 0.01) + seed


@measurement(seeds=2)
def fourth(seed):
    \"\"\"At a rate that is chosen while it looks.\"\"\"
    found = search_losses("own", {"steps": 1}, [loss], loss, rates=RATES, seeds=[1])
    return {"rate": min(found, key=found.get)}
"""


def test_a_rate_that_is_chosen_while_looking_comes_into_the_table_and_no_other(
    two: Room, tmp_path: Path, inline: Inline
) -> None:
    two.write(TWO + LOOKS_FOR_A_RATE)
    old = {"name": "old", "asked": "0", "code": "0", "best": {"old": 0.1}, "losses": {}}
    here = Path("_build/tuned.jsonl")
    here.parent.mkdir(exist_ok=True)
    here.write_text(json.dumps(old) + "\n")
    assert run(two, inline, "fourth").written == ["demo.fourth"]
    (line,) = map(json.loads, (tmp_path / "tuned.jsonl").read_text().splitlines())
    assert line["best"] == {"own": 0.01}


def test_a_search_that_fails_fails_what_waits_for_it_alone(two: Room) -> None:
    two.edit("RATES = (1e-2, 1e-1, 3e-1)", "RATES = (1e20, 1e21)")
    report = run(two, OneByOne(), "first", "third")
    assert report.written == ["demo.first"]
    assert "no learning rate for arm" in report.failed["demo.third"]
    assert "diverged" in report.failed["demo.third"]


def test_measuring_again_takes_the_rate_that_was_chosen_and_writes_nothing(
    two: Room, tmp_path: Path
) -> None:
    run(two, OneByOne(), "third")
    table = tmp_path / "tuned.jsonl"
    (line,) = map(json.loads, table.read_text().splitlines())
    best = line["best"]["arm"]
    assert best in (1e-2, 1e-1, 3e-1)
    line["code"] = "0" * 64  # as if other code had made the choice
    table.write_text(json.dumps(line) + "\n")
    keep_fingerprints([two.measurement("third")], executor=OneByOne(), say=lambda _: None)
    line["code"] = "1" * 64
    table.write_text(json.dumps(line) + "\n")
    before = table.read_bytes()
    executor = OneByOne()
    (item,) = repeat([two.measurement("third")], executor=executor, say=lambda _: None).items
    assert item.passed
    assert executor.done == ["take_by_label", "train_one3", "take_by_name"]
    assert table.read_bytes() == before
    table.write_text("")
    (item,) = repeat([two.measurement("third")], executor=executor, say=lambda _: None).items
    assert "NotTunedError: expected the learning rate of arm in the table" in item.problem


def test_what_is_attested_attests_its_choice_of_a_rate(two: Room, tmp_path: Path) -> None:
    run(two, OneByOne(), "third")
    keep_fingerprints([two.measurement("third")], executor=OneByOne(), say=lambda _: None)
    table = tmp_path / "tuned.jsonl"
    (before,) = map(json.loads, table.read_text().splitlines())
    table.write_text(json.dumps({**before, "code": "0" * 64}) + "\n")
    two.edit('runs["it"].rates[0]', 'runs["it"].rates[:1][0]')
    executor = OneByOne()
    (item,) = attest([two.measurement("third")], executor=executor, say=lambda _: None)
    assert not item.problem
    assert executor.done == ["take_by_label"]
    assert json.loads(table.read_text()) == before


def test_a_reader_measures_without_a_table_of_his_own(
    two: Room, tmp_path: Path, inline: Inline
) -> None:
    data = measure(two.measurement("third"), seeds=2, executor=inline, progress=False)
    assert len(set(data.rate.values.tolist())) == 1
    assert not (tmp_path / "tuned.jsonl").exists()


def test_a_choice_that_cannot_be_kept_is_used_all_the_same(
    two: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tuning, "add_lines", full)
    said: list[str] = []
    one = measurements_of("demo")["third"]
    report = measure_all([one], executor=OneByOne(), progress="nothing", say=said.append)
    assert report.written == ["demo.third"]
    assert any("learning rate of arm cannot be kept: " in line for line in said)


def test_a_training_that_fails_is_tried_once_and_named(
    two: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = jobs.train

    def fails(config: Any, task: Any, *, seed: int, steps: int, **options: Any) -> Any:
        if (seed, steps) == (10, 6):
            raise ArithmeticError("a bad one")
        return kept(config, task, seed=seed, steps=steps, **options)

    monkeypatch.setattr(jobs, "train", fails)
    executor = OneByOne()
    report = run(two, executor)
    assert report.written == ["demo.first"]
    said = report.failed["demo.second"]
    assert "1 of 2 seeds failed (seed 10: " in said
    assert "TrainingError: ArithmeticError: a bad one" in said
    assert executor.done.count("train_one6") == 2
    assert executor.done.count("take_by_name") == 3


class Dies(Inline):
    """Breaks at the first calls."""

    def __init__(self, error: type[Exception], times: int) -> None:
        super().__init__()
        self.error, self.times = error, times

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if len(self.calls) < self.times:
            self.calls.append(fn.__name__)
            future: Future[Any] = Future()
            future.set_exception(self.error("killed"))
            return future
        return super().submit(fn, *args, **kwargs)


def test_what_dies_with_its_process_is_tried_once_more(two: Room) -> None:
    executor = Dies(ProcessDiedError, 1)
    assert run(two, executor, "first").written == ["demo.first"]
    report = run(two, Dies(ProcessDiedError, 100), "second")
    assert "ProcessDiedError: killed" in report.failed["demo.second"]


def test_where_an_executor_breaks_this_machine_goes_on(
    two: Room, monkeypatch: pytest.MonkeyPatch, inline: Inline
) -> None:
    monkeypatch.setattr(work.Workers, "_own", lambda self: inline)
    executor = Dies(BrokenExecutor, 100)
    assert run(two, executor, "first").written == ["demo.first"]
    assert inline.calls.count("train_one") == 2


class Changes(Inline):
    """Has a file changed as soon as something was looked at."""

    def __init__(self, change: Callable[[], None]) -> None:
        super().__init__()
        self.change = change

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        if fn.__name__ == "take_by_name":
            self.change()
        return future


def test_values_of_code_that_is_changed_meanwhile_are_not_kept(two: Room) -> None:
    def change() -> None:
        two.file.write_text(TWO.replace('runs["short"].losses[-1]}', 'runs["short"].losses[0]}'))

    report = run(two, Changes(change), "first")
    assert "was changed" in report.failed["demo.first"]
    assert not two.results.exists()
    assert not list(Path("_build/measuring/demo.first").rglob("*.json"))


def test_a_worker_with_other_code_refuses(two: Room) -> None:
    one = measurements_of("demo")["first"]
    asked = [work.Wanted(one, 0, one.settings(), "0" * 64)]
    with Progress("nothing") as shown, work.Workers(OneByOne(), shown) as workers:
        ((_, error),) = workers.outcomes(asked, Store(Path("_build/runs")))
    assert isinstance(error, trials.OtherCodeError)
    assert "expected the code of demo.first as it was" in str(error)


def test_on_an_accelerator_nothing_is_trained_twice(
    two: Room, monkeypatch: pytest.MonkeyPatch, inline: Inline
) -> None:
    monkeypatch.setattr(work.Workers, "_own", lambda self: inline)
    stacks: list[tuple[int, int]] = []
    kept = ensemble.train_stacked

    def counted(config: Any, task: Any, seeds: Any, **options: Any) -> Any:
        stacks.append((options["steps"], len(seeds)))
        return kept(config, task, seeds, **options)

    def alone(*args: Any, **options: Any) -> Any:
        raise AssertionError("trained alone")

    monkeypatch.setattr(ensemble, "train_stacked", counted)
    monkeypatch.setattr(jobs, "train", alone)
    monkeypatch.setenv("MEASURED_DEVICE", "cuda")
    with fake_cuda():
        report = run(two, None)
        assert not report.failed
        assert sorted(stacks) == [(3, 2), (6, 2)]
        assert set(inline.calls) == {"train_stack", "take_by_name"}
        told = read_result(two.results / "second.json").provenance
        assert told["kind"] == "cuda Fake CUDA"
        assert run(two, None, renew=True).written == ["demo.first", "demo.second"]
    assert len(stacks) == 2


def test_a_full_disk_or_no_folder_at_all_costs_what_is_kept_on_the_way_alone(
    two: Room, inline: Inline
) -> None:
    Path("_build").write_text("no folder can be made here")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        report = run(two, inline)
    assert sorted(report.written) == ["demo.first", "demo.second"]
    assert any("not locked" in str(one.message) for one in said)


@pytest.mark.parametrize("error", [OSError, SafetensorError])
def test_a_checkpoint_that_cannot_be_written_stops_no_training(
    two: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    from measured_transformer.training import loop

    def full(*_: object) -> None:
        raise error("No space left on device")

    monkeypatch.setattr(trials, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(loop, "write_checkpoint", full)
    assert not run(two, inline, "first").failed


def test_a_damaged_checkpoint_is_begun_anew(
    two: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "CHECKPOINT_EVERY", 1)
    job = measurements_of("demo")["first"].jobs(0)["short"]
    file = Path("_build/runs", f"{job.key()}.checkpoint")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"half")
    assert not run(two, inline, "first").failed
    assert not list(file.parent.glob("*.checkpoint"))


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_measures(two: Room, capsys: pytest.CaptureFixture[str]) -> None:
    distributed = pytest.importorskip("dask.distributed")
    with distributed.LocalCluster(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None
    ) as made:
        status = command.main(["demo", "--cluster", made.scheduler_address])
        told = capsys.readouterr()
    assert status == 0, told
    assert sorted(path.stem for path in two.results.iterdir()) == ["first", "second", "third"]


def test_a_cluster_that_is_not_there_is_named(
    two: Room, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("dask.distributed")
    assert command.main(["demo", "--cluster", "nonsense://"]) == 2
    assert "expected a dask scheduler at nonsense://, got" in capsys.readouterr().err
