"""What a measurement trains: single runs, and searches for the learning rate that suits an arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from measured_transformer.measuring.measurement import seeds_of
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.jobs import Job, make_jobs
from measured_transformer.training.tuning import Arm, Tuned, known_rates

_wanted: ContextVar[list[Search] | None] = ContextVar("wanted", default=None)


@dataclass(frozen=True)
class Search:
    """The choice of one arm's learning rate: by the smallest mean loss on held-out sequences over tuning seeds.

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
        """The trainings that the choice takes, by rate and seed."""
        options = {**self.options, "steps": self.steps}
        return {
            (rate, seed): job(self.config, self.task, seed, learning_rate=rate, **options)
            for rate in sorted(set(self.rates))
            for seed in self.seeds
        }

    def known(self) -> Tuned | None:
        """What the table of tuned rates says; None where the search has not been made with this code."""
        return known_rates(
            self.name,
            {self.name: Arm(self.config, self.options)},
            self.task,
            rates=self.rates,
            seeds=self.seeds,
            steps=self.steps,
        )


class NotTunedError(LookupError):
    """A learning rate that the table of tuned rates does not know yet."""


def job(config: Config, task: Task, seed: int, **options: Any) -> Job:
    """One run to be trained, from one seed.

    Args:
        config, task, seed: as for `training.loop.train`.
        options: its other arguments; `steps` and `learning_rate` are needed.
    """
    return make_jobs(config, task, [seed], options)[0]


def tuning_seeds(count: int) -> list[int]:
    """The seeds that rates are chosen on, which nothing is evaluated on; the same at every seed offset."""
    return seeds_of(count, "tuning", offset=0)


def tuned(search: Search) -> float:
    """The learning rate that suits an arm best.

    Raises:
        NotTunedError: the table does not know it; `make measure` makes the search.
    """
    found = search.known()
    if found is not None:
        return found.rates[search.name]
    wanted = _wanted.get()
    if wanted is None:
        raise NotTunedError(
            f"expected the learning rate of {search.name} in the table of tuned rates, got none for this code "
            "and these settings; make measure finds it"
        )
    wanted.append(search)
    return search.rates[0]  # never trained with: the search is made first


@contextmanager
def wanted_searches() -> Iterator[list[Search]]:
    """Gather, in place of an error, the searches whose results are not known yet."""
    found: list[Search] = []
    token = _wanted.set(found)
    try:
        yield found
    finally:
        _wanted.reset(token)
