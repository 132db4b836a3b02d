"""What a measurement trains: single runs, and searches for the learning rate that suits an arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.jobs import Job, make_jobs
from measured_transformer.training.tuning import Arm, Tuned, kept_rates, known_rates, trusting

from measured_book.evidence.seeds import seeds_of

Choose = Callable[["Search"], float]
_choose: ContextVar[Choose | None] = ContextVar("choose", default=None)


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


class NotTunedError(LookupError):
    """The table of tuned rates has no learning rate for a search yet."""


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

    Raises:
        NotTunedError: the table does not know it; `make measure` makes the search.
    """
    found = search.known()
    if found is not None:
        return found.rates[search.name]
    choose = _choose.get()
    if choose is None:
        raise not_tuned(search)
    return choose(search)


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
def wanted_searches(known: Mapping[str, float] | None = None) -> Iterator[list[Search]]:
    """Collect the searches that are still to be made, instead of raising an error.

    Args:
        known: the rates that earlier searches found, by `search_key`.
    """
    found: list[Search] = []

    def choose(search: Search) -> float:
        if known is not None and (rate := known.get(search_key(search))) is not None:
            return rate
        found.append(search)
        return search.rates[0]  # never trained with: the search is made first

    with choosing(choose):
        yield found


@contextmanager
def kept_choices() -> Iterator[list[Search]]:
    """Fall back on rates chosen with other code where the table has none for this code; gives those searches.

    For measuring again: whether values come back is asked of the trainings that were measured.
    """
    found: list[Search] = []

    def choose(search: Search) -> float:
        rates = kept_rates(
            search.name,
            Arm(search.config, search.options),
            search.task,
            rates=search.rates,
            seeds=search.seeds,
            steps=search.steps,
        )
        if rates is None:
            raise not_tuned(search)
        found.append(search)
        return rates[search.name]

    with choosing(choose), trusting():
        yield found


def search_key(search: Search) -> str:
    """A text that identifies a search."""
    return "\0".join([search.name, *(str(job.key()) for job in search.trials().values())])
