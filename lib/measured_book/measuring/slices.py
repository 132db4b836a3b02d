"""Measuring in slices: a limit of time, and an order in which a slice finishes as many measurements as it can.

A slice starts no call that would end after its time, judged by how long calls have taken so far in it. When the
time is up, what still runs is ended as by an interruption; what is done is kept, and the next slice goes on.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from measured_transformer.training.jobs import Job

from measured_book.measuring.dividing import Group, parts_of, stack_key, took
from measured_book.measuring.progress import cost

T = TypeVar("T")
RESERVE = (0.1, 20.0)
"""The share of a slice, and the most seconds, that are left for ending processes and writing the archive."""


def positive(told: float | str, what: str) -> float:
    """A positive, finite number. Raises ValueError, one sentence, when it is none of `what`."""
    try:
        number = float(told)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"expected a positive number of {what}, got {told!r}")
    return number


class TimeUpError(Exception):
    """The time of a slice is up, and something is left to do."""


class Slice:
    """The time of one slice, and how long its calls take.

    Attributes:
        clock: gives seconds.
        seconds: until calls have to have ended.
        ranks: measurement -> what puts it before others, whatever it costs; the smallest comes first.

    Args:
        minutes: until everything has ended.
        clock: gives seconds.

    Raises:
        ValueError: the minutes are no positive number.
    """

    def __init__(self, minutes: float | str, clock: Callable[[], float] = time.monotonic) -> None:
        number = positive(minutes, "minutes for a slice")
        self.clock = clock
        share, most = RESERVE
        self.seconds = 60 * number - min(60 * number * share, most)
        self._ends = clock() + self.seconds
        self.ranks: dict[str, float] = {}
        self._seen: dict[str, tuple[float, float]] = {}  # kind of call -> seconds, units
        self._turn = threading.Lock()

    @property
    def left(self) -> float:
        """Seconds until its time is up; 0 from then on."""
        return max(0.0, self._ends - self.clock())

    def check(self) -> None:
        """Raise `TimeUpError` when the time is up."""
        if not self.left:
            raise TimeUpError

    def watch(self, future: Future[Any], began: float, kinds: Sequence[str], units: float) -> None:
        """Note how long a call takes, once it has ended well.

        Args:
            future: of the call.
            began: when it was submitted, by the clock.
            kinds: what it counts for.
            units: what it is estimated to cost.
        """

        def note(done: Future[Any]) -> None:
            seconds = self.clock() - began
            if done.cancelled() or done.exception() is not None:
                return
            with self._turn:
                for kind in kinds:
                    before = self._seen.get(kind, (0.0, 0.0))
                    self._seen[kind] = (before[0] + seconds, before[1] + units)

        future.add_done_callback(note)

    def estimate(self, kinds: Iterable[str], units: float) -> float:
        """The seconds that a call will take: 0 where none of its kinds has been seen.

        Args:
            kinds: what it counts for; the first that has been seen decides.
            units: what it is estimated to cost.
        """
        for kind in kinds:
            if kind in self._seen:
                seconds, known = self._seen[kind]
                return units * seconds / known
        return 0.0

    def fits(self, kinds: Iterable[str], units: float, *, resumes: bool = False) -> bool:
        """Return whether a call that starts now ends in time.

        Args:
            kinds, units: as for `estimate`.
            resumes: whether the next slice goes on in the middle of it. Such a call starts also where no slice
                of this length would be long enough.
        """
        seconds, left = self.estimate(kinds, units), self.left
        return left > 0 and (seconds <= left or (resumes and seconds > self.seconds))


@dataclass(eq=False)
class _Shared(Generic[T]):
    """What waits of one stack's runs, and the measurements that cannot be finished without."""

    group: Group[T]
    labels: set[str] = field(default_factory=set)

    def units(self, *, stacked: bool) -> list[float]:
        """The estimated cost of each call that it takes."""
        members = len(self.group.members)
        if not stacked:
            return [cost(self.group.job)] * members
        return [self.group.seconds(part) for part in parts_of(self.group.job, members)]


class MostShared(Generic[T]):
    """A queue of trainings in the order of a slice.

    Next comes the measurement whose missing trainings cost least, where the cost of each is divided among the
    measurements that wait for it; of its trainings, those that most measurements share come first. What cannot
    be finished in the time that is left comes last.

    Args:
        labels_of: the unfinished measurements that wait for an item.
        ranks: measurement -> what puts it before others, whatever it costs; nothing is 0.
    """

    def __init__(
        self, labels_of: Callable[[T], Iterable[str]], ranks: Mapping[str, float] | None = None
    ) -> None:
        self._labels_of, self._ranks = labels_of, ranks or {}
        self._groups: dict[str, _Shared[T]] = {}
        self._changed = False

    def __bool__(self) -> bool:
        """Return whether anything waits."""
        return bool(self._groups)

    def put(self, job: Job, what: T) -> None:
        """Add an item, which is about that run."""
        key = stack_key(job)
        if key not in self._groups:
            self._groups[key] = _Shared(Group(False, job, took(job, 1), took(job, 2)))
        self._groups[key].group.members.append(what)
        self._changed = True

    def ask_again(self) -> None:
        """Take note that other measurements than before may wait for what is here."""
        self._changed = True

    def take(self, *, stacked: bool, fits: Callable[[Job, float], bool]) -> list[T]:
        """Remove and return the items of the next call; an empty list when none is here that fits.

        Args:
            stacked: whether one call trains a stack; else it trains one run.
            fits: whether a call for such a run, of so many units, ends in time.
        """
        self._renew()
        costs = {key: one.units(stacked=stacked) for key, one in self._groups.items()}
        fitting = {
            key for key, units in costs.items() if fits(self._groups[key].group.job, units[0])
        }
        shares: dict[str, float] = {}
        endless: set[str] = set()
        for key, one in self._groups.items():
            for label in one.labels:
                shares[label] = shares.get(label, 0.0) + sum(costs[key]) / len(one.labels)
                if key not in fitting:
                    endless.add(label)

        def place(key: str) -> tuple[bool, float, float, str, int]:
            """The place of the first measurement that waits for it, and its own within that."""
            labels = self._groups[key].labels
            firsts = [(o in endless, self._ranks.get(o, 0.0), shares[o], o) for o in labels]
            return (*min(firsts, default=(True, 0.0, 0.0, "")), -len(labels))

        if not fitting:
            return []
        key = min(fitting, key=place)
        group = self._groups[key].group
        size = group.part if stacked else 1
        taken, group.members = group.members[:size], group.members[size:]
        if not group.members:
            del self._groups[key]
        return taken

    def _renew(self) -> None:
        if self._changed:
            self._changed = False
            for one in self._groups.values():
                one.labels = {x for what in one.group.members for x in self._labels_of(what)}
