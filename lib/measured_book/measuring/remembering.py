"""What is known of searches for learning rates, so that what many seeds ask for is found out once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from measured_transformer.training.tuning import Tuned

from measured_book.measuring import jobs
from measured_book.measuring.dividing import told_of as alike
from measured_book.measuring.jobs import Search, choosing, job, told_of


class Memory:
    """What the table of tuned rates and the names of searches were when they were first asked for."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._known: dict[str, Tuned | None] = {}
        self._alive: list[
            Search
        ] = []  # a function's address is no other's as long as that is there

    def told_of(self, search: Search) -> str:
        """As `jobs.told_of`."""
        words = self._words(search)
        if words not in self._told:
            self._alive.append(search)
            self._told[words] = told_of(search)
        return self._told[words]

    @contextmanager
    def wanted_searches(self, known: Mapping[str, float]) -> Iterator[list[Search]]:
        """As `jobs.wanted_searches`; the table is asked once for each search."""
        found: list[Search] = []
        ask = jobs.Search.known

        def remembered(search: Search) -> Tuned | None:
            words = self._words(search)
            if words not in self._known:
                self._alive.append(search)
                self._known[words] = ask(search)
            return self._known[words]

        def choose(search: Search) -> float:
            if (rate := known.get(self.told_of(search))) is not None:
                return rate
            found.append(search)
            return search.rates[0]  # never trained with: the search is made first

        jobs.Search.known = remembered  # type: ignore[method-assign, assignment]
        try:
            with choosing(choose):
                yield found
        finally:
            jobs.Search.known = ask  # type: ignore[method-assign]

    def _words(self, search: Search) -> str:
        asked = {**search.options, "steps": search.steps, "learning_rate": search.rates[0]}
        one = job(search.config, search.task, search.seeds[0], **asked)
        return "\0".join([search.name, repr(search.rates), repr(search.seeds), alike(one)])
