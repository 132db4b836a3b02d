"""Describes one run: its settings, its key in a store, and how to obtain it."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from measured_transformer.models.config import Config
from measured_transformer.provenance import CodeUnknownError, digest, files, plain, roots
from measured_transformer.tasks.task import Task
from measured_transformer.training.arguments import check_training
from measured_transformer.training.device import circumstances, find_device
from measured_transformer.training.loop import Run, train
from measured_transformer.training.store import Store, pack, unpack

_SIGNATURE = inspect.signature(train)
_BEGAN = time.time()
_TRAINS = "measured_transformer.training.loop:train"
_STACKS = "measured_transformer.training.stacked:train_stacked"
_NOT_ASKED = ("config", "task", "seed", "checkpoint", "checkpoint_every", "progress")
_TURN = threading.Lock()  # PyTorch's generator is one for all threads of a process


@dataclass(frozen=True, eq=False)
class Job:
    """The request for one run.

    Attributes:
        config, task, seed: as for `train`.
        settings: all other arguments of `train` that its result depends on, defaults included.
        checkpoint_every: after how many steps its state is kept beside the store; None for never.
    """

    config: Config
    task: Task
    seed: int
    settings: Mapping[str, Any]
    checkpoint_every: int | None = None

    @property
    def made(self) -> list[object]:
        """The objects whose code affects the result, besides the training code itself."""
        return [self.task, *(one for one in self.settings.values() if callable(one))]

    def asked(self, *, stacked: bool = False) -> dict[str, Any]:
        """Everything but code that the result depends on."""
        device = find_device()
        settings = dict(self.settings)
        if device.type == "cpu" and settings["threads"] is None:
            settings["threads"] = torch.get_num_threads()
        return {
            "config": self.config,
            "task": self.task,
            "seed": self.seed,
            "settings": settings,
            "device": circumstances()["kind"],
            "torch": str(torch.__version__).partition("+")[0],
            "dtype": str(torch.get_default_dtype()),
            "stacked": stacked,
        }

    def key(self, *, stacked: bool = False) -> str | None:
        """The run's digest, its key in a store; None when it cannot be stored.

        That is so where settings cannot be written down or code cannot be read (lambdas, classes of a
        notebook), and where a file of the code was changed after this process began: what is trained
        here may not be what it says.

        Args:
            stacked: of the run as `stacked.train_stacked` gives it, whose last digits may differ.
        """
        try:
            things = self.things(stacked=stacked)
            if any(file.stat().st_mtime > _BEGAN for file in files(*things)):
                return None
            return digest(*things, settings=self.asked(stacked=stacked))
        except (CodeUnknownError, ValueError, OSError):
            return None

    def things(self, *, stacked: bool = False) -> list[object]:
        """The things whose code affects the result: the training code and the objects given to it."""
        how = [_TRAINS, _STACKS] if stacked else [_TRAINS]
        return [*how, self.config, *self.made]

    def about(self, key: str | None, *, stacked: bool = False) -> dict[str, Any]:
        """The header of the stored run."""
        if key is None:
            return {}
        things = self.things(stacked=stacked)
        told = plain(self.asked(stacked=stacked))
        return {"key": key, "asked": told, "roots": roots(*things), "code": digest(*things)}

    def train(self, checkpoint: Path | None = None) -> Run:
        """Train this run alone. Threads of one process take turns."""
        kept: dict[str, Any] = {}
        if self.checkpoint_every is not None and checkpoint is not None:
            kept = {"checkpoint": checkpoint, "checkpoint_every": self.checkpoint_every}
        with _TURN:
            run = train(self.config, self.task, seed=self.seed, **kept, **self.settings)
        run.model.zero_grad()  # a run from the store has no gradients either
        return run

    def load_or_train(self, store: Store) -> Run:
        """Load the run from the store, or train and store it now."""
        found = obtain(self, store)
        assert found is not None  # it waited
        return self.unpacked(found) if isinstance(found, bytes) else found

    def unpacked(self, data: bytes) -> Run:
        """Unpack a run. Raises ValueError when it is damaged."""
        with _TURN:
            return unpack(data, self.config, self.task, self.settings["prepare"])


def make_jobs(
    config: Config,
    task: Task,
    seeds: Sequence[int],
    options: Mapping[str, Any],
    *,
    checkpoint_every: int | None = None,
) -> list[Job]:
    """One job for each seed.

    Args:
        config, task, seeds: as for `train`.
        options: its other arguments.
        checkpoint_every: see `Job`.

    Raises:
        ValueError: as `train`, and when a checkpoint is named: several runs have no single one.
        TypeError: when `train` has no such option, or needs one that is missing.
    """
    if options.get("checkpoint") is not None:
        raise ValueError(
            "a checkpoint belongs to one run, and these are several; give checkpoint_every alone, and each "
            "run's state is kept beside the store"
        )
    bound = _SIGNATURE.bind(config, task, seed=0, **options)
    bound.apply_defaults()
    every = 1 if checkpoint_every is None else checkpoint_every
    given = bound.arguments
    check_training(config, task, {**given, "checkpoint_every": every})
    settings = {name: value for name, value in given.items() if name not in _NOT_ASKED}
    return [Job(config, task, seed, settings, checkpoint_every) for seed in seeds]


def perform(job: Job, store: Store | None) -> bytes:
    """Load the packed run from the store, or train and store it; worker processes call this.

    Whoever else wants the same run at the same time waits for this one.

    Raises:
        ValueError: as `train`.
    """
    found = obtain(job, store)
    assert found is not None  # it waited
    return found if isinstance(found, bytes) else pack(found, job.about(job.key()))


def obtain(job: Job, store: Store | None, *, wait: bool = True) -> bytes | Run | None:
    """Load the run, packed, from the store, or train it here and store it.

    Args:
        job: the run.
        store: where to look and to keep it; None for nowhere.
        wait: whether to wait while another process trains it; if not, None is given then.

    Raises:
        ValueError: as `train`.
    """
    key = None if store is None else job.key()
    if store is None or key is None:
        return job.train()
    with store.locked(key, wait=wait) as held:
        if not held:
            return None
        data = store.read(key)
        if data is not None:
            return data
        checkpoint = store.folder / f"{key}.checkpoint"
        run = job.train(checkpoint if os.access(store.folder, os.W_OK) else None)
        store.write(key, pack(run, job.about(key)))
        with suppress(OSError):
            checkpoint.unlink(missing_ok=True)
        return run
