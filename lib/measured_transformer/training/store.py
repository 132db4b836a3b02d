"""Keeps trained runs, one file each, so that no run is trained twice.

A file is named by the fingerprint of all that its run depends on (`jobs.Job.key`) and holds, in the safetensors
format, weights and history, and in its header what was asked for. It is written in one piece and carries a
checksum: what is damaged counts as absent. While a run is trained its key is locked, and the operating system
lifts the lock of a process that dies.

A run takes four bytes a weight and 24 a step: 0.4 MB for two layers of width 64 over 500 steps.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from measured_transformer.provenance import CodeUnknownError, digest
from measured_transformer.tasks.task import SourceTask
from measured_transformer.training.folders import build_folder
from measured_transformer.training.loop import Run, make_model
from measured_transformer.training.preparing import prepare_model
from measured_transformer.training.seeding import seeded

ARRAYS = (
    "losses",
    "rates",
    "gradient_norms",
    "evaluated",
    "evaluation_losses",
    "evaluation_accuracies",
)
_KEY = re.compile("[0-9a-f]{64}")
_LEFTOVER = re.compile(r"\.?([0-9a-f]{64})(?:\.[0-9a-f]{32}|\.checkpoint(?:\.[0-9]+)?)?")
_warned: set[tuple[str, Path]] = set()


@dataclass(frozen=True)
class Store:
    """A folder of runs. Several processes and, on a shared file system, several machines may use it at once.

    Attributes:
        folder: where the files lie; made when the first run is stored.
    """

    folder: Path

    def file(self, key: str) -> Path:
        """The file of the run with this key, whether or not it exists."""
        return self.folder / f"{key}.safetensors"

    def read(self, key: str) -> bytes | None:
        """Read the run with this key; None when it is missing or damaged."""
        try:
            data = self.file(key).read_bytes()
            _, about = contents(data)
        except (OSError, ValueError):
            return None
        return data if about.get("key") == key else None

    def write(self, key: str, data: bytes) -> bool:
        """Store a run. A failure warns once and does not lose the run."""
        part = self.folder / f".{key}.{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                part.write_bytes(data)
                part.replace(self.file(key))
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            self._warn("runs are not stored", error)
            return False
        return True

    @contextmanager
    def locked(self, key: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold the lock of a run; yields False when another process holds it and `wait` is False.

        Where the folder or its file system has no locks the block runs without one: then at worst two
        processes train the same run.
        """
        lock = None
        try:
            (self.folder / "locks").mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / "locks" / key, timeout=-1 if wait else 0)
            lock.acquire()
        except Timeout:
            yield False
            return
        except (OSError, NotImplementedError) as error:
            self._warn("runs are not locked while they are trained", error)
            lock = None
        try:
            yield True
        finally:
            if lock is not None:
                lock.release()

    def size(self) -> int:
        """The total size of all runs in bytes."""
        return sum(file.stat().st_size for file in self.folder.glob("*.safetensors"))

    def prune(self) -> int:
        """Remove runs that are damaged or whose code has changed; returns their number.

        Only files that a store wrote are touched: their names are keys, and what they begin with is what a
        store writes. Runs of code that cannot be found from here stay: it may have moved, or be a reader's
        own. Leftovers of writing and of locking go too, and the states of trainings that were interrupted,
        which would begin anew. No process may be training into this folder meanwhile.
        """
        removed = 0
        for file in self.folder.glob("*.safetensors"):
            if _KEY.fullmatch(file.stem) and _is_ours(file, file.stem) and not _holds(file):
                file.unlink()
                removed += 1
        places = ((self.folder, ".*"), (self.folder, "*.checkpoint"), (self.folder / "locks", "*"))
        for leftover in [file for folder, names in places for file in folder.glob(names)]:
            key = _LEFTOVER.fullmatch(leftover.name)
            if key is not None and leftover.is_file() and _is_left(leftover, key[1]):
                leftover.unlink()
        return removed

    def _warn(self, what: str, error: Exception) -> None:
        if (what, self.folder) not in _warned:
            _warned.add((what, self.folder))
            warnings.warn(f"{what} in {self.folder}: {error}", stacklevel=4)


