"""What measuring takes on one GPU, told beforehand: runs, stacks, steps, and about how many seconds.

Nothing is trained. The plan groups the runs of all measurements as `work` does on an accelerator, where runs
that differ in their seeds alone are one stack, and so are the searches for learning rates. The seconds are a
model of what launching, multiplying and drawing batches take, see `dividing`, and the queue is simulated with
it: several processes with a stack each, what waits for a search after it, looks between.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from measured_transformer.tasks.corpora import missing_files
from measured_transformer.training.jobs import Job
from measured_transformer.training.seeding import make_generator

from measured_book.evidence.results import read_result, results_folder
from measured_book.measuring import jobs as own_jobs
from measured_book.measuring import seeds_of
from measured_book.measuring.dividing import (
    MOST_PROCESSES,
    Took,
    can_stack,
    device_processes,
    parts_of,
    told_of,
    took,
)
from measured_book.measuring.jobs import Search, wanted_searches
from measured_book.measuring.measurement import Measurement
from measured_book.measuring.simulating import Piece, simulate

A_LOOK = 6.0
"""Seconds of a core that a look takes where nothing is known of it."""
LOOK_SHARE = 0.11
"""Which part of a kept result's seconds its looks took, where it trains.

Of 72 measurements on a CPU whose runs were all in the store, with the seconds that each took: 3,500 of 31,700.
"""
BEFORE = 90.0
"""Seconds in which nothing is trained yet: `work` finds out what is wanted and whether the store has it.

