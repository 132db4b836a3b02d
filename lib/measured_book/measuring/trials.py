"""One trial: what a measurement gives for one seed. Processes do them, interruptions leave them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from measured_transformer.parts.kernels.linear import linear_kernel
from measured_transformer.training.checkpoints import read_tensors
from measured_transformer.training.device import circumstances, cpu_threads, find_device
from measured_transformer.training.ensemble import arrivals
from measured_transformer.training.folders import write_whole
from measured_transformer.training.jobs import Job, perform
from measured_transformer.training.loop import Run
from measured_transformer.training.store import Store
from safetensors import SafetensorError

from measured_book.evidence.results import pack, unpack
from measured_book.measuring.fingerprints import ALONE, name_of, opening
from measured_book.measuring.jobs import kept_choices
from measured_book.measuring.measurement import Measurement, Variables, measurements_of

Jobs = Mapping[Any, Job]
OPENING = 20
"""How many first steps of a training are kept, so that a repeat can compare their losses."""
CHECKPOINT_EVERY = 1000
"""After how many steps the state of a long training is kept, to go on from after an interruption."""


class OtherCodeError(RuntimeError):
    """Code that is another one than that which was to be measured: changed meanwhile, or on that machine."""


@dataclass(frozen=True)
class Trial:
    """What a measurement gave for one seed.

    Attributes:
        seed: the seed.
        variables: name -> (axes, values).
        openings: training -> the losses of its first steps.
        seconds: how long it took, its trainings included, whenever that was.
        kinds: of the machines that it was trained or, where nothing was, looked at on.
    """

    seed: int
    variables: Variables
    openings: Mapping[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    kinds: tuple[str, ...] = ()


# What worker processes do -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TimedJob(Job):
    """A job whose stored run says how many seconds its training took.

    Attributes:
        share: how many runs are trained at once with it, and share the time, where they are stacked.
        began: when its training began.
    """

    share: int = 1
    began: list[float] = field(default_factory=lambda: [time.perf_counter()])

    def train(self, checkpoint: Path | None = None) -> Run:
        """Train it, and know when that began."""
        self.began[:] = [time.perf_counter()]
        return super().train(checkpoint)

    def about(self, key: str | None, *, stacked: bool = False) -> dict[str, Any]:
        """What the header of the stored run says, the seconds included."""
        told = super().about(key, stacked=stacked)
        seconds = (time.perf_counter() - self.began[0]) / (self.share if stacked else 1)
        return {**told, "seconds": round(seconds, 3)} if told else told

    def load_or_train(self, store: Store) -> Run:
        """The run: from the store, in whatever form it has it, else trained now and stored."""
        key = stored_key(self, store)
        data = None if key is None else store.read(key)
        return super().load_or_train(store) if data is None else self.unpacked(data)


def timed(job: Job, share: int = 1, *, checkpoint_every: int | None = None) -> TimedJob:
    """A job that notes its seconds."""
    return TimedJob(job.config, job.task, job.seed, job.settings, checkpoint_every, share)


def train_one(job: Job, store: Store) -> None:
    """Have the store hold a run; a long one leaves its state beside the store on the way."""
    with ALONE:
        key = job.key()
        if key is not None:
            _remove_damaged(store.folder / f"{key}.checkpoint")
        try:
            perform(timed(job, checkpoint_every=CHECKPOINT_EVERY), store)
        except (OSError, SafetensorError):  # a full disk holds no such state
            perform(timed(job), store)


def train_stack(jobs: Sequence[Job], store: Store) -> dict[int, str]:
    """Have the store hold runs that differ in their seeds alone, which are trained at once on a device.

    A process whose device answers with errors ever after ends itself, and another takes its place.

    Args:
        jobs: one of each run.
        store: what holds them; each as soon as it is there.

    Returns:
        what was wrong with those that failed, by their places among the jobs.

    Raises:
        MemoryError: some did not find memory enough beside what other processes hold; the others are stored.
    """
    first, failed = jobs[0], dict[int, str]()
    runs = [Job(first.config, first.task, job.seed, first.settings) for job in jobs]
    shared = [timed(run, len(runs)) for run in runs]
    places = {id(job): place for place, job in enumerate(shared)}
    short: BaseException | None = None
    with ALONE:
        for job, run in arrivals(shared, store=store):
            if isinstance(run, torch.OutOfMemoryError | MemoryError):
                short = run
            elif isinstance(run, Exception):
                failed[places[id(job)]] = f"{type(run).__name__}: {run}"
                if "CUDA error" in str(run):
                    _end_process(run)
    if find_device().type == "cuda":
        torch.cuda.empty_cache()  # other processes want it
    if short is not None:
        raise MemoryError(str(short))
    return failed


def _end_process(error: Exception) -> None:
    """End this process here and now: after such an error each call to the device ends with one."""
    print(f"a process ends itself: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)


def take(
    measurement: Measurement,
    seed: int,
    settings: Mapping[str, Any],
    store: Store,
    jobs: Jobs | None = None,
) -> Trial:
    """Measure from one seed, in one thread; runs that the store does not hold are trained first.

    Linear maps are PyTorch's matrix products, whatever the processor offers.

    Args:
        measurement, seed, settings: what to measure.
        store: what holds runs.
        jobs: what is trained, by name; asked of the measurement when not given.

    Raises:
        ValueError: as the measurement, and where it gives what is no named array.
    """
    asked = measurement.jobs(seed, **settings) if jobs is None else jobs
    wanted = {name: timed(job) for name, job in asked.items()}
    with ALONE, cpu_threads(1), linear_kernel("product"):
        runs, seconds, kinds = {}, 0.0, set()
        for name, job in wanted.items():
            start = time.perf_counter()
            runs[name] = job.load_or_train(store)
            told = header_of(job, store)
            seconds += told.get("seconds", time.perf_counter() - start)
            kinds.add(told.get("asked", {}).get("device", circumstances()["kind"]))
        start = time.perf_counter()
        arguments = [seed] if measurement.trainings is None else [seed, runs]
        given = measurement.function(*arguments, **settings)
        seconds += time.perf_counter() - start
        variables = measurement.variables(given)
        openings = {name_of(name): run.losses[:OPENING].tolist() for name, run in runs.items()}
    own = tuple(sorted(kinds)) or (circumstances()["kind"],)
    return Trial(seed, variables, openings, seconds, own)


def take_by_name(
    label: tuple[str, str],
    digest: str,
    seed: int,
    settings: Mapping[str, Any],
    store: Store,
    jobs: Jobs,
    *,
    chosen_before: bool = False,
) -> Trial:
    """The same for a measurement of a room, which a worker process finds by its name.

    Args:
        label: its room and name.
        digest: of its code.
        seed, settings, store, jobs: as for `take`.
        chosen_before: whether learning rates that it looks up as it goes are those that were chosen before.

    Raises:
        OtherCodeError: the code here is not that which was to be measured.
    """
    one = _found(label, digest, settings)
    with kept_choices() if chosen_before else nullcontext():
        return take(one, seed, settings, store, jobs)


def open_by_name(
    label: tuple[str, str], digest: str, seed: int, settings: Mapping[str, Any], jobs: Jobs
) -> Trial:
    """The first losses of a measurement's trainings from one seed, and nothing else. Arguments as above."""
    start = time.perf_counter()
    _found(label, digest, settings)
    with ALONE, cpu_threads(1), linear_kernel("product"):
        openings = {n: opening(job, OPENING).losses.tolist() for n, job in _named(jobs).items()}
    return Trial(seed, {}, openings, time.perf_counter() - start)


