"""Does the work of all measurements together: learning-rate searches, trainings, evaluations.

Every training is done once, however many measurements and seeds ask for it, the longest first. A seed is
looked at as soon as its own trainings are there. Where learning rates are still to be chosen, the trainings of
those searches come in the same pool, and what waits for them follows.

On an accelerator the same processes train stacks, several at once on the one device: see `dividing`. Within a
limit of time the order is that of `slices`.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

from measured_transformer.training.device import find_device
from measured_transformer.training.ensemble import available_cores
from measured_transformer.training.jobs import Job
from measured_transformer.training.processes import LocalProcesses, ProcessDiedError
from measured_transformer.training.store import Store
from measured_transformer.training.tuning import Arm, Tuned, keep_rates

from measured_book.measuring.dividing import Stacks, device_processes, stack_key, took
from measured_book.measuring.jobs import Search, kept_choices
from measured_book.measuring.measurement import Measurement
from measured_book.measuring.progress import A_LOOK, Progress, cost
from measured_book.measuring.remembering import Memory
from measured_book.measuring.slices import MostShared, Slice, TimeUpError
from measured_book.measuring.trials import (
    CHECKPOINT_EVERY,
    OPENING,
    Trial,
    open_by_name,
    stored_key,
    take,
    take_by_name,
    timed,
    train_one,
    train_stack,
)

Part = Literal["all", "openings"]
_BROKE = (BrokenExecutor, ProcessDiedError)


class TrainingError(RuntimeError):
    """A training that a measurement needs failed; the message says why."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """A measurement from one seed.

    Attributes:
        measurement, seed: which.
        settings: of the measurement, all of them.
        digest: of its code, as it was when the work was planned.
        part: 'all', or 'openings' for the first losses of its trainings alone.
        again: whether it is measured again, so that learning rates are those that were chosen before.
        refused: as soon as it holds an error, this is wanted no more, and ends with it.
    """

    measurement: Measurement
    seed: int
    settings: Mapping[str, Any]
    digest: str
    part: Part = "all"
    again: bool = False
    refused: list[Exception] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The label of the measurement."""
        return self.measurement.label


Outcome = tuple[Wanted, Trial | Exception]


@dataclass(eq=False)
class _Item:
    """A wanted measurement, and what it still waits for: keys of trainings, names of searches."""

    wanted: Wanted
    jobs: Mapping[Any, Job] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    waits: set[str] = field(default_factory=set)
    units: float = A_LOOK
    ended: bool = False
    failed: bool = False


@dataclass(eq=False)
class _Search:
    """A learning-rate search, its trainings, and the items that wait for it."""

    name: str
    search: Search
    trials: Mapping[tuple[float, int], Job]
    keys: set[str] = field(default_factory=set)
    waits: set[str] = field(default_factory=set)
    items: list[_Item] = field(default_factory=list)
    ended: bool = False
    problem: str = ""


@dataclass(eq=False)
class _Training:
    """A missing run, and what waits for it."""

    key: str
    job: Job
    label: str
    waiting: list[_Item | _Search] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        """True if nothing waits for it any longer."""
        return all(isinstance(one, _Item) and one.wanted.refused for one in self.waiting)

    @property
    def labels(self) -> set[str]:
        """The measurements that wait for it."""
        items = [i for w in self.waiting for i in (w.items if isinstance(w, _Search) else [w])]
        return {item.wanted.label for item in items if not item.ended}


@dataclass(eq=False)
class _Stack:
    """Trainings that one process does at once.

    Attributes:
        trainings: which.
        died: whether a process that was at work on them died already.
    """

    trainings: list[_Training]
    died: bool = False


