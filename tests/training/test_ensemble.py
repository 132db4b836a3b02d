"""Many seeds: each as if trained alone, from the store where it has them, on as many cores as pay."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from disturbed import Watched, steps_by_process, trainings
from measured_transformer.models.config import Config
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import ensemble, jobs, loop
from measured_transformer.training.ensemble import arrivals, train_ensemble
from measured_transformer.training.jobs import make_jobs
from measured_transformer.training.loop import train
from measured_transformer.training.processes import LocalProcesses
from measured_transformer.training.store import Store

TASK = Reversal(vocab=5, length=4)
CONFIG = Config(vocab=5, d_model=16, n_layers=1, n_heads=2, d_ff=16, dropout=0.1)
ASK = {"steps": 12, "learning_rate": 3e-3, "batch_size": 8, "evaluate_every": 5}


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    for module in (loop, ensemble, jobs):
        monkeypatch.setattr(module, "find_device", lambda: torch.device("cpu"))


@pytest.fixture
def trained(monkeypatch):
    """The seeds that are trained in this process, in order."""
    seeds, original = [], jobs.train

    def counted(*args, **options):
        seeds.append(options["seed"])
        return original(*args, **options)

    monkeypatch.setattr(jobs, "train", counted)
    return seeds


def as_alone(runs, config=CONFIG, task=TASK, **options):
    """Return whether each run has the bits of `train`."""
    for run in runs:
        other = train(config, task, seed=run.seed, **{**ASK, **options})
        pairs = zip(run.model.parameters(), other.model.parameters(), strict=True)
        if not all(torch.equal(a, b) for a, b in pairs):
            return False
        for name in ("losses", "rates", "gradient_norms", "evaluation_losses"):
            if not np.array_equal(getattr(run, name), getattr(other, name)):
                return False
    return True


def test_each_seed_gives_what_it_gives_alone(tmp_path):
    for store in (None, tmp_path, tmp_path):
        runs = train_ensemble(CONFIG, TASK, [5, 2, 5], store=store, **ASK)
        assert [run.seed for run in runs] == [5, 2, 5]
        assert as_alone(runs)
        assert all(p.grad is None for run in runs for p in run.model.parameters())


def test_an_encoder_decoder_too(tmp_path):
    task = NoisyTranslation(symbols=5, length=6, pad_share=0.4)
    config = CONFIG.replace(vocab=8, tie_embeddings=True)
    for _ in "12":
        runs = train_ensemble(config, task, [1], store=tmp_path, **ASK)
        assert as_alone(runs, config, task)


def test_only_what_is_missing_is_trained(tmp_path, trained):
    train_ensemble(CONFIG, TASK, [0, 1], store=tmp_path, **ASK)
    train_ensemble(CONFIG, TASK, [1, 2, 0], store=tmp_path, **ASK)
    assert trained == [0, 1, 2]
    train_ensemble(CONFIG, TASK, [0], store=tmp_path, **{**ASK, "steps": 13})
    train_ensemble(CONFIG, TASK, [0], store=None, **ASK)
    assert trained == [0, 1, 2, 0, 0]


def test_what_cannot_be_stored_is_trained_each_time(tmp_path, trained):
    for _ in "12":
        train_ensemble(CONFIG, TASK, [0], store=tmp_path, prepare=lambda model: None, **ASK)
    assert trained == [0, 0]


def test_the_store_of_the_book_is_found(tmp_path, monkeypatch, trained):
    monkeypatch.setenv("MEASURED_RUNS_DIR", str(tmp_path))
    train_ensemble(CONFIG, TASK, [0], **ASK)
    train_ensemble(CONFIG, TASK, [0], store=str(tmp_path), **ASK)
    assert trained == [0]


def test_wrong_options_are_refused_before_anything_is_trained(tmp_path, trained):
    with pytest.raises(ValueError, match="checkpoint_every alone"):
        train_ensemble(CONFIG, TASK, [0], store=None, checkpoint=tmp_path / "a", **ASK)
    with pytest.raises(TypeError, match="epochs"):
        train_ensemble(CONFIG, TASK, [0], store=None, epochs=3, **ASK)
    with pytest.raises(TypeError, match="learning_rate"):
        train_ensemble(CONFIG, TASK, [0], store=None, steps=3)
    with pytest.raises(ValueError, match="only 4"):
        train_ensemble(CONFIG.replace(vocab=4), TASK, [0], store=None, **ASK)
    with pytest.raises(ValueError, match="either executor or stacked"):
        train_ensemble(
            CONFIG, TASK, [0], store=None, executor=ThreadPoolExecutor(1), stacked=True, **ASK
        )
    assert not trained


def test_an_error_of_a_run_is_raised_as_it_is():
    def wrong(model):
        raise KeyError("no such part")

    with pytest.raises(KeyError, match="no such part"):
        train_ensemble(CONFIG, TASK, [0, 1], store=None, prepare=wrong, **ASK)


def test_an_interrupted_run_goes_on_from_its_last_step(tmp_path):
    traces = tmp_path / "traces"
    options = {**ASK, "schedule": Watched(str(traces), stops=1), "checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        train_ensemble(CONFIG, TASK, [4], store=tmp_path, **options)
    runs = train_ensemble(CONFIG, TASK, [4], store=tmp_path, **options)
    assert steps_by_process(traces)[os.getpid()] == [*range(8), *range(6, 12)]
    assert as_alone(runs)
    assert not list(tmp_path.glob("*.checkpoint"))


def test_a_run_that_another_trains_comes_last(tmp_path, trained):
    asked = make_jobs(CONFIG, TASK, [0, 1, 2], ASK)
    store = Store(tmp_path)
    arrived = []
    with store.locked(asked[0].key()):
        coming = arrivals(asked, store=store)
        arrived += [next(coming)[0].seed, next(coming)[0].seed]
    arrived += [job.seed for job, _ in coming]
    assert arrived == trained == [1, 2, 0]


def test_threads_of_one_process_take_turns_and_give_the_same_bits(tmp_path):
    with ThreadPoolExecutor(3) as threads:
        runs = train_ensemble(CONFIG, TASK, range(4), executor=threads, store=tmp_path, **ASK)
    assert as_alone(runs)


# --- processes --------------------------------------------------------------------------------------


def test_processes_are_used_when_there_are_cores_and_they_pay(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(4), raising=False)
    many = {**ASK, "steps": 1_000_000}

    def number(threads_of_torch, count=3, **options):
        torch.set_num_threads(threads_of_torch)
        try:
            return ensemble._processes_worth(make_jobs(CONFIG, TASK, range(count), options))
        finally:
            torch.set_num_threads(1)

    assert number(4, **many) == 3
    assert number(2, **many) == 2
    assert number(4, **many, threads=2) == 2
    assert number(1, **many) == 1, "OMP_NUM_THREADS=1 asks for one core"
    assert number(4, count=1, **many) == 1
    assert number(4, **ASK) == 1, "short runs do not pay"
    assert number(4, **many, threads=None) == 1
    assert number(4, **many, prepare=lambda model: None) == 1


def test_a_process_that_is_killed_in_a_run_costs_nothing_but_time(tmp_path):
    traces = tmp_path / "traces"
    options = {**ASK, "steps": 20, "schedule": Watched(str(traces), seconds=0.05)}
    killed = []

    def kill_one():
        while not killed:
            for process, steps in steps_by_process(traces).items():
                if steps and 3 <= steps[-1] <= 10:
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)
                    return
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    with LocalProcesses(1) as processes:
        runs = train_ensemble(
            CONFIG, TASK, [0, 1], executor=processes, store=tmp_path / "runs", **options
        )
    killer.join(timeout=1)
    assert killed
    assert [run.seed for run in runs] == [0, 1]
    assert trainings(traces) == 3, "the killed one was begun twice, the other once"
    assert as_alone(runs, steps=20)
    with pytest.raises(ProcessLookupError):
        os.kill(killed[0], 0)


SCRIPT = """
import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import ensemble
print("the script runs")
torch.set_num_threads(2)
ensemble._cores = lambda: 2
ensemble._SECONDS_TO_START = 0.0
class Own(Reversal):
    pass
def run(task):
    options = {"steps": 3, "learning_rate": 0.01, "store": None}
    runs = ensemble.train_ensemble(Config(vocab=5, d_model=16), task, [0, 1], **options)
    return [run.losses.tolist() for run in runs]
started = []
Popen = ensemble.LocalProcesses.submit
def submit(self, *args):
    started.append(1)
    return Popen(self, *args)
ensemble.LocalProcesses.submit = submit
here = run(Own(vocab=5, length=4))
assert not started, "what a script defines cannot be made in another process"
assert run(Reversal(vocab=5, length=4)) == here
assert len(started) == 2
"""


def test_a_script_without_a_guard_may_use_processes(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the script runs\n"