def _named(jobs: Jobs) -> dict[str, Job]:
    return {name_of(name): job for name, job in jobs.items()}


def _found(label: tuple[str, str], digest: str, settings: Mapping[str, Any]) -> Measurement:
    room, name = label
    one = measurements_of(room)[name]
    if one.code(**settings).whole != digest:
        raise OtherCodeError(
            f"expected the code of {one.label} as it was when this began, got another one: it was changed "
            "meanwhile, or this machine has another version; call make measure again"
        )
    return one


# Runs in the store --------------------------------------------------------------------------------


def stored_key(job: Job, store: Store, alone: str | None = None) -> str | None:
    """The key under which a store has a run, in whatever form; None where it has none.

    On an accelerator a run that was trained in a stack is as good as one that was trained alone.

    Args:
        job, store: which run, and where.
        alone: its key when it is trained alone, where that is known already.
    """
    for stacked in (False,) if find_device().type == "cpu" else (False, True):
        key = alone if alone is not None and not stacked else job.key(stacked=stacked)
        if key is not None and store.file(key).exists():
            return key
    return None


def header_of(job: Job, store: Store) -> dict[str, Any]:
    """What the header of a stored run says; nothing where it is not stored."""
    key = stored_key(job, store)
    if key is None:
        return {}
    try:
        with store.file(key).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            found: dict[str, Any] = json.loads(json.loads(file.read(size))["__metadata__"]["about"])
    except (OSError, ValueError, KeyError):
        return {}
    return found


def _remove_damaged(checkpoint: Path) -> None:
    """Remove a checkpoint that cannot be read, such as a machine that lost its power leaves behind."""
    if checkpoint.exists():
        try:
            read_tensors(checkpoint)
        except ValueError:
            checkpoint.unlink(missing_ok=True)


# On disk ------------------------------------------------------------------------------------------


def write_trial(trial: Trial, path: Path) -> None:
    """Keep a trial: the whole file or nothing.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    told = {
        "seed": trial.seed,
        "variables": {
            n: {"axes": list(axes), **pack(v)} for n, (axes, v) in trial.variables.items()
        },
        "openings": {name: list(map(str, losses)) for name, losses in trial.openings.items()},
        "seconds": trial.seconds,
        "kinds": list(trial.kinds),
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
        return Trial(
            told["seed"],
            {n: (tuple(one["axes"]), unpack(one)) for n, one in told["variables"].items()},
            _numbers(told["openings"]),
            told["seconds"],
            tuple(told["kinds"]),
        )
    except (OSError, ValueError, KeyError):
        return None


def _numbers(told: Mapping[str, list[str]]) -> dict[str, list[float]]:
    return {name: [float(x) for x in losses] for name, losses in told.items()}


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
