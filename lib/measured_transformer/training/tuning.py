"""Chooses a learning rate for each arm of a comparison, from the same grid, on seeds not used again.

What was chosen is a line of a table that comes with the library (`tuned_table`), and is used again as long as
everything that the choice depends on is the same: arms, task, grid, seeds, steps, options and the code that
trains. Where only code has changed, one of its trainings is done again: if that gives the loss that is kept,
the choice is attested for the code as it is now, and nothing else is trained.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measured_transformer.models.config import Config
from measured_transformer.provenance import CodeUnknownError, digest, plain
from measured_transformer.tasks.task import Task
from measured_transformer.training.device import circumstances
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import evaluate, train
from measured_transformer.training.store import Store
from measured_transformer.training.tuned_table import (
    PACKAGED,
    Line,
    add_lines,
    build_table,
    find_lines,
    losses_of,
)

_CODE = ("measured_transformer.training.loop:train", "measured_transformer.training.loop:evaluate")
_trusted: ContextVar[list[Line] | None] = ContextVar("trusted", default=None)
_AGREES = 1e-6
"""By what share of itself the loss of a training done again may differ on the same kind of machine."""
_ELSEWHERE = 0.1
"""The same on another kind of machine, beyond the spread of the kept losses: rounding grows."""


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
        reused: whether a line of the table was used, so that no search was made.
    """

    rates: dict[str, float]
    losses: dict[str, dict[float, list[float]]]
    at_edge: tuple[str, ...]
    reused: bool

    @property
    def table(self) -> dict[str, dict[float, float]]:
        """The mean of `losses` over the seeds, on which the choice is based."""
        return {arm: _means(found) for arm, found in self.losses.items()}


def tuned_rates(
    name: str,
    arms: Mapping[str, Config | Arm],
    task: Task,
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
    steps: int,
    table: Path | None = None,
    **options: Any,
) -> Tuned:
    """Choose for each arm the rate with the smallest mean loss on fresh sequences.

    Args:
        name: of the comparison; names its line in the table.
        arms: what is compared: configs, or arms where their training differs too.
        task: what all of them are trained on.
        rates: the grid, the same for all arms.
        seeds: of the tuning runs, such as those of `measuring.tuning_seeds`, which nothing is evaluated on.
        steps: number of batches, the same as in the comparison.
        table: the table that is searched and written to; when not given, `_build/tuned.jsonl` of the book
            around the working directory (outside a book nothing is kept) and that of the library.
        options: passed to `train` for all arms.

    Raises:
        ValueError: when there are no arms, rates or seeds, or when every rate of an arm diverged.
    """
    if not arms or not rates or not seeds:
        raise ValueError(
            f"tuning needs at least one arm, rate and seed, got {len(arms)}, {len(rates)}, {len(seeds)}"
        )
    question = _Question(name, arms, task, rates, seeds, steps, options)
    here = table if table is not None else build_table()
    tables = [table] if table is not None else [here, PACKAGED]
    line = question.known(tables)
    if line is None and (line := question.attested(tables)) is not None and here is not None:
        add_lines([line], here)
    if line is not None:
        return question.choice(losses_of(line), reused=True)
    found = {
        arm: {rate: [question.trial(arm, rate, s) for s in seeds] for rate in question.grid}
        for arm in question.sides
    }
    choice = question.choice(found, reused=False)
    if here is not None and (line := question.line(found, choice.rates)) is not None:
        add_lines([line], here)
    return choice


def known_rates(
    name: str,
    arms: Mapping[str, Config | Arm],
    task: Task,
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
    steps: int,
    **options: Any,
) -> Tuned | None:
    """The rates in the library's table; None when none were chosen with this code. Trains nothing.

    Arguments as for `tuned_rates`.
    """
    question = _Question(name, arms, task, rates, seeds, steps, options)
    line = question.known([PACKAGED])
    return None if line is None else question.choice(losses_of(line), reused=True)


def kept_rates(
    name: str,
    arm: Config | Arm,
    task: Task,
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
    steps: int,
) -> Tuned | None:
    """The choice for an arm in the library's table, made with any code; None when there is none.

    Arguments as for `keep_rates`.
    """
    question = _Question(name, {name: arm}, task, rates, seeds, steps, {})
    lines = find_lines(question.asked, [PACKAGED]) if question.asked else []
    return next(
        (question.choice(losses_of(line), reused=True) for line in lines if line["name"] == name),
        None,
    )


