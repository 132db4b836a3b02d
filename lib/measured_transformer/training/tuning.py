"""Every arm of a comparison gets its own learning rate, chosen from the same grid on seeds not used again.

What was chosen is a record that comes with the library, and is used again as long as everything that the choice
depends on is the same: arms, task, grid, seeds, steps, options and the code that trains.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import measured_transformer
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import evaluate, train

# What a training run computes with: the rates that were found hold as long as none of it changes.
_CODE = (
    "parts/[!_]*.py",
    "models/[!_]*.py",
    "training/device.py",
    "training/loop.py",
    "training/seeding.py",
    "training/tuning.py",
)
_PACKAGED = Path(__file__).parent / "records"


@dataclass(frozen=True)
class Tuned:
    """The learning rates chosen for the arms of one comparison.

    Attributes:
        rates: the best rate of each arm.
        table: for each arm and each rate of the grid, the mean final loss over the tuning seeds in nats
            per scored position; infinite when any of them diverged.
        at_edge: arms whose best rate is the smallest or largest of the grid: a wider grid could be better.
        reused: whether a stored record was used, so that nothing was trained.
    """

    rates: dict[str, float]
    table: dict[str, dict[float, float]]
    at_edge: tuple[str, ...]
    reused: bool


def tuned_rates(
    name: str,
    arms: Mapping[str, Config],
    task: Task,
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
    steps: int,
    profile: str = "quick",
    records: Path | None = None,
    **options: Any,
) -> Tuned:
    """Choose for each arm the rate with the smallest mean loss on fresh sequences.

    Args:
        name: of the comparison; names its record.
        arms: the configs that are compared.
        task: what all of them are trained on.
        rates: the grid, the same for all arms.
        seeds: of the tuning runs; take them from `profile().seeds(..., stream="tuning")`.
        steps: number of batches, the same as in the comparison.
        profile: whose records are read and written.
        records: folder with one folder of records a profile, searched first and written to; when not
            given, `_build/records` of the book around the working directory; outside a book nothing is
            stored. Last of all the records that come with the library are searched.
        options: passed to `train`.

    Raises:
        ValueError: when there are no arms, rates or seeds, or when every rate of an arm diverged.
    """
    if not arms or not rates or not seeds:
        raise ValueError(
            f"tuning needs at least one arm, rate and seed, got {len(arms)}, {len(rates)}, {len(seeds)}"
        )
    grid = sorted(set(rates))
    asked = {
        "arms": {arm: asdict(config) for arm, config in arms.items()},
        "task": f"{type(task).__name__}: {task!r}",
        "rates": grid,
        "seeds": list(seeds),
        "steps": steps,
        "options": {key: list(o) if isinstance(o, tuple) else o for key, o in options.items()},
    }
    fingerprint = _fingerprint(asked, task)
    here = records if records is not None else _build_records()
    places = [here] if records is not None else [here, _PACKAGED]
    files = [place / profile / "tuned" / f"{name}.json" for place in places if place is not None]
    table = _stored(files, fingerprint)
    reused = table is not None
    if table is None:
        table = {
            arm: {rate: _trial(config, task, rate, seeds, steps, options) for rate in grid}
            for arm, config in arms.items()
        }
    best = {arm: min(losses, key=lambda rate: losses[rate]) for arm, losses in table.items()}
    if hopeless := [arm for arm in arms if not math.isfinite(table[arm][best[arm]])]:
        raise ValueError(
            f"every rate of {grid} diverged for {', '.join(hopeless)}; try smaller ones"
        )
    if here is not None and not reused:
        _store(files[0], fingerprint, asked, table, best)
    at_edge = tuple(arm for arm in arms if len(grid) > 1 and best[arm] in (grid[0], grid[-1]))
    return Tuned(best, table, at_edge, reused)


def _trial(
    config: Config,
    task: Task,
    rate: float,
    seeds: Sequence[int],
    steps: int,
    options: Mapping[str, Any],
) -> float:
    losses = []
    for seed in seeds:
        run = train(config, task, steps=steps, learning_rate=rate, seed=seed, **options)
        loss = math.inf if run.diverged else evaluate(run.model, task, seed=seed).loss
        losses.append(
            loss if math.isfinite(loss) else math.inf
        )  # NaN would win or lose by its place
    return sum(losses) / len(losses)


def _fingerprint(asked: object, task: Task) -> str:
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
    package = Path(measured_transformer.__file__).parent
    files = [file for glob in _CODE for file in sorted(package.glob(glob))]
    for kind in type(task).__mro__:  # the task and what it builds on
        if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
            continue
        try:
            files.append(Path(inspect.getfile(kind)))
        except (OSError, TypeError):  # made in a notebook: its code cannot be read, so never reuse
            digest.update(os.urandom(16))
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _build_records() -> Path | None:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "_config.yml").is_file() and (folder / "book").is_dir():
            return folder / "_build" / "records"
    return None


def _stored(files: Sequence[Path], fingerprint: str) -> dict[str, dict[float, float]] | None:
    for file in files:
        try:
            record = json.loads(file.read_text())
        except (OSError, ValueError):
            continue  # absent or damaged: the choice is made again
        if isinstance(record, dict) and record.get("fingerprint") == fingerprint:
            return {
                arm: {rate: math.inf if loss is None else loss for rate, loss in losses}
                for arm, losses in record["table"].items()
            }
    return None


def _store(
    file: Path,
    fingerprint: str,
    asked: object,
    table: Mapping[str, Mapping[float, float]],
    best: Mapping[str, float],
) -> None:
    record = {
        "fingerprint": fingerprint,
        "best": dict(best),
        "table": {
            arm: [[rate, loss] for rate, loss in losses.items()] for arm, losses in table.items()
        },
        "asked": asked,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(json.dumps(record, indent=1, default=str) + "\n")
    part.replace(file)