class Workers:
    """Trains and evaluates: in processes of this machine, in stacks on its accelerator, or through an executor.

    Args:
        executor: what trains and looks; processes on the cores of this machine when not given.
        progress: what is told of it.
        table: where choices of learning rates are kept; None for nowhere.
        limit: the time that there is; None for all of it.
    """

    def __init__(
        self,
        executor: Executor | None,
        progress: Progress,
        table: Path | None = None,
        limit: Slice | None = None,
    ) -> None:
        self.table, self._progress, self._open = table, progress, ExitStack()
        self.limit = limit
        self._work: _Work | None = None
        self._asked: WeakSet[Future[Any]] = WeakSet()
        self._given = executor is not None
        self._executor = self._own() if executor is None else executor

    def __enter__(self) -> Workers:
        """Start accepting work."""
        return self

    def __exit__(self, *error: Any) -> bool | None:
        """End the processes, immediately after an error."""
        if error[0] is not None:
            for future in list(self._asked):
                future.cancel()  # or the end of one call would be the beginning of the next
        return self._open.__exit__(*error)

    def _own(self) -> Executor:
        executor: Executor = self._open.enter_context(LocalProcesses(_processes()))
        return executor

    def outcomes(self, wanted: Iterable[Wanted], store: Store) -> Iterator[Outcome]:
        """Yield each wanted item once, with its trial or error, in order of completion.

        Raises:
            TimeUpError: the time is up; what is done has been yielded.
        """
        self._work = _Work(self, wanted, store, self._progress)
        yield from self._work.outcomes()

    def needed(self) -> dict[str, set[str]] | None:
        """The stored runs that what was asked for last still needs: key -> measurements.

        None where the work was not planned to its end, so that nobody knows.
        """
        return {} if self._work is None else self._work.needed()

    # What the work asks for ---------------------------------------------------------------------

    @property
    def is_local(self) -> bool:
        """True if processes of this machine do the work, and not an executor that was given."""
        return not self._given

    @property
    def on_device(self) -> bool:
        """True if this machine's processes train in stacks on its accelerator."""
        return not self._given and find_device().type != "cpu"

    @property
    def places(self) -> float:
        """How many calls to have in flight: slightly more than can run at once, so that no queue builds up.

        On an accelerator, where calls are short and many, each process has its next one at hand; but not within
        a limit of time, since a call has to begin when it is submitted for one to know when it will end.
        """
        if not self._given:
            return (2.0 if self.on_device and self.limit is None else 1.0) * _processes()
        if (number := getattr(self._executor, "_max_workers", None)) is not None:
            return 2.0 * number
        client = getattr(self._executor, "_client", None)  # dask's: its cluster may grow
        return math.inf if client is None else max(1.0, 2.0 * sum(client.nthreads().values()))

    def submit(self, call: partial[Any]) -> Future[Any]:
        """Submit a call; if the executor is broken, this machine runs it."""
        try:
            future = self._executor.submit(call.func, *call.args, **call.keywords)
        except BrokenExecutor:
            self.replace()
            future = self._executor.submit(call.func, *call.args, **call.keywords)
        if not self._given:
            self._asked.add(future)
        return future

    def replace(self) -> None:
        """Replace a broken executor by processes of this machine."""
        if self._given:
            self._progress.note("the executor broke; this machine's processes go on")
            self._executor, self._given = self._own(), False


def _processes() -> int:
    cores = max(1, available_cores())
    return cores if find_device().type == "cpu" else device_processes(cores)


