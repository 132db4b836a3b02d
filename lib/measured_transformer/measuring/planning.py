"""What measuring takes on one GPU, told beforehand: runs, stacks, steps, and about how many seconds.

Nothing is trained. The plan groups the runs of all measurements as `work` does on an accelerator, where runs
that differ in their seeds alone are one stack, and so are the searches for learning rates. The seconds are a
model of what launching, multiplying and drawing batches take, see `dividing`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from measured_transformer.measuring import jobs as own_jobs
from measured_transformer.measuring import seeds_of
from measured_transformer.measuring.dividing import (
    can_stack,
    core_seconds,
    device_seconds,
    parts_of,
    suits_cores,
)
from measured_transformer.measuring.jobs import Search, wanted_searches
from measured_transformer.measuring.measurement import Measurement
from measured_transformer.provenance import plain
from measured_transformer.training.jobs import Job
from measured_transformer.training.seeding import make_generator

CORES = 16
"""How many cores a machine with an H100-class GPU has."""
_LIMIT = 3600.0


@dataclass
class Stack:
    """Runs that differ in their seeds alone.

    Attributes:
        job: one of them.
        seeds: of all.
        search: whether they choose a learning rate, and are part of no result.
    """

    job: Job
    search: bool
    seeds: set[int] = field(default_factory=set)

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

    def seconds(self, draw: float) -> float:
        """About how long all of them take on a GPU, with so many seconds to draw one batch."""
        return device_seconds(self.job, len(self.seeds), draw=draw)


@dataclass
class Plan:
    """What is to be done.

    Attributes:
        stacks: by what their runs have in common.
        measurements: how many measurements there are.
        looks: how many seeds are looked at.
        draws: task and batch size -> seconds to draw one batch, measured here.
    """

    stacks: dict[str, Stack] = field(default_factory=dict)
    measurements: int = 0
    looks: int = 0
    draws: dict[str, float] = field(default_factory=dict)

    def seconds(self, stacks: Iterable[Stack]) -> float:
        """About how long these take."""
        return sum((one.seconds(self.draws[_drawn(one.job)]) for one in stacks), 0.0)

    def divided(self) -> tuple[float, float]:
        """The same, if cores trained what suits them: seconds of the GPU, and of the cores."""
        theirs = {told: suits_cores(s.job, len(s.seeds), CORES) for told, s in self.stacks.items()}
        work = sum(core_seconds(s.job) * len(s.seeds) for t, s in self.stacks.items() if theirs[t])
        gpu = self.seconds(one for told, one in self.stacks.items() if not theirs[told])
        return gpu, work / CORES

    def merged(self) -> list[Stack]:
        """The same, if runs that differ in their learning rates could be one stack, too."""
        found: dict[str, Stack] = {}
        for one in self.stacks.values():
            told = _told(one.job, without=("learning_rate",)) + str(one.search)
            into = found.setdefault(told, Stack(one.job, one.search))
            into.seeds |= {hash((seed, one.job.settings["learning_rate"])) for seed in one.seeds}
        return list(found.values())


def plan(measurements: Iterable[Measurement], *, seeds: int | None = None) -> Plan:
    """What measuring takes from nothing, all learning rates chosen anew.

    Args:
        measurements: what is measured.
        seeds: how many of each; all that it declares when not given.
    """
    found = Plan()
    searches: dict[str, Search] = {}
    for one in measurements:
        settings, number = one.settings(), one.seeds if seeds is None else min(seeds, one.seeds)
        found.measurements += 1
        for seed in seeds_of(number):
            found.looks += 1
            with _all_searches(searches), wanted_searches():
                asked = one.jobs(seed, **settings)
            for job in asked.values():
                _add(found, job, search=False)
    for search in searches.values():
        for job in search.trials().values():
            _add(found, job, search=True)
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


def as_text(found: Plan) -> str:
    """The plan in words."""
    lines = [f"{found.measurements} measurements, {found.looks:,} seeds to look at."]
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
            f"cannot be stacked), {steps / 1e6:.2f} million steps of a stack, about "
            f"{_minutes(found.seconds(stacks))}"
        )
    alone, merged = found.seconds(every), found.seconds(found.merged())
    within = "within" if alone <= _LIMIT else "more than"
    lines.append(f"all together: about {_minutes(alone)} of one GPU, {within} an hour")
    gpu, cores = found.divided()
    lines.append(
        f"if {CORES} cores trained what suits them: {_minutes(gpu)} of the GPU and meanwhile {_minutes(cores)} "
        "of the cores"
    )
    lines.append(
        f"if runs with other learning rates were stacked, too: {_minutes(merged)} of the GPU"
    )
    slowest = sorted(every, key=lambda one: -found.seconds([one]))[:5]
    lines.append("the longest:")
    lines += [
        f"  {_minutes(found.seconds([one]))}: {len(one.seeds)} runs of {one.steps} steps, "
        f"{one.job.config.n_layers} blocks of width {one.job.config.d_model}, {type(one.job.task).__name__}"
        for one in slowest
    ]
    return "\n".join(lines)


def _add(found: Plan, job: Job, *, search: bool) -> None:
    told = f"{search} {_told(job)}"  # a search comes first, and its seeds are none of the results'
    found.stacks.setdefault(told, Stack(job, search)).seeds.add(job.seed)


def _told(job: Job, *, without: tuple[str, ...] = ()) -> str:
    """What runs of one stack have in common, in words."""
    settings = {name: value for name, value in job.settings.items() if name not in without}
    try:
        given: Mapping[str, Any] = {"config": job.config, "task": job.task, "settings": settings}
        return json.dumps(plain(given), sort_keys=True)
    except (ValueError, TypeError):
        return repr((job.config, job.task, settings))


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
