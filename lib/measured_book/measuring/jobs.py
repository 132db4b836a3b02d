"""What a measurement trains: single runs, and searches for the learning rate that suits an arm."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.jobs import Job, make_jobs
from measured_transformer.training.tuning import Arm, Tuned, kept_rates, known_rates, trusting

from measured_book.evidence.seeds import seeds_of

Choose = Callable[["Search"], Tuned]
_choose: ContextVar[Choose | None] = ContextVar("choose", default=None)
FURTHER = 3
"""How many rates beyond the end of its grid a search may go on to."""
REASONS = Path(__file__).with_name("at_the_edge.toml")
"""The arms whose best rate may be the smallest or largest of its grid, each with the reason."""


@dataclass(frozen=True)
class Search:
    """The search for one arm's learning rate: the smallest mean loss on held-out sequences over tuning seeds.

    Attributes:
        name: of the arm in its comparison; names the choice in the table of tuned rates.
        config: the model.
        task: what it learns.
        rates: the grid: the same for all arms of a comparison.
        seeds: tuning seeds, see `tuning_seeds`.
        steps: number of batches, the same as in the comparison.
        options: the other arguments of `train`.

    Raises:
        ValueError: no rate, or no seed.
    """

    name: str
    config: Config
    task: Task
    rates: Sequence[float]
    seeds: Sequence[int]
    steps: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rates or not self.seeds:
            raise ValueError(
                f"{self.name}: expected at least one rate and one seed, got {self.rates}, {self.seeds}"
            )

    def trials(self) -> dict[tuple[float, int], Job]:
        """The trainings of the search, by rate and seed."""
        options = {**self.options, "steps": self.steps}
        return {
            (rate, seed): job(self.config, self.task, seed, learning_rate=rate, **options)
            for rate in sorted(set(self.rates))
            for seed in self.seeds
        }

    def known(self) -> Tuned | None:
        """The kept result of the search; None when it has not been made with this code."""
        return known_rates(
            self.name,
            {self.name: Arm(self.config, self.options)},
            self.task,
            rates=self.rates,
            seeds=self.seeds,
            steps=self.steps,
        )

    def is_at_edge(self, found: Tuned) -> bool:
        """Return whether the best rate is the smallest or largest of the grid, where no reason allows that."""
        return self.name in found.at_edge and self.name not in reasons_at_edge()

    def wider(self, best: float) -> Search:
        """The same search with one more rate, beyond the end of the grid at which the best rate lies."""
        rates = sorted(set(self.rates))
        end, next_to_it = (rates[0], rates[1]) if best == rates[0] else (rates[-1], rates[-2])
        beyond = float(f"{end * end / next_to_it:.6g}")
        return replace(self, rates=sorted([*rates, beyond]))


class NotTunedError(LookupError):
    """The table of tuned rates has no learning rate for a search yet."""


class EdgeError(ValueError):
    """The best rate of a search is the smallest or largest that was tried."""


def job(config: Config, task: Task, seed: int, **options: Any) -> Job:
    """One run to be trained, from one seed.

    Args:
        config, task, seed: as for `training.loop.train`.
        options: its other arguments; `steps` and `learning_rate` are needed.
    """
    return make_jobs(config, task, [seed], options)[0]


def tuning_seeds(count: int) -> list[int]:
    """The seeds used for choosing rates, never for evaluation; the same at every seed offset."""
    return seeds_of(count, "tuning", offset=0)


def tuned(search: Search) -> float:
    """The learning rate that suits an arm best.

    Where that is the smallest or largest rate of the grid, another could be better: the search goes on beyond
    that end, by the ratio of the grid's last two rates, until the best rate lies inside.

    Raises:
        NotTunedError: the table does not know it; `make measure` makes the search.
        EdgeError: the best rate still lies at the end after `FURTHER` more rates, and no reason is given.
    """
    asked, found = search, _found(search)
    for _ in range(FURTHER):
        if not asked.is_at_edge(found):
            break
        asked = asked.wider(found.rates[search.name])
        found = _found(asked)
    if asked.is_at_edge(found):
        grid = ", ".join(f"{rate:g}" for rate in asked.rates)
        raise EdgeError(
            f"expected the best learning rate of {search.name} inside its grid, got "
            f"{found.rates[search.name]:g}, at the end of {grid}; widen the grid, or say in {REASONS.name} "
            "why it does not matter"
        )
    return found.rates[search.name]


def _found(search: Search) -> Tuned:
    """The kept result of a search, or what is to be taken for it where there is none."""
    found = search.known()
    if found is not None:
        return found
    choose = _choose.get()
    if choose is None:
        raise not_tuned(search)
    return choose(search)


@lru_cache(maxsize=1)
def reasons_at_edge() -> Mapping[str, str]:
    """For each arm whose best rate may lie at the end of its grid, why that does not matter."""
    reasons: dict[str, str] = tomllib.loads(REASONS.read_text("utf-8"))
    return reasons


def pending(search: Search) -> Tuned:
    """Stands for the result of a search that is still to be made; its rate is never trained with."""
    return Tuned({search.name: search.rates[0]}, {}, (), False)


def not_tuned(search: Search) -> NotTunedError:
    """The error to raise when the table of tuned rates lacks a search."""
    return NotTunedError(
        f"expected the learning rate of {search.name} in the table of tuned rates, got none for this code "
        "and these settings; make measure finds it"
    )


@contextmanager
def choosing(choose: Choose) -> Iterator[None]:
    """Let a function answer searches that the table lacks, instead of raising an error."""
    token = _choose.set(choose)
    try:
        yield
    finally:
        _choose.reset(token)


@contextmanager
def wanted_searches(known: Mapping[str, Tuned] | None = None) -> Iterator[list[Search]]:
    """Collect the searches that are still to be made, instead of raising an error.

    Args:
        known: what earlier searches found, by `search_key`.
    """
    found: list[Search] = []

    def choose(search: Search) -> Tuned:
        if known is not None and (kept := known.get(search_key(search))) is not None:
            return kept
        found.append(search)
        return pending(search)

    with choosing(choose):
        yield found


@contextmanager
def kept_choices() -> Iterator[list[Search]]:
    """Fall back on rates chosen with other code where the table has none for this code; gives those searches.

    For measuring again: whether values come back is asked of the trainings that were measured.
    """
    found: list[Search] = []

    def choose(search: Search) -> Tuned:
        kept = kept_rates(
            search.name,
            Arm(search.config, search.options),
            search.task,
            rates=search.rates,
            seeds=search.seeds,
            steps=search.steps,
        )
        if kept is None:
            raise not_tuned(search)
        found.append(search)
        return kept

    with choosing(choose), trusting():
        yield found


def search_key(search: Search) -> str:
    """A text that identifies a search."""
    return "\0".join([search.name, *(str(job.key()) for job in search.trials().values())])
