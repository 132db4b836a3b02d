"""One trial: what a measurement gives for one seed. Processes do them, interruptions leave them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from measured_transformer.evidence.results import pack, unpack, write_whole
from measured_transformer.measuring.measurement import Measurement, Variables, measurements_of
from measured_transformer.training.device import cpu_threads
from measured_transformer.training.jobs import Job, perform
from measured_transformer.training.store import Store

OPENING = 20
"""How many first steps of a training are kept, so that a repeat can compare their losses."""


@dataclass(frozen=True)
class Trial:
    """What a measurement gave for one seed.

    Attributes:
        seed: the seed.
        variables: name -> (axes, values).
        openings: training -> the losses of its first steps.
        seconds: how long it took, trainings that were not there yet included.
    """

    seed: int
    variables: Variables
    openings: Mapping[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0


def train_one(job: Job, store: Store) -> float:
    """Have the store hold a run; gives the seconds that its training took. What a worker process does."""
    start = time.perf_counter()
    perform(job, store)
    return time.perf_counter() - start


def take(measurement: Measurement, seed: int, settings: Mapping[str, Any], store: Store) -> Trial:
    """Measure from one seed, in one thread; runs that the store does not hold are trained first.

    Raises:
        ValueError: as the measurement, and where it gives what is no named array.
    """
    start = time.perf_counter()
    with cpu_threads(1):
        runs = {
            name: job.obtained(store) for name, job in measurement.jobs(seed, **settings).items()
        }
        arguments = [seed] if measurement.trainings is None else [seed, runs]
        given = measurement.look(*arguments, **settings)
    openings = {name_of(name): run.losses[:OPENING].tolist() for name, run in runs.items()}
    variables = measurement.variables(given)
    return Trial(seed, variables, openings, time.perf_counter() - start)


def take_by_name(
    room: str, name: str, seed: int, settings: Mapping[str, Any], store: Store
) -> Trial:
    """The same for a measurement of a room, which a worker process finds by its name."""
    return take(measurements_of(room)[name], seed, settings, store)


def open_one(job: Job) -> list[float]:
    """The losses of the first steps of a training."""
    steps = min(OPENING, job.settings["steps"])
    settings = {**job.settings, "steps": steps, "evaluate_every": None}
    with cpu_threads(1):
        return replace(job, settings=settings).train().losses.tolist()


def name_of(training: Any) -> str:
    """The name of a training in a file: its parts joined by slashes."""
    parts = training if isinstance(training, tuple) else (training,)
    return "/".join(str(part) for part in parts)


# On disk ------------------------------------------------------------------------------------------


def write_trial(trial: Trial, path: Path) -> None:
    """Keep a trial: the whole file or nothing."""
    told = {
        "seed": trial.seed,
        "variables": {
            n: {"axes": list(axes), **pack(v)} for n, (axes, v) in trial.variables.items()
        },
        "openings": {name: list(map(str, losses)) for name, losses in trial.openings.items()},
        "seconds": trial.seconds,
    }
    text = json.dumps(told)
    write_whole(path, f"{_sum(text)}\n{text}\n")


def read_trial(path: Path) -> Trial | None:
    """The trial in a file; None where there is none, or a damaged one: it is measured again."""
    try:
        checksum, text = path.read_text("utf-8").split("\n", 1)
        if checksum != _sum(text.strip()):
            return None
        told = json.loads(text)
    except (OSError, ValueError):
        return None
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        name: (tuple(one["axes"]), unpack(one)) for name, one in told["variables"].items()
    }
    openings = {name: [float(x) for x in losses] for name, losses in told["openings"].items()}
    return Trial(told["seed"], variables, openings, told["seconds"])


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