def renew_rates(
    name: str,
    arm: Config | Arm,
    task: Task,
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
    steps: int,
) -> None:
    """Mark a choice in the library's table that was made with other code as valid for the current code.

    For whoever has shown that trainings at that rate give the same as before. Arguments as for `keep_rates`.

    Raises:
        OSError: the table cannot be written to.
    """
    question = _Question(name, {name: arm}, task, rates, seeds, steps, {})
    lines = find_lines(question.asked, [PACKAGED]) if question.asked else []
    add_lines([{**line, "code": question.code} for line in lines if line["name"] == name], PACKAGED)


def keep_rates(
    name: str,
    arm: Config | Arm,
    task: Task,
    trials: Mapping[tuple[float, int], Job],
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
    steps: int,
    store: Store,
    table: Path | None,
) -> Tuned:
    """Choose a rate from trainings in a store, and add it to a table.

    Args:
        name: of the arm; names its line.
        arm, task, rates, seeds, steps: as for `tuned_rates`.
        trials: the training of each rate and seed.
        store: what holds them; one that it lacks is trained.
        table: the table; None for none.

    Raises:
        ValueError: when every rate diverged.
        OSError: the table cannot be written to.
    """
    question = _Question(name, {name: arm}, task, rates, seeds, steps, {})
    found = {
        rate: [_loss(trials[rate, seed].load_or_train(store), task, seed) for seed in seeds]
        for rate in question.grid
    }
    choice = question.choice({name: found}, reused=False)
    line = question.line({name: found}, choice.rates)
    if line is not None and table is not None:
        add_lines([line], table)
    return choice


@contextmanager
def trusting() -> Iterator[list[Line]]:
    """Have `search_losses` take what the library's table holds, whatever code that was found with.

    For measuring again: whether values come back is asked of the trainings that were measured.

    Yields:
        the lines that were so taken, with the code as it is now.
    """
    found: list[Line] = []
    token = _trusted.set(found)
    try:
        yield found
    finally:
        _trusted.reset(token)


def search_losses(
    name: str,
    asked: Mapping[str, Any],
    code: Sequence[object],
    trial: Callable[[float, int], float],
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
) -> dict[float, list[float]]:
    """The losses for choosing a rate with a training loop other than `train`; kept in the table too.

    Args:
        name: of the choice; names its line.
        asked: all settings that the losses depend on.
        code: what computes them; see `provenance.digest`.
        trial: the loss for a rate and a seed.
        rates, seeds: of the trials.

    Returns:
        for each rate the loss of each seed.
    """
    told = json.dumps(plain({**asked, "rates": list(rates), "seeds": list(seeds)}), sort_keys=True)
    key, own = hashlib.sha256(told.encode()).hexdigest(), digest(*code)
    here = build_table()
    lines = find_lines(key, [here, PACKAGED])
    for line in lines:
        (kept,) = losses_of(line).values()
        if line["code"] == own:
            return kept
        if (trusted := _trusted.get()) is not None:
            trusted.append({**line, "code": own})
            return kept
        rate = min(kept, key=lambda r: _mean(kept[r]))
        if _comes_back(trial(rate, seeds[0]), kept[rate], line):
            if here is not None:
                add_lines([{**line, "code": own}], here)
            return kept
    found = {rate: [trial(rate, seed) for seed in seeds] for rate in rates}
    best = min(found, key=lambda r: _mean(found[r]))
    if here is not None:
        losses = {name: [[rate, each] for rate, each in found.items()]}
        new = {"name": name, "asked": key, "code": own, "best": {name: best}, "losses": losses}
        more = {"kind": circumstances()["kind"], "seeds": list(seeds), "steps": asked.get("steps")}
        add_lines([{**new, **more}], here)
    return found


