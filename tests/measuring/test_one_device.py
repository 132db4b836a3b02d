"""Several processes drive one device: what they get, in which order, and what becomes of those that die."""

import inspect
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
import torch
from demo_room import Inline, Room
from fake_cuda import FakeCuda, fake_cuda
from measured_book.evidence import results
from measured_book.evidence.results import read_result
from measured_book.measuring import trials, work
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.progress import Progress
from measured_book.measuring.scheduler import Report, measure_all
from measured_book.measuring.trials import header_of, stored_key, train_stack
from measured_transformer.training import ensemble, tuned_table, tuning
from measured_transformer.training.jobs import Job
from measured_transformer.training.processes import ProcessDiedError
from measured_transformer.training.store import Store
from test_interrupted import Process, until

ROOM = '''
"""What this chapter measures."""

from measured_book.measuring import Search, job, measurement, tuned
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_heads=2, n_layers=1)
DROPPED = Config(vocab=4, d_model=8, n_heads=2, n_layers=1, dropout=0.1)


def short(seed):
    return {"it": job(CONFIG, TASK, seed, steps=3, learning_rate=0.01)}


def both(seed):
    return {**short(seed), "long": job(CONFIG, TASK, seed, steps=6, learning_rate=0.01)}


def dropped(seed):
    return {"it": job(DROPPED, TASK, seed, steps=5, learning_rate=0.01)}


def chosen(seed):
    search = Search("arm", CONFIG, TASK, (1e-2, 1e-1, 3e-1), [1, 11], 2)
    return {"it": job(CONFIG, TASK, seed, steps=4, learning_rate=tuned(search))}


@measurement(seeds=2, trainings=both)
def first(seed, runs):
    return {"loss": runs["long"].losses[-1] - runs["it"].losses[-1]}


@measurement(seeds=2, trainings=dropped)
def alone(seed, runs):
    return {"loss": runs["it"].losses[-1]}


@measurement(seeds=2, trainings=chosen)
def third(seed, runs):
    return {"rate": runs["it"].rates[0]}


@measurement(seeds=4, trainings=short)
def four(seed, runs):
    return {"loss": runs["it"].losses[-1]}
'''
Stack = tuple[int, list[int]]


class Queue(Executor):
    """Holds what it is given, and does one call whenever somebody waits.

    Attributes:
        stacks: steps and seeds of the stacks that it was given, in their order.
        under_way: how many stacks it held whenever somebody waited.
        beside: for each of them, how many others it held when it came.
        looks: how many calls looked.
    """

    def __init__(self, fails: Callable[[Stack], Exception | None] = lambda _: None) -> None:
        self.stacks: list[Stack] = []
        self.under_way: list[int] = []
        self.beside: list[int] = []
        self.looks = 0
        self._fails = fails
        self._held: list[tuple[Future[Any], Callable[[], Any], Stack | None]] = []

    @property
    def held(self) -> int:
        return sum(stack is not None for *_, stack in self._held)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future, stack = Future[Any](), None
        if fn is train_stack:
            stack = (args[0][0].settings["steps"], [job.seed for job in args[0]])
            self.beside.append(self.held)
            self.stacks.append(stack)
        else:
            assert fn.__name__ == "take_by_name"
            self.looks += 1
        self._held.append((future, lambda: fn(*args, **kwargs), stack))
        return future

    def wait(self, futures: Any, timeout: float | None, how: str) -> tuple[set[Any], set[Any]]:
        """As `concurrent.futures.wait`."""
        self.under_way.append(self.held)
        future, call, stack = self._held.pop(0)
        error = None if stack is None else self._fails(stack)
        if error is not None:
            future.set_exception(error)
        elif future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except Exception as caught:
                future.set_exception(caught)
        done = {one for one in futures if one.done()}
        return done, set(futures) - done


@pytest.fixture
def on_device(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Report]]:
    """Measures on the fake device, in two processes that a `Queue` stands for."""
    for module in (tuned_table, tuning):
        monkeypatch.setattr(module, "PACKAGED", tmp_path / "tuned.jsonl")
    room.write(ROOM)
    monkeypatch.setenv("MEASURED_DEVICE", "cuda")
    monkeypatch.setenv("MEASURED_DEVICE_PROCESSES", "2")

    def measured(queue: Queue, *names: str) -> Report:
        monkeypatch.setattr(work.Workers, "_own", lambda self: queue)
        monkeypatch.setattr(work, "wait", queue.wait)
        found = measurements_of("demo")
        wanted = [found[name] for name in names]
        return measure_all(wanted, progress="nothing", say=lambda _: None)

    with fake_cuda():
        yield measured


def job_of(name: str, seed: int, training: str = "it") -> Job:
    found: Job = measurements_of("demo")[name].jobs(seed)[training]
    return found