Where = Store | Path | str | Literal["found"] | None
"""A store or its folder; 'found' for the one of `found_store`; None for none."""


def found_store() -> Store | None:
    """The store in `$MEASURED_RUNS_DIR`, else in `_build/runs` of the book around the working directory.

    None where there is neither: then nothing is stored.
    """
    if named := os.environ.get("MEASURED_RUNS_DIR", "").strip():
        return Store(Path(named).expanduser().absolute())
    folder = build_folder()
    return None if folder is None else Store(folder / "runs")


def as_store(where: Where) -> Store | None:
    """Convert the argument to a store."""
    if where is None or isinstance(where, Store):
        return where
    return found_store() if where == "found" else Store(Path(where).absolute())


def pack(run: Run, about: Mapping[str, Any]) -> bytes:
    """Pack a run in the safetensors format, for storage and for transfer between processes.

    Args:
        run: the run.
        about: what else the header says; words that JSON has.
    """
    tensors = {
        f"model.{n}": t.detach().cpu().clone().contiguous()
        for n, t in run.model.state_dict().items()
    }
    tensors |= {name: torch.from_numpy(getattr(run, name).copy()) for name in ARRAYS}
    told = {**about, "seed": run.seed, "diverged": run.diverged, "checksum": _checksum(tensors)}
    return save(tensors, metadata={"about": json.dumps(told)})


def contents(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of a packed run.

    Raises:
        ValueError: when it is no packed run, or damaged.
    """
    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        about: dict[str, Any] = json.loads(header["__metadata__"]["about"])
        whole = about["checksum"] == _checksum(tensors)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"expected a packed run, got what cannot be read: {error!r}") from error
    if not whole:
        raise ValueError("the packed run is damaged: its checksum is another one; train it again")
    return tensors, about


def unpack(data: bytes, config: Any, task: Any, prepare: Any = None) -> Run:
    """Unpack a run as `train` returned it, with its model on the CPU.

    Args:
        data: from `pack`.
        config, task, prepare: what it was trained with; `prepare` fixes and replaces weights again.

    Raises:
        ValueError: when it is no packed run, or damaged.
    """
    tensors, about = contents(data)
    source = isinstance(task, SourceTask)
    seed = int(about["seed"])
    model = make_model(config, causal=task.causal, source=source, seed=seed).train()
    with seeded(seed):
        prepare_model(model, prepare, seed)
    weights = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    model.load_state_dict(weights)
    arrays = {name: np.array(tensors[name].numpy()) for name in ARRAYS}
    return Run(model.eval(), seed=seed, diverged=bool(about["diverged"]), **arrays)


def _holds(file: Path) -> bool:
    """Return whether a run is complete and from the current code, as far as can be determined."""
    try:
        _, about = contents(file.read_bytes())
    except (OSError, ValueError):
        return False
    try:
        return bool(digest(*about["roots"]) == about["code"])
    except CodeUnknownError:
        return True
    except (OSError, ValueError, KeyError):
        return False


def _is_ours(file: Path, key: str) -> bool:
    """Return whether a file begins like a stored run or checkpoint with this key, complete or truncated."""
    try:
        with file.open("rb") as data:
            told = json.loads(data.read(int.from_bytes(data.read(8), "little")))["__metadata__"]
        about = json.loads(told["about"]) if "about" in told else told
        return bool(about["key"] == key)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, MemoryError):
        return False


def _is_left(file: Path, key: str) -> bool:
    """Return whether a file named like a leftover is one: an empty lock, or a file that a store began."""
    return file.stat().st_size == 0 or _is_ours(file, key)


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