class _Question:
    """A question to the table of tuned rates, and its possible answers."""

    def __init__(
        self,
        name: str,
        arms: Mapping[str, Config | Arm],
        task: Task,
        rates: Sequence[float],
        seeds: Sequence[int],
        steps: int,
        options: Mapping[str, Any],
    ) -> None:
        self.name, self.task, self.seeds, self.steps = name, task, list(seeds), steps
        self.sides = {n: arm if isinstance(arm, Arm) else Arm(arm) for n, arm in arms.items()}
        self.settings = {n: {**options, **side.options} for n, side in self.sides.items()}
        self.grid = sorted(set(rates))
        self.asked, self.code = self._key()

    def _key(self) -> tuple[str, str]:
        """Digests of the question and of the code; empty when they cannot be determined."""
        made = [v for own in self.settings.values() for v in own.values() if callable(v)]
        configs = [side.config for side in self.sides.values()]
        try:
            told = plain(
                {
                    "arms": {name: side.config for name, side in self.sides.items()},
                    "options": self.settings,
                    "task": self.task,
                    "rates": self.grid,
                    "seeds": self.seeds,
                    "steps": self.steps,
                }
            )
            code = digest(*_CODE, self.task, *configs, *made)
        except (CodeUnknownError, ValueError):
            return "", ""
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest(), code

    def known(self, tables: Sequence[Path | None]) -> Line | None:
        """The line on this question and this code."""
        lines = find_lines(self.asked, tables) if self.asked else []
        return next((line for line in lines if line["code"] == self.code), None)

    def attested(self, tables: Sequence[Path | None]) -> Line | None:
        """A line made with other code, updated to this code if one of its trainings gives its loss again."""
        lines = find_lines(self.asked, tables) if self.asked else []
        for line in lines:
            kept = losses_of(line)
            arm = next(iter(self.sides))
            rate = min(kept[arm], key=lambda r: _mean(kept[arm][r]))
            if _comes_back(self.trial(arm, rate, self.seeds[0]), kept[arm][rate], line):
                return {**line, "name": self.name, "code": self.code}
        return None

    def trial(self, arm: str, rate: float, seed: int) -> float:
        """The loss of one training on held-out sequences."""
        run = train(
            self.sides[arm].config,
            self.task,
            steps=self.steps,
            learning_rate=rate,
            seed=seed,
            **self.settings[arm],
        )
        return _loss(run, self.task, seed)

    def choice(
        self, found: Mapping[str, Mapping[float, Sequence[float]]], *, reused: bool
    ) -> Tuned:
        """The best rates by these losses."""
        table = {arm: _means(losses) for arm, losses in found.items()}
        best = {arm: min(losses, key=lambda r: losses[r]) for arm, losses in table.items()}
        if hopeless := [arm for arm in best if not math.isfinite(table[arm][best[arm]])]:
            raise ValueError(
                f"every rate of {self.grid} diverged for {', '.join(hopeless)}; try smaller ones"
            )
        ends = (self.grid[0], self.grid[-1])
        at_edge = tuple(arm for arm in best if len(self.grid) > 1 and best[arm] in ends)
        kept = {arm: {r: list(each) for r, each in losses.items()} for arm, losses in found.items()}
        return Tuned(best, kept, at_edge, reused)

    def line(
        self, found: Mapping[str, Mapping[float, Sequence[float]]], best: Mapping[str, float]
    ) -> Line | None:
        """The line for the table; None when it could not be found again."""
        if not self.asked:
            return None
        return {
            "name": self.name,
            "asked": self.asked,
            "code": self.code,
            "best": dict(best),
            "kind": circumstances()["kind"],
            "seeds": self.seeds,
            "steps": self.steps,
            "losses": {
                arm: [
                    [r, [x if math.isfinite(x) else None for x in each]] for r, each in rows.items()
                ]
                for arm, rows in found.items()
            },
        }


def _comes_back(loss: float, kept: Sequence[float], line: Line) -> bool:
    """Return whether a loss equals that of the first kept seed, as far as this machine can tell."""
    if line.get("kind") == circumstances()["kind"]:
        return math.isclose(loss, kept[0], rel_tol=_AGREES)
    if not all(map(math.isfinite, (loss, *kept))):
        return False
    allowed = max(kept) - min(kept) + _ELSEWHERE * abs(kept[0])
    return abs(loss - kept[0]) <= allowed


def _loss(run: Any, task: Task, seed: int) -> float:
    loss = math.inf if run.diverged else evaluate(run.model, task, seed=seed).loss
    return loss if math.isfinite(loss) else math.inf  # NaN would win or lose by its place


def _mean(losses: Sequence[float]) -> float:
    return math.fsum(losses) / len(losses)


def _means(losses: Mapping[float, Sequence[float]]) -> dict[float, float]:
    return {rate: _mean(found) for rate, found in losses.items()}
