"""Caches what is known of learning-rate searches, so that each is looked up once for many seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from measured_transformer.training.tuning import Tuned

from measured_book.measuring import jobs
from measured_book.measuring.dividing import stack_key
from measured_book.measuring.jobs import Search, choosing, job, pending, search_key


class Memory:
    """Caches lookups in the table of tuned rates, and the keys of searches."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._known: dict[str, Tuned | None] = {}
        self._alive: list[
            Search
        ] = []  # a function's address is no other's as long as that is there

    def search_key(self, search: Search) -> str:
        """`jobs.search_key` with a cache."""
        words = self._words(search)
        if words not in self._told:
            self._alive.append(search)
            self._told[words] = search_key(search)
        return self._told[words]

    @contextmanager
    def wanted_searches(self, known: Mapping[str, Tuned]) -> Iterator[list[Search]]:
        """`jobs.wanted_searches`, with one lookup in the table for each search."""
        found: list[Search] = []
        ask = jobs.Search.known

        def remembered(search: Search) -> Tuned | None:
            words = self._words(search)
            if words not in self._known:
                self._alive.append(search)
                self._known[words] = ask(search)
            return self._known[words]

        def choose(search: Search) -> Tuned:
            if (kept := known.get(self.search_key(search))) is not None:
                return kept
            found.append(search)
            return pending(search)

        jobs.Search.known = remembered  # type: ignore[method-assign, assignment]
        try:
            with choosing(choose):
                yield found
        finally:
            jobs.Search.known = ask  # type: ignore[method-assign]

    def _words(self, search: Search) -> str:
        asked = {**search.options, "steps": search.steps, "learning_rate": search.rates[0]}
        one = job(search.config, search.task, search.seeds[0], **asked)
        return "\0".join([search.name, repr(search.rates), repr(search.seeds), stack_key(one)])