def test_several_stacks_are_under_way_searches_first_then_the_longest(on_device):
    queue = Queue()
    report = on_device(queue, "first", "alone", "third")
    assert sorted(report.written) == ["demo.alone", "demo.first", "demo.third"]
    assert queue.stacks[:3] == [(2, [1, 11])] * 3
    assert queue.stacks[3] == (6, [0, 10])
    assert sorted(queue.stacks[4:]) == [(3, [0, 10]), (4, [0, 10]), (5, [0]), (5, [10])]
    assert queue.under_way[0] == 4  # each process has its next one at hand
    assert queue.looks == 6


def test_looks_leave_half_of_what_is_under_way_to_the_device(on_device):
    on_device(Queue(), "alone", "four")
    for one in ("alone", "four"):
        (results.results_folder("demo") / f"{one}.json").unlink()
    queue, counts = Queue(), list[int]()
    kept = queue.wait

    def counted(*given: Any) -> Any:
        counts.append(len(queue._held) - queue.held)
        return kept(*given)

    queue.wait = counted  # type: ignore[method-assign]
    assert len(on_device(queue, "alone", "four", "first").written) == 3
    assert counts[0] == 2  # of four
    assert queue.stacks == [(6, [0, 10])]


def test_what_is_stored_is_as_before(on_device, room: Room):
    on_device(Queue(), "first", "alone")
    store = Store(Path("_build/runs"))
    for seed in (0, 10):
        for training in ("it", "long"):
            job = job_of("first", seed, training)
            assert stored_key(job, store) == job.key(stacked=True)
            told = header_of(job, store)
            assert told["seconds"] > 0
            assert told["asked"]["stacked"] is True
        single = job_of("alone", seed)
        assert stored_key(single, store) == single.key()
    provenance = read_result(room.results / "first.json").provenance
    assert provenance["kind"] == "cuda Fake CUDA"


def test_what_dies_once_is_tried_again_with_the_device_for_itself(on_device):
    deaths = [ProcessDiedError("killed")]
    queue = Queue(lambda stack: deaths.pop() if deaths and stack[0] == 6 else None)
    assert not on_device(queue, "first", "alone").failed
    assert queue.stacks[0] == queue.stacks[-1] == (6, [0, 10])
    assert queue.beside[-1] == 0


@pytest.mark.parametrize("error", [ProcessDiedError("killed"), MemoryError("too little")])
def test_what_dies_again_is_split_until_the_one_that_kills_stands_alone(on_device, error):
    queue = Queue(lambda stack: error if 10 in stack[1] else None)
    report = on_device(queue, "four")
    words = [seeds for _, seeds in queue.stacks]
    whole = [0, 10, 20, 30]
    assert words == [whole, whole, [0, 10], [20, 30], [0], [10]]
    assert queue.beside == [0] * 6
    said = report.failed["demo.four"]
    assert f"1 of 4 seeds failed (seed 10: TrainingError: {type(error).__name__}: " in said
    assert queue.looks == 3


def test_one_that_fails_does_not_take_the_others(on_device, monkeypatch: pytest.MonkeyPatch):
    kept = trials.arrivals

    def fails(jobs: Any, **more: Any) -> Any:
        for job, run in kept(jobs, **more):
            yield job, ArithmeticError("a bad one") if job.seed == 10 else run

    monkeypatch.setattr(trials, "arrivals", fails)
    queue = Queue()
    report = on_device(queue, "four")
    said = report.failed["demo.four"]
    assert "1 of 4 seeds failed (seed 10: TrainingError: ArithmeticError: a bad one)" in said
    assert (len(queue.stacks), queue.looks) == (1, 3)


def test_what_nobody_wants_any_more_is_not_trained(on_device, room: Room):
    one = measurements_of("demo")["four"]
    refused = [ValueError("of another form")]
    asked = [
        work.Wanted(one, seed, one.settings(), one.code().whole, refused=refused if seed else [])
        for seed in (0, 10)
    ]
    queue = Queue()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work.Workers, "_own", lambda self: queue)
        patch.setattr(work, "wait", queue.wait)
        with Progress("nothing") as shown, work.Workers(None, shown) as workers:
            found = workers.outcomes(asked, Store(Path("_build/runs")))
            outcomes = {wanted.seed: outcome for wanted, outcome in found}
    assert queue.stacks == [(3, [0])]
    assert outcomes[10] is refused[0]
    assert not isinstance(outcomes[0], Exception)


def test_an_executor_that_is_given_trains_one_by_one(on_device, inline: Inline):
    one = measurements_of("demo")["first"]
    measure_all([one], executor=inline, progress="nothing", say=lambda _: None)
    assert set(inline.calls) == {"train_one", "take_by_name"}


