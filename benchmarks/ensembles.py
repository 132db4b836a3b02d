"""Many seeds at once beside one after another: members trained per second, as a ratio."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import train
from measured_transformer.training.processes import LocalProcesses

from benchmarks.measure import Timing, Workload, in_turns

MEMBERS = (1, 4, 16, 64)
ALONE = "one after another"
_TASK = Lag(vocab=16, length=32, lag=3)
_CONFIG = Config(vocab=16, d_model=64, n_layers=2, n_heads=4)
_OPTIONS = {"steps": 10, "learning_rate": 1e-3, "batch_size": 32}


def ensemble_timings(
    members: int, *, rounds: int, seconds: float, device: str
) -> dict[str, Timing]:
    """How long so many members take, each way.

    One after another takes as many times as long as one member alone, which is what is timed of it.
    Processes are started before, as in a training that is long enough to be worth their start.
    """
    with _processes(device) as processes:
        workloads: dict[str, Workload] = {
            ALONE: lambda: train(_CONFIG, _TASK, seed=0, **_OPTIONS),
            "stacked": lambda: _train(members, stacked=True),
        }
        if processes is not None:
            name = f"{torch.get_num_threads()} processes of one thread"
            workloads[name] = lambda: _train(members, executor=processes)
        timings = in_turns(workloads, rounds=rounds, seconds=seconds, device=device)
    one = timings[ALONE]
    return {**timings, ALONE: Timing(tuple(members * each for each in one.seconds))}


def _train(members: int, **how: object) -> object:
    return train_ensemble(_CONFIG, _TASK, range(members), store=None, **_OPTIONS, **how)


@contextmanager
def _processes(device: str) -> Iterator[Executor | None]:
    if device != "cpu" or torch.get_num_threads() < 2:
        yield None
        return
    with LocalProcesses(torch.get_num_threads()) as processes:
        yield processes
