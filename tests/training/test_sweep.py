"""Sweeps: every run arrives, once, equal to training alone, whatever dies on the way."""

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor

import numpy as np
import pytest
import torch
from disturbed import Watched, steps_by_process, trainings
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import ensemble, jobs, loop
from measured_transformer.training.loop import train
from measured_transformer.training.sweep import SweepError, sweep
from measured_transformer.training.tuning import Arm

TASK = Reversal(vocab=5, length=4)
CONFIG = Config(vocab=5, d_model=16, n_layers=1, n_heads=2, d_ff=16, dropout=0.1)
ASK = {"steps": 12, "learning_rate": 3e-3, "batch_size": 8, "progress": False}
CONFIGS = {"narrow": CONFIG, "wide": Arm(CONFIG.replace(d_ff=32), {"learning_rate": 1e-2})}


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    for module in (loop, ensemble, jobs):
        monkeypatch.setattr(module, "find_device", lambda: torch.device("cpu"))


def assert_as_alone(runs, seeds, **options):
    assert set(runs) == set(CONFIGS)
    for name, each in runs.items():
        side = CONFIGS[name]
        arm = side if isinstance(side, Arm) else Arm(side)
        assert [run.seed for run in each] == list(seeds)
        for run in each:
            settings = {**ASK, **options, **arm.options}
            alone = train(arm.config, TASK, seed=run.seed, **settings)
            assert np.array_equal(run.losses, alone.losses)
            for a, b in zip(run.model.parameters(), alone.model.parameters(), strict=True):
                assert torch.equal(a, b)


class Refuses(Executor):
    """Takes no work: there must be none."""

    def submit(self, *args, **kwargs):
        raise AssertionError("nothing should be trained")


def test_every_config_is_trained_from_every_seed_and_not_again(tmp_path):
    runs = sweep(CONFIGS, [3, 1], task=TASK, store=tmp_path, **ASK)
    assert_as_alone(runs, [3, 1])
    again = sweep(CONFIGS, [1, 3], task=TASK, store=tmp_path, executor=Refuses(), **ASK)
    assert_as_alone(again, [1, 3])


def test_a_bar_shows_how_many_runs_have_arrived(tmp_path, capsys):
    sweep(CONFIGS, [0], task=TASK, store=tmp_path, **{**ASK, "progress": True})
    assert "2/2" in capsys.readouterr().err


def no_such_part(model):
    raise KeyError("no such part")


def test_a_failed_run_is_named_and_the_others_arrive(tmp_path):
    configs = {"broken": Arm(CONFIG, {"prepare": no_such_part}), **CONFIGS}
    with pytest.raises(SweepError) as failed:
        sweep(configs, [0, 1], task=TASK, store=tmp_path, **ASK)
    told = str(failed.value)
    assert "2 of 6 runs failed" in told
    assert "'broken' from seed 1: KeyError: 'no such part'" in told
    assert str(tmp_path) in told
    assert set(failed.value.errors) == {("broken", 0), ("broken", 1)}
    assert {name: list(each) for name, each in failed.value.runs.items()} == {
        "broken": [],
        "narrow": [0, 1],
        "wide": [0, 1],
    }
    assert_as_alone(
        sweep(CONFIGS, [0, 1], task=TASK, store=tmp_path, executor=Refuses(), **ASK), [0, 1]
    )


def test_wrong_settings_stop_a_sweep_before_it_begins(tmp_path):
    with pytest.raises(TypeError, match="learning_rate"):
        sweep(CONFIGS, [0], task=TASK, store=tmp_path, steps=3, progress=False)
    assert not list(tmp_path.iterdir())


def test_what_breaks_a_pool_is_found_and_everything_else_arrives(tmp_path):
    traces = [tmp_path / name for name in ("once", "always")]
    configs = {
        "dies once": Arm(CONFIG, {"schedule": Watched(str(traces[0]), deaths=1)}),
        "dies always": Arm(CONFIG, {"schedule": Watched(str(traces[1]), deaths=9)}),
        **CONFIGS,
    }
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(1, mp_context=context) as pool,
        pytest.raises(SweepError, match="1 of 4 runs failed") as failed,
    ):
        sweep(configs, [0], task=TASK, store=tmp_path / "runs", executor=pool, **ASK)
    assert set(failed.value.errors) == {("dies always", 0)}
    assert "in the middle of a run" in str(failed.value)
    runs = {name: list(each.values()) for name, each in failed.value.runs.items()}
    assert np.array_equal(runs.pop("dies once")[0].losses, runs["narrow"][0].losses)
    assert runs.pop("dies always") == []
    assert_as_alone(runs, [0])


def test_a_cluster_whose_worker_is_killed_half_way_loses_nothing(tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
    traces, seeds = tmp_path / "traces", [0, 1]
    options = {**ASK, "steps": 30, "schedule": Watched(str(traces), seconds=0.05)}
    killed = []

    def kill_one():
        while not killed:
            for process, steps in steps_by_process(traces).items():
                if steps and 5 <= steps[-1] <= 15:  # of 30: in the middle of a run
                    os.kill(process, signal.SIGKILL)
                    killed.append((process, steps[-1]))
                    return
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one, daemon=True)
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = set(client.run(os.getpid).values())
        assert len(workers) == 2
        killer.start()
        executor = client.get_executor()
        runs = sweep(
            CONFIGS, seeds, task=TASK, store=tmp_path / "runs", executor=executor, **options
        )
    killer.join(timeout=1)
    assert killed[0][0] in workers
    steps = steps_by_process(traces)
    assert steps[killed[0][0]][-1] < 29, "the killed worker's last run was not finished"
    assert trainings(traces) == 5, "four runs, and the one that was cut off once more"
    assert sum(each.count(29) for each in steps.values()) == 4, "each was finished once"
    again = sweep(CONFIGS, seeds, task=TASK, store=tmp_path / "runs", executor=Refuses(), **options)
    assert trainings(traces) == 5
    for found in (runs, again):
        assert_as_alone(found, seeds, steps=30)