def test_where_a_given_executor_breaks_the_device_goes_on(on_device, monkeypatch):
    from concurrent.futures import BrokenExecutor

    class Broken(Executor):
        _max_workers = 1

        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            raise BrokenExecutor("gone")

    inline = Inline()
    monkeypatch.setattr(work.Workers, "_own", lambda self: inline)
    one = measurements_of("demo")["first"]
    report = measure_all([one], executor=Broken(), progress="nothing", say=lambda _: None)
    assert report.written == ["demo.first"]
    assert set(inline.calls) == {"train_one", "train_stack", "take_by_name"}


def test_no_processes_at_all_are_refused(on_device, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MEASURED_DEVICE_PROCESSES", "none")
    with pytest.raises(ValueError, match="MEASURED_DEVICE_PROCESSES"):
        work.Workers(None, Progress("nothing"))


# One stack ----------------------------------------------------------------------------------------


def test_memory_that_is_short_keeps_what_found_some(on_device, monkeypatch: pytest.MonkeyPatch):
    kept = ensemble.train_stacked

    def short(config: Any, task: Any, seeds: Any, **options: Any) -> Any:
        if len(seeds) > 1 or 10 in seeds:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return kept(config, task, seeds, **options)

    monkeypatch.setattr(ensemble, "train_stacked", short)
    jobs, store = [job_of("four", seed) for seed in (0, 10)], Store(Path("_build/runs"))
    with pytest.raises(MemoryError, match="out of memory"):
        train_stack(jobs, store)
    assert [stored_key(job, store) is not None for job in jobs] == [True, False]


def test_a_process_that_lost_its_device_ends(on_device, monkeypatch: pytest.MonkeyPatch, capsys):
    def lost(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    class Ended(BaseException):
        pass

    def end(status: int) -> None:
        raise Ended

    monkeypatch.setattr(ensemble, "train_stacked", lost)
    monkeypatch.setattr(trials.os, "_exit", end)
    with pytest.raises(Ended):
        train_stack([job_of("four", seed) for seed in (0, 10)], Store(Path("_build/runs")))
    assert "ends itself: RuntimeError: CUDA error: an illegal" in capsys.readouterr().err


# In processes, each of which sees the fake device -------------------------------------------------

SLOW = '''
"""What this chapter measures, slowly."""

import os
import time
from pathlib import Path

from measured_book.measuring import job, measurement
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal

TASK = Reversal(vocab=4, length=4)


def prepare(model):
    Path(os.environ["TRACES"], f"train-{os.getpid()}-{time.time_ns()}").touch()
    time.sleep(0.2)


def trainings(seed):
    config = Config(vocab=4, d_model=8, n_heads=2, n_layers=1)
    return {
        steps: job(config, TASK, seed, steps=steps, learning_rate=0.01, prepare=prepare)
        for steps in range(2, 8)
    }


@measurement(seeds=2, trainings=trainings)
def losses(seed, runs):
    return {"loss": runs[2].losses[-1]}
'''
SITE = """
import sys
sys.path.append({tests!r})
import fake_cuda
everywhere = fake_cuda.fake_cuda()
everywhere.__enter__()
"""


@pytest.mark.usefixtures("heeded")
@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks at processes as Linux has them"
)
def test_an_interruption_ends_the_processes_and_keeps_what_is_done(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import test_interrupted

    tests = str(Path(inspect.getfile(FakeCuda)).parent)
    monkeypatch.setattr(
        test_interrupted, "SITE", test_interrupted.SITE + SITE.replace("{tests!r}", repr(tests))
    )
    monkeypatch.setenv("MEASURED_DEVICE", "cuda")
    monkeypatch.setenv("MEASURED_DEVICE_PROCESSES", "2")
    room.write(SLOW)
    runs = Path("_build/runs")
    first = Process(room, tmp_path)
    until(lambda: list(runs.glob("*.safetensors")))
    os.kill(first.process.pid, signal.SIGINT)
    status, told = first.end()
    assert status == 130, told
    until(lambda: not first.workers(), 20)
    done = len(list(runs.glob("*.safetensors")))
    assert 1 <= done < 12
    assert not room.results.exists()
    before = len(list(first.traces.glob("train-*")))
    status, told = Process(room, tmp_path).end()
    assert status == 0, told
    # a model of a run that is there is prepared once, when it is read; of one that is not, also before
    # it is trained; each of the first seed twice more for the fingerprint, in processes of its own
    assert len(list(runs.glob("*.safetensors"))) == 12
    processes = {path.name.split("-")[1] for path in list(first.traces.glob("train-*"))[before:]}
    assert len(processes) <= 2 + 2 + 2
    assert read_result(room.results / "losses.json").provenance["kind"] == "cuda Fake CUDA"
