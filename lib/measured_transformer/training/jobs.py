"""One run as it can be asked for anywhere: its settings, its key in a store, and how to come by it."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import measured_transformer
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.device import find_device
from measured_transformer.training.fingerprint import CODE, fingerprint, plain
from measured_transformer.training.loop import Run, _check, train
from measured_transformer.training.store import Store, file_digest, pack, unpack

_PACKAGE = "measured_transformer"
_FOLDER = Path(measured_transformer.__file__).parent
_SIGNATURE = inspect.signature(train)
_BEGAN = time.time()
_NOT_ASKED = ("config", "task", "seed", "checkpoint", "checkpoint_every", "progress")
_TURN = threading.Lock()  # PyTorch's generator is one for all threads of a process


@dataclass(frozen=True, eq=False)
class Job:
    """One run that is asked for.

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
        """The objects whose code decides over the result, besides the code that trains."""
        return [self.task, *(one for one in self.settings.values() if callable(one))]

    def asked(self, *, stacked: bool = False) -> dict[str, Any]:
        """All that the result depends on, but for code."""
        device = find_device()
        settings = dict(self.settings)
        if device.type == "cpu" and settings["threads"] is None:
            settings["threads"] = torch.get_num_threads()
        return {
            "config": self.config,
            "task": self.task,
            "seed": self.seed,
            "settings": settings,
            "device": _kind(device),
            "torch": torch.__version__,
            "dtype": str(torch.get_default_dtype()),
            "stacked": stacked,
        }

    def key(self, *, stacked: bool = False) -> str | None:
        """The fingerprint of the run, and its name in a store; None where it cannot be stored.

        That is so where settings cannot be written down or code cannot be read (lambdas, classes of a
        notebook), and where a file of the code was changed after this process began: what is trained
        here may not be what it says.

        Args:
            stacked: of the run as `stacked.train_stacked` gives it, whose last digits may differ.
        """
        code = self.code(stacked=stacked)
        if code is None:
            return None
        asked = {**self.asked(stacked=stacked), "code": sorted(code.values())}
        key = fingerprint(asked, *self.made)
        return key if key == fingerprint(asked, *self.made) else None

    def code(self, *, stacked: bool = False) -> dict[str, str] | None:
        """Files of the code that decides over the result, each with its digest; None as for `key`."""
        files = {file for glob in CODE for file in _FOLDER.glob(glob)}
        if stacked:
            files.add(_FOLDER / "training" / "stacked.py")
        for thing in self.made:
            for module in _modules(thing):
                if module == "__main__":
                    return None
                files |= _reached(module)
        try:
            if any(file.stat().st_mtime > _BEGAN for file in files):
                return None
            return {str(file): file_digest(file) for file in sorted(files)}
        except OSError:
            return None

    def about(self, key: str | None, *, stacked: bool = False) -> dict[str, Any]:
        """What the header of the stored run says."""
        if key is None:
            return {}
        told = plain(self.asked(stacked=stacked))
        return {"key": key, "asked": told, "code": self.code(stacked=stacked) or {}}

    def train(self, checkpoint: Path | None = None) -> Run:
        """Train it, alone. Threads of one process take turns."""
        kept: dict[str, Any] = {}
        if self.checkpoint_every is not None and checkpoint is not None:
            kept = {"checkpoint": checkpoint, "checkpoint_every": self.checkpoint_every}
        with _TURN:
            run = train(self.config, self.task, seed=self.seed, **kept, **self.settings)
        run.model.zero_grad()  # a run from the store has no gradients either
        return run

    def unpacked(self, data: bytes) -> Run:
        """The run that was packed. Raises ValueError when it is damaged."""
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
    """One job a seed.

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
    _check(
        config,
        task,
        given["steps"],
        given["learning_rate"],
        given["optimiser"],
        given["evaluate_every"],
        every,
    )
    settings = {name: value for name, value in given.items() if name not in _NOT_ASKED}
    return [Job(config, task, seed, settings, checkpoint_every) for seed in seeds]


def perform(job: Job, store: Store | None) -> bytes:
    """The packed run: from the store, else trained and stored. What a worker process does.

    Whoever else wants the same run at the same time waits for this one.

    Raises:
        ValueError: as `train`.
    """
    found = obtain(job, store)
    assert found is not None  # it waited
    return found if isinstance(found, bytes) else pack(found, job.about(job.key()))


def obtain(job: Job, store: Store | None, *, wait: bool = True) -> bytes | Run | None:
    """The run as it comes: packed when the store has it, else trained here, and stored.

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


def _kind(device: torch.device) -> str:
    """What runs are equal on to the last bit, as far as one can tell."""
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()}"


def _modules(thing: object) -> list[str]:
    kinds = [thing] if inspect.isfunction(thing) else type(thing).__mro__
    return [kind.__module__ for kind in kinds]


@cache
def _reached(name: str) -> frozenset[Path]:
    """The file of a module and of all that it imports, short of installed packages and of `CODE`'s."""
    found: set[Path] = set()
    waiting, seen = [name], {name}
    while waiting:
        module = sys.modules.get(waiting.pop())
        file = None if module is None else _own_file(module)
        if module is None or file is None:
            continue
        found.add(file)
        for other in _imports(module, file):
            if other not in seen and not other.startswith(
                (f"{_PACKAGE}.parts", f"{_PACKAGE}.models", f"{_PACKAGE}.training")
            ):
                seen.add(other)
                waiting.append(other)
    return frozenset(found)


def _own_file(module: ModuleType) -> Path | None:
    """The source of a module; None for one that is installed or built in."""
    name = getattr(module, "__file__", None)
    if name is None or not name.endswith(".py"):
        return None
    file = Path(name).resolve()
    installed = {Path(sysconfig.get_path(p)).resolve() for p in ("stdlib", "purelib", "platlib")}
    own = module.__name__.partition(".")[0] == _PACKAGE
    return file if own or not any(file.is_relative_to(folder) for folder in installed) else None


def _imports(module: ModuleType, file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            try:
                parent = importlib.util.resolve_name(relative, module.__package__)
            except ImportError:
                continue
            yield parent
            yield from (f"{parent}.{alias.name}" for alias in node.names)