Processor time for all 305 measurements on one core of a server, nothing stored and no learning rate known: 12
seconds for their digests, 36 for the runs, and as a run may be stored in two forms on an accelerator, 25 more.
"""
_LIMIT = 3600.0
_LOOK, _SEARCH, _RESULT = range(3)  # the order in which `work` starts what is ready
Sharing = Literal["at once", "in turns"]
"""How kernels of several processes come onto the device: beside one another, as NVIDIA's Multi-Process Service
has them (of the ways to train several models on one GPU that Robroek, Yousefzadeh-Asl-Miandoab and Tözün
compare, arXiv 2209.06018, the one that they recommend), or one process at a time."""


@dataclass
class Stack:
    """Runs that differ in their seeds alone.

    Attributes:
        job: one of them.
        search: whether they choose a learning rate, and are part of no result.
        seeds: of all.
        after: the searches that must be made before; of several sets one is enough.
    """

    job: Job
    search: bool
    seeds: set[int] = field(default_factory=set)
    after: set[frozenset[str]] = field(default_factory=set)

    @property
    def stacks(self) -> bool:
        """Whether the trainer takes them at once."""
        return can_stack(self.job)

    @property
    def steps(self) -> int:
        """Of each run."""
        steps: int = self.job.settings["steps"]
        return steps

    @property
    def parts(self) -> list[int]:
        """How many members each stack has, where there are more than one stack may have."""
        return parts_of(self.job, len(self.seeds))

    def took(self, draw: float) -> list[Took]:
        """About what each stack takes, with so many seconds to draw one batch."""
        known = {members: took(self.job, members, draw=draw) for members in set(self.parts)}
        return [known[members] for members in self.parts]


@dataclass(frozen=True)
class Look:
    """A seed that is looked at.

    Attributes:
        seconds: of a core.
        after: the stacks that must be trained before.
    """

    seconds: float
    after: frozenset[str]


@dataclass
class Plan:
    """What is to be done.

    Attributes:
        stacks: by what their runs have in common.
        measurements: how many measurements there are.
        looks: the seeds that are looked at.
        searches: search -> the stacks that it takes.
        draws: task and batch size -> seconds to draw one batch, measured here.
        left_out: measurements that read a fetched file that is not here.
    """

    stacks: dict[str, Stack] = field(default_factory=dict)
    measurements: int = 0
    looks: list[Look] = field(default_factory=list)
    searches: dict[str, set[str]] = field(default_factory=dict)
    draws: dict[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def took(self, stacks: Iterable[Stack] | None = None) -> Took:
        """About what these take, or all."""
        every = self.stacks.values() if stacks is None else stacks
        each = [one for stack in every for one in stack.took(self.draws[_drawn(stack.job)])]
        return Took(
            sum((one.processor for one in each), 0.0),
            sum((one.kernels for one in each), 0.0),
            sum((one.products for one in each), 0.0),
        )

    def longest(self) -> float:
        """Seconds of the longest stack."""
        every = self.stacks.values()
        each = [one for stack in every for one in stack.took(self.draws[_drawn(stack.job)])]
        return max((one.seconds for one in each), default=0.0)

    def merged(self) -> list[Stack]:
        """The stacks, if runs that differ in their learning rates could be one, too."""
        found: dict[str, Stack] = {}
        for one in self.stacks.values():
            told = told_of(one.job, without=("learning_rate",)) + str(one.search)
            into = found.setdefault(told, Stack(one.job, one.search))
            into.seeds |= {hash((seed, one.job.settings["learning_rate"])) for seed in one.seeds}
        return list(found.values())

    def pieces(self, sharing: Sharing) -> list[Piece]:
        """Stacks and looks for `simulate`: what a process does without a break, and what it waits for."""
        found = [Piece(one.seconds, 0.0, _LOOK, "", (one.after,)) for one in self.looks]
        for told, stack in self.stacks.items():
            after = tuple(
                frozenset[str]().union(*(self.searches[name] for name in names))
                for names in stack.after
            )
            order = _SEARCH if stack.search else _RESULT
            for one in stack.took(self.draws[_drawn(stack.job)]):
                held = one.products + (one.kernels if sharing == "in turns" else 0.0)
                found.append(Piece(one.seconds, held / one.seconds, order, told, after))
        return found

    def simulated(self, processes: int, sharing: Sharing) -> float:
        """Seconds until all is measured.

        Args:
            processes: how many drive the device, and look meanwhile.
            sharing: how they share it. `in turns` counts nothing for the change from one to another, and so
                is what it takes at least.
        """
        looks = {
            _LOOK: max(1, processes // 2)
        }  # so many at once while the device has something to do
        return BEFORE + simulate(self.pieces(sharing), processes, looks)


def plan(measurements: Iterable[Measurement], *, seeds: int | None = None) -> Plan:
    """What measuring takes from nothing, all learning rates chosen anew.

    Args:
        measurements: what is measured.
        seeds: how many of each; all that it declares when not given.
    """
    found = Plan()
    searches: dict[str, Search] = {}
    for one in measurements:
        if missing_files(one.corpora):
            found.left_out.append(one.label)
            continue
        settings, number = one.settings(), one.seeds if seeds is None else min(seeds, one.seeds)
        found.measurements += 1
        look = look_seconds(one)
        for seed in seeds_of(number):
            own: dict[str, Search] = {}
            with _all_searches(own), wanted_searches():
                asked = one.jobs(seed, **settings)
            searches.update(own)
            needed = [_add(found, job, own, search=False) for job in asked.values()]
            found.looks.append(Look(look, frozenset(needed)))
    for name, search in searches.items():
        trials = search.trials().values()
        found.searches[name] = {_add(found, job, (), search=True) for job in trials}
    for stack in found.stacks.values():
        name = _drawn(stack.job)
        if name not in found.draws:
            found.draws[name] = draw_seconds(stack.job)
    return found


def draw_seconds(job: Job) -> float:
    """How long one batch takes to draw here, of one core's time."""
    generator, size = make_generator(0, "training"), job.settings["batch_size"]
    job.task.batch(generator, size)
    start = time.process_time()
    for _ in range(3):
        job.task.batch(generator, size)
    return (time.process_time() - start) / 3


