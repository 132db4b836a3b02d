"""Every arm of a comparison gets its own learning rate, chosen from the same grid on seeds not used again.

What was chosen is a record that comes with the library, and is used again as long as everything that the choice
depends on is the same: arms, task, grid, seeds, steps, options and the code that trains.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.fingerprint import fingerprint, plain
from measured_transformer.training.loop import evaluate, train

_PACKAGED = Path(__file__).parent / "records"


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: a config, and what is special about its training.

    Attributes:
        config: the model.
        options: passed to `train` for this arm alone, such as its schedule or how its weights are prepared.

    >>> from measured_transformer.training.schedules import Constant
    >>> arm = Arm(Config(vocab=10), {"schedule": Constant(warmup=20), "label_smoothing": 0.1})
    """

    config: Config
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tuned:
    """The learning rates chosen for the arms of one comparison.

    Attributes:
        rates: the best rate of each arm.
        losses: for each arm and each rate of the grid, the final loss of each tuning seed in nats per scored
            position; infinite when it diverged.
        at_edge: arms whose best rate is the smallest or largest of the grid: a wider grid could be better.
        reused: whether a stored record was used, so that nothing was trained.
    """

    rates: dict[str, float]
    losses: dict[str, dict[float, list[float]]]
    at_edge: tuple[str, ...]
    reused: bool

    @property
    def table(self) -> dict[str, dict[float, float]]:
        """The mean of `losses` over the seeds: what the choice was made by."""
        return {arm: _means(found) for arm, found in self.losses.items()}


def tuned_rates(
    name: str,
    arms: Mapping[str, Config | Arm],
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
        arms: what is compared: configs, or arms where their training differs too.
        task: what all of them are trained on.
        rates: the grid, the same for all arms.
        seeds: of the tuning runs; take them from `profile().seeds(..., stream="tuning")`.
        steps: number of batches, the same as in the comparison.
        profile: whose records are read and written.
        records: folder with one folder of records a profile, searched first and written to; when not
            given, `_build/records` of the book around the working directory; outside a book nothing is
            stored. Last of all the records that come with the library are searched.
        options: passed to `train` for all arms.

    Raises:
        ValueError: when there are no arms, rates or seeds, or when every rate of an arm diverged.
    """
    if not arms or not rates or not seeds:
        raise ValueError(
            f"tuning needs at least one arm, rate and seed, got {len(arms)}, {len(rates)}, {len(seeds)}"
        )
    sides = {n: arm if isinstance(arm, Arm) else Arm(arm) for n, arm in arms.items()}
    settings = {name: {**options, **side.options} for name, side in sides.items()}
    grid = sorted(set(rates))
    asked = {
        "arms": {name: side.config for name, side in sides.items()},
        "options": settings,
        "task": task,
        "rates": grid,
        "seeds": list(seeds),
        "steps": steps,
    }
    made = [one for own in settings.values() for one in own.values() if callable(one)]
    key = fingerprint(asked, task, *made)
    here = records if records is not None else _build_records()
    places = [here] if records is not None else [here, _PACKAGED]
    files = [place / profile / "tuned" / f"{name}.json" for place in places if place is not None]
    found = _stored(files, key)
    reused = found is not None
    if found is None:
        found = {
            arm: {
                rate: [_trial(side.config, task, rate, s, steps, settings[arm]) for s in seeds]
                for rate in grid
            }
            for arm, side in sides.items()
        }
    table = {arm: _means(losses) for arm, losses in found.items()}
    best = {arm: min(losses, key=lambda rate: losses[rate]) for arm, losses in table.items()}
    if hopeless := [arm for arm in arms if not math.isfinite(table[arm][best[arm]])]:
        raise ValueError(
            f"every rate of {grid} diverged for {', '.join(hopeless)}; try smaller ones"
        )
    if here is not None and not reused:
        _store(files[0], key, asked, found, best)
    at_edge = tuple(arm for arm in arms if len(grid) > 1 and best[arm] in (grid[0], grid[-1]))
    return Tuned(best, found, at_edge, reused)


def _trial(
    config: Config, task: Task, rate: float, seed: int, steps: int, options: Mapping[str, Any]
) -> float:
    run = train(config, task, steps=steps, learning_rate=rate, seed=seed, **options)
    loss = math.inf if run.diverged else evaluate(run.model, task, seed=seed).loss
    return loss if math.isfinite(loss) else math.inf  # NaN would win or lose by its place


def _means(losses: Mapping[float, Sequence[float]]) -> dict[float, float]:
    return {rate: math.fsum(found) / len(found) for rate, found in losses.items()}


def _build_records() -> Path | None:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "_config.yml").is_file() and (folder / "book").is_dir():
            return folder / "_build" / "records"
    return None


def _stored(files: Sequence[Path], key: str) -> dict[str, dict[float, list[float]]] | None:
    for file in files:
        try:
            record = json.loads(file.read_text())
        except (OSError, ValueError):
            continue  # absent or damaged: the choice is made again
        if isinstance(record, dict) and record.get("fingerprint") == key:
            return {
                arm: {
                    rate: [math.inf if loss is None else loss for loss in found]
                    for rate, found in losses
                }
                for arm, losses in record["losses"].items()
            }
    return None


def _store(
    file: Path,
    key: str,
    asked: Mapping[str, Any],
    found: Mapping[str, Mapping[float, Sequence[float]]],
    best: Mapping[str, float],
) -> None:
    record = {
        "fingerprint": key,
        "best": dict(best),
        "losses": {
            arm: [
                [rate, [loss if math.isfinite(loss) else None for loss in each]]
                for rate, each in losses.items()
            ]
            for arm, losses in found.items()
        },
        "asked": _told(asked),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(json.dumps(record, indent=1) + "\n")
    part.replace(file)


def _told(asked: Mapping[str, Any]) -> Any:
    """What was asked for, for a reader of the record."""
    try:
        return plain(asked)
    except ValueError:
        return repr(asked)