class _Work:
    """All the work of one call of `Workers.outcomes`."""

    def __init__(
        self, workers: Workers, wanted: Iterable[Wanted], store: Store, progress: Progress
    ) -> None:
        self._workers, self._store, self._progress = workers, store, progress
        self._items = [_Item(one) for one in wanted]
        self._trainings: dict[str, _Training] = {}
        self._searches: dict[str, _Search] = {}
        self._rates: dict[str, Tuned] = {}  # what searches found, by what they are told of
        self._memory = Memory()
        self._keys: dict[tuple[str, int], tuple[Job, str | None]] = {}
        self._there: set[str] = set()  # trainings that are done
        self._broken: dict[str, str] = {}  # trainings that failed, and how
        self._queue: list[tuple[float, int, _Training]] = []  # a heap: the longest first
        self._stacks: Stacks[_Training] = Stacks()  # on an accelerator: what was in the queue
        self._limit, self._planned = workers.limit, False
        ranks = None if self._limit is None else self._limit.ranks
        self._shared = MostShared[_Training](lambda training: training.labels, ranks)  # in a slice
        self._suspects: deque[_Stack] = deque()  # whose processes died
        self._looks: deque[_Item] = deque()
        self._running: dict[Future[Any], _Item | _Training | _Stack] = {}
        self._died: set[int] = set()
        self._found: deque[Outcome] = deque()

    def outcomes(self) -> Iterator[Outcome]:
        """Yield each wanted item with its outcome."""
        for item in self._items:
            if self._limit is not None:
                self._limit.check()
            self._progress.expect("looks", item.wanted.label, A_LOOK)
            self._plan(item)
        self._planned = True
        while True:
            while self._found:
                yield self._found.popleft()
            if not (self._waits or self._suspects or self._looks or self._running):
                return
            self._start()
            if self._limit is not None and not (self._running or self._found):
                raise TimeUpError  # nothing that is left fits
            self._collect(block=not self._found)

    @property
    def _waits(self) -> bool:
        """True if trainings wait."""
        return bool(self._queue or self._stacks or self._shared)

    def needed(self) -> dict[str, set[str]] | None:
        """The stored runs that unfinished items and searches need, and for which measurements."""
        if not self._planned:
            return None
        found: dict[str, set[str]] = {}
        for item in self._items:
            if item.ended and not item.failed:
                continue
            chosen = [self._searches[name] for name in item.waits if name in self._searches]
            jobs = [*item.jobs.values(), *(job for one in chosen for job in one.trials.values())]
            for job in jobs:
                alone = self._key(job)
                if alone in self._there:
                    key = stored_key(job, self._store, alone)
                    if key is not None:
                        found.setdefault(key, set()).add(item.wanted.label)
        return found

    # Planning -----------------------------------------------------------------------------------

    def _plan(self, item: _Item) -> None:
        """Determine what an item waits for: learning-rate searches, trainings, or nothing."""
        one = item.wanted
        try:
            with (
                kept_choices()
                if one.again
                else self._memory.wanted_searches(self._rates) as searches
            ):
                item.jobs = one.measurement.jobs(one.seed, **one.settings)
            if one.part != "all":
                item.units = _opening_units(item.jobs.values())
                self._progress.expect_more(item.units - A_LOOK)
                self._looks.append(item)
                return
            if one.again or not searches:
                self._ask(item.jobs.values(), item)
                self._look_if_ready(item)
                return
            chosen = [self._search(search, item) for search in searches]
        except Exception as error:
            self._end(item, error)
            return
        for search in dict.fromkeys(chosen):
            self._choose_if_ready(search)
        self._shared.ask_again()

    def _search(self, search: Search, item: _Item) -> _Search:
        name = self._memory.search_key(search)
        chosen = self._searches.get(name)
        if chosen is None:
            chosen = self._searches[name] = _Search(name, search, search.trials())
            self._ask(chosen.trials.values(), chosen)
        if chosen.ended:  # it failed: what it found would be known
            raise RuntimeError(chosen.problem)
        if item not in chosen.items:
            chosen.items.append(item)
        item.waits.add(name)
        return chosen

    def _ask(self, jobs: Iterable[Job], asking: _Item | _Search) -> None:
        """Queue runs for training, except those that the store has and those that cannot be stored."""
        label = asking.wanted.label if isinstance(asking, _Item) else asking.search.name
        for job in jobs:
            key = self._key(job)
            if key is None:
                continue  # it is trained where it is looked at
            asking.keys.add(key)
            if key in self._broken or key in self._there:
                continue
            training = self._trainings.get(key)
            if training is None:
                if stored_key(job, self._store, key) is not None:
                    self._there.add(key)
                    continue
                training = self._trainings[key] = _Training(key, job, label)
                heapq.heappush(self._queue, (-cost(job), len(self._trainings), training))
                self._progress.expect("trainings", label, cost(job))
            training.waiting.append(asking)
            asking.waits.add(key)

    def _key(self, job: Job) -> str | None:
        """The store key of a run, cached; the job is kept alive, as its functions are identified by address."""
        told = (stack_key(job), job.seed)
        if told not in self._keys:
            self._keys[told] = (job, job.key())
        return self._keys[told][1]

    # Starting -----------------------------------------------------------------------------------

    def _start(self) -> None:
        places = self._workers.places
        while (
            len(self._running) < places
            and not self._enough_evaluations_running(places)
            and (item := self._next_look()) is not None
        ):
            if item.wanted.refused:
                self._end(item, item.wanted.refused[0])
            else:
                self._run(item, partial(self._look, item))
        if self._workers.on_device:
            self._start_stacks(places)
            return
        while len(self._running) < places and (training := self._next_training()) is not None:
            if training.is_refused:
                self._trained(training)
                continue
            call = partial(train_one, training.job, self._store)
            self._run(training, partial(self._workers.submit, call))

    def _run(self, what: _Item | _Training | _Stack, begin: Callable[[], Future[Any]]) -> None:
        """Begin a call, and have a slice know how long it takes."""
        began = 0.0 if self._limit is None else self._limit.clock()
        future = begin()
        self._running[future] = what
        if self._limit is not None:
            self._limit.watch(future, began, *_timing(what))

    def _next_look(self) -> _Item | None:
        """The first item that can be looked at and, in a slice, that fits."""
        for place, item in enumerate(self._looks):
            kinds, units = _timing(item)
            if self._limit is None or item.wanted.refused or self._limit.fits(kinds, units):
                del self._looks[place]
                return item
        return None

    def _next_training(self) -> _Training | None:
        """The longest that waits; in a slice, the next one in its order."""
        if self._limit is None:
            return heapq.heappop(self._queue)[-1] if self._queue else None
        found = self._from_the_shared(stacked=False)
        return found[0] if found else None

    def _from_the_shared(self, *, stacked: bool) -> list[_Training]:
        """The trainings of the next call of a slice; empty when none that waits fits."""
        while self._queue:
            _, _, training = heapq.heappop(self._queue)
            self._shared.put(training.job, training)

        def fits(job: Job, units: float) -> bool:
            assert self._limit is not None
            kind = "stack" if stacked else "training"
            resumes = not stacked and job.settings["steps"] > CHECKPOINT_EVERY
            return self._limit.fits([kind], units, resumes=resumes)

        return self._shared.take(stacked=stacked, fits=fits)

    def _enough_evaluations_running(self, places: float) -> bool:
        """Return whether evaluations make up half of the running calls while the device has work waiting."""
        if not (self._workers.on_device and self._waits):
            return False
        looks = sum(isinstance(one, _Item) for one in self._running.values())
        return looks >= places / 2

    def _start_stacks(self, places: float) -> None:
        while len(self._running) < places and (stack := self._next_stack()) is not None:
            call = partial(train_stack, [one.job for one in stack.trainings], self._store)
            self._run(stack, partial(self._workers.submit, call))

    def _longest_stack(self) -> list[_Training]:
        while self._queue:
            _, _, training = heapq.heappop(self._queue)
            search = any(isinstance(one, _Search) for one in training.waiting)
            self._stacks.put(training.job, training, first=search)
        return self._stacks.take()

    def _next_stack(self) -> _Stack | None:
        """The longest waiting stack, or the next one in the order of a slice.

        One whose process died comes only when the device is otherwise idle.
        """
        limit = self._limit
        take = (
            self._longest_stack if limit is None else partial(self._from_the_shared, stacked=True)
        )
        while together := take():
            for training in together:
                if training.is_refused:
                    self._trained(training)
            if wanted := [one for one in together if not one.is_refused]:
                return _Stack(wanted)
        others = any(isinstance(one, _Stack) for one in self._running.values())
        if not self._suspects or others:
            return None
        fits = limit is None or limit.fits(*_timing(self._suspects[0]))
        return self._suspects.popleft() if fits else None

    def _look(self, item: _Item) -> Future[Trial]:
        one, where = item.wanted, item.wanted.measurement
        label, settings = (where.room, where.name), dict(one.settings)
        if one.part != "all":
            jobs = dict(item.jobs)
            given: tuple[Any, ...] = (label, one.digest, one.seed, settings, jobs)
            return self._workers.submit(partial(open_by_name, *given))
        if where.room:
            given = (label, one.digest, one.seed, settings, self._store, dict(item.jobs))
            return self._workers.submit(partial(take_by_name, *given, chosen_before=one.again))
        future: Future[Trial] = Future()  # defined in a notebook: no other process can find it
        try:
            future.set_result(take(where, one.seed, settings, self._store, item.jobs))
        except Exception as error:
            future.set_exception(error)
        return future

    # Ending -------------------------------------------------------------------------------------

    def _collect(self, *, block: bool) -> None:
        if not self._running:
            return
        longest = None if self._limit is None else self._limit.left
        done, _ = wait(self._running, longest if block else 0, FIRST_COMPLETED)
        if block and not done:
            raise TimeUpError
        for future in done:
            what = self._running.pop(future)
            try:
                result, error = future.result(), None
            except (Exception, CancelledError) as caught:
                result, error = None, caught
            if isinstance(what, _Stack):
                self._stack_ended(what, result or {}, error)
            elif isinstance(error, _BROKE) and self._again(what, error):
                continue
            elif isinstance(what, _Training):
                self._trained(what, "" if error is None else _in_words(error))
            else:
                self._end(what, error if result is None else result)

    def _again(self, what: _Item | _Training, error: BaseException) -> bool:
        """Requeue, once, what died with its process."""
        if isinstance(error, BrokenExecutor):
            self._workers.replace()
        if id(what) in self._died:
            return False
        self._died.add(id(what))
        if isinstance(what, _Training):
            heapq.heappush(self._queue, (-cost(what.job), -len(self._died), what))
        else:
            self._looks.append(what)
        return True

    def _stack_ended(
        self, stack: _Stack, failed: Mapping[int, str], error: BaseException | None
    ) -> None:
        """Notify what waits for a stack; one whose process died is retried alone, then in halves."""
        if isinstance(error, (*_BROKE, MemoryError)):
            if isinstance(error, BrokenExecutor):
                self._workers.replace()
            whole, number = stack.trainings, len(stack.trainings)
            if not stack.died:
                self._suspects.append(_Stack(whole, died=True))
                return
            if number > 1:
                halves = (whole[: number // 2], whole[number // 2 :])
                self._suspects.extend(_Stack(half, died=True) for half in halves)
                return
        for place, training in enumerate(stack.trainings):
            problem = failed.get(place, "") if error is None else _in_words(error)
            self._trained(training, problem)

    def _trained(self, training: _Training, problem: str = "") -> None:
        self._progress.advance("trainings", training.label, cost(training.job))
        if problem:
            self._broken[training.key] = problem
        else:
            self._there.add(training.key)
        for waiting in training.waiting:
            waiting.waits.discard(training.key)
            if isinstance(waiting, _Item):
                self._look_if_ready(waiting)
            else:
                self._choose_if_ready(waiting)

    def _choose_if_ready(self, chosen: _Search) -> None:
        """Keep a search's result once all its trainings are in, and continue with the items that waited."""
        if chosen.waits or chosen.ended:
            return
        chosen.ended = True
        try:
            if problem := self._problem(chosen.keys):
                raise TrainingError(problem)
            self._rates[chosen.name] = self._choice(chosen)
        except Exception as error:
            chosen.problem = f"no learning rate for {chosen.search.name}: {error}"
        for item in chosen.items:
            item.waits.discard(chosen.name)
            if chosen.problem:
                self._end(item, RuntimeError(chosen.problem))
            elif not item.waits and not item.ended:
                self._plan(item)

    def _choice(self, chosen: _Search) -> Tuned:
        search, trials = (
            chosen.search,
            {key: timed(job) for key, job in chosen.trials.items()},
        )

        def choice(table: Path | None) -> Tuned:
            return keep_rates(
                search.name,
                Arm(search.config, search.options),
                search.task,
                trials,
                rates=search.rates,
                seeds=search.seeds,
                steps=search.steps,
                store=self._store,
                table=table,
            )

        try:
            return choice(self._workers.table)
        except OSError as error:
            self._progress.note(f"the learning rate of {search.name} cannot be kept: {error}")
            return choice(None)

    def _look_if_ready(self, item: _Item) -> None:
        if item.waits or item.ended:
            return
        if problem := self._problem(item.keys):
            self._end(item, TrainingError(problem))
        else:
            self._looks.append(item)

    def _problem(self, keys: Iterable[str]) -> str:
        """The errors of failed trainings as text; empty when none failed."""
        told = (self._broken[key] for key in sorted(keys) if key in self._broken)
        return "; ".join(dict.fromkeys(told))

    def _end(self, item: _Item, outcome: Any) -> None:
        if not item.ended:
            item.ended, item.failed = True, isinstance(outcome, Exception)
            self._progress.advance("looks", item.wanted.label, item.units)
            self._found.append((item.wanted, outcome))


def _timing(what: _Item | _Training | _Stack) -> tuple[list[str], float]:
    """What a call counts for when a slice estimates its time, and its units."""
    if isinstance(what, _Item):
        return [f"look {what.wanted.label}", "look"], 1.0
    if isinstance(what, _Training):
        return ["training"], cost(what.job)
    return ["stack"], took(what.trainings[0].job, len(what.trainings)).seconds


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _opening_units(jobs: Iterable[Job]) -> float:
    """Estimate the cost of first losses."""
    return A_LOOK + sum(cost(job) * OPENING / max(job.settings["steps"], 1) for job in jobs)