def look_seconds(measurement: Measurement) -> float:
    """About how long a core looks at one seed: from the seconds that the kept result took."""
    try:
        file = results_folder(measurement.room) / f"{measurement.name}.json"
        kept = read_result(file)
        seconds = float(kept.provenance["seconds"]) / len(kept.seeds)
    except (OSError, ValueError, KeyError):
        return A_LOOK
    return seconds if measurement.trainings is None else LOOK_SHARE * seconds


def as_text(found: Plan) -> str:
    """The plan in words."""
    lines = [f"{found.measurements} measurements, {len(found.looks):,} seeds to look at."]
    if found.left_out:
        lines.append(f"left out, as their corpus is not here: {', '.join(found.left_out)}")
    every = list(found.stacks.values())
    kinds = {
        "results": [one for one in every if not one.search],
        "searches for learning rates": [one for one in every if one.search],
    }
    for name, stacks in kinds.items():
        runs = sum(len(one.seeds) for one in stacks)
        parts = sum(len(one.parts) for one in stacks)
        steps = sum(one.steps * len(one.parts) for one in stacks)
        single = sum(len(one.seeds) for one in stacks if not one.stacks)
        lines.append(
            f"{name}: {runs:,} runs in {parts:,} stacks ({runs / max(parts, 1):.1f} runs each; {single:,} runs "
            f"cannot be stacked), {steps / 1e6:.2f} million steps of a stack, one after another about "
            f"{_minutes(found.took(stacks).seconds)}"
        )
    number, all_of_it = device_processes(MOST_PROCESSES), found.took()
    looks = sum((one.seconds for one in found.looks), 0.0)
    own = all_of_it.kernels + all_of_it.products
    lines.append(
        f"the processor hands out kernels for {_minutes(all_of_it.processor)} and looks for {_minutes(looks)}; "
        f"the device's own time is {_minutes(own)}, and the longest stack takes {_minutes(found.longest())}"
    )
    at_once, in_turns = (
        found.simulated(number, "at once"),
        found.simulated(number, "in turns"),
    )
    lines += [
        f"{number} processes, each with a stack of its own, a simulation of this model and no measurement:",
        "  kernels of several processes at once, under NVIDIA's MPS, which make measure starts where the "
        f"driver has it: about {_minutes(at_once)}, {_within(at_once)}",
        "  processes in turns, where it has none or MEASURED_MPS=0 says so: "
        f"{_minutes(in_turns)} at least, {_within(in_turns)}",
    ]
    merged = found.took(found.merged()).processor
    lines.append(
        f"if runs with other learning rates were stacked, too: {_minutes(merged)} of the processor for kernels"
    )
    slowest = sorted(every, key=lambda one: -found.took([one]).seconds)[:5]
    lines.append("the longest:")
    lines += [
        f"  {_minutes(found.took([one]).seconds)}: {len(one.seeds)} runs of {one.steps} steps, "
        f"{one.job.config.n_layers} blocks of width {one.job.config.d_model}, {type(one.job.task).__name__}"
        for one in slowest
    ]
    return "\n".join(lines)


def _within(seconds: float) -> str:
    return "within an hour" if seconds <= _LIMIT else "more than an hour"


def _add(found: Plan, job: Job, after: Iterable[str], *, search: bool) -> str:
    told = (
        f"{search} {told_of(job)}"  # a search comes first, and its seeds are none of the results'
    )
    stack = found.stacks.setdefault(told, Stack(job, search))
    stack.seeds.add(job.seed)
    stack.after.add(frozenset(after))
    return told


def _drawn(job: Job) -> str:
    return f"{job.task!r} {job.settings['batch_size']}"


@contextmanager
def _all_searches(found: dict[str, Search]) -> Iterator[None]:
    """Gather every search that is asked for, those among them that were made already."""
    known = own_jobs.Search.known

    def noted(search: Search) -> Any:
        found[repr(search)] = search
        return known(search)

    own_jobs.Search.known = noted  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        own_jobs.Search.known = known  # type: ignore[method-assign]


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
