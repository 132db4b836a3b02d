"""What measuring takes on one GPU, told beforehand: runs, stacks, steps, and about how many seconds.

Nothing is trained. The plan groups the runs of all measurements as `work` does on an accelerator, where runs
that differ in their seeds alone are one stack, and so are the searches for learning rates. The seconds are a
model with three numbers, see `SECONDS_A_LAYER`, `PRODUCTS_A_SECOND` and `draw_seconds`.
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
from measured_transformer.measuring.jobs import Search, wanted_searches
from measured_transformer.measuring.measurement import Measurement
from measured_transformer.provenance import plain
from measured_transformer.training.ensemble import LARGEST_STACK
from measured_transformer.training.jobs import Job
from measured_transformer.training.seeding import make_generator

SECONDS_A_LAYER = 1.5e-3
"""What a step of a stack takes for each block, and once more for all else, however small its models are.

On an H200, 142 s for the first seeds of 239 measurements, looks and all, bound it from above.
"""
PRODUCTS_A_SECOND = 5e12
"""Multiplications with an addition that an H100-class GPU does in float32 without TF32, at a tenth of its peak."""
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
        """Whether the trainer takes them at once; dropout and looks after each step forbid it."""
        return not self.job.config.dropout and self.job.settings["after_step"] is None

    @property
    def steps(self) -> int:
        """Of each run."""
        steps: int = self.job.settings["steps"]
        return steps

    @property
    def parts(self) -> list[int]:
        """How many members each stack has, where there are more than one stack may have."""
        largest, left = (LARGEST_STACK if self.stacks else 1), len(self.seeds)
        return [min(largest, left - done) for done in range(0, left, largest)]

    def seconds(self, draw: float) -> float:
        """About how long all of them take, with so many seconds to draw one batch."""
        config = self.job.config
        launched = (1 + config.n_layers) * SECONDS_A_LAYER
        member = draw + products(self.job) / PRODUCTS_A_SECOND
        return sum(self.steps * (launched + count * member) for count in self.parts)


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
        return sum(one.seconds(self.draws[_drawn(one.job)]) for one in stacks)

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


def products(job: Job) -> float:
    """About how many multiplications one training step of one run takes: three for each weight and token."""
    config, rows = job.config, job.settings["batch_size"]
    batch = job.task.batch(make_generator(0, "training"), 1)
    weights = config.n_layers * 12 * config.d_model**2 + config.vocab * config.d_model
    return float(3 * rows * batch.inputs.shape[1] * weights)


def draw_seconds(job: Job) -> float:
    """How long one batch takes to draw here, on one core."""
    generator, size = make_generator(0, "training"), job.settings["batch_size"]
    job.task.batch(generator, size)
    start = time.perf_counter()
    for _ in range(3):
        job.task.batch(generator, size)
    return (time.perf_counter() - start) / 3


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
    total, merged = found.seconds(every), found.seconds(found.merged())
    within = "within" if total <= _LIMIT else "more than"
    lines.append(f"all together: about {_minutes(total)} of one GPU, {within} an hour")
    lines.append(f"if runs with other learning rates were stacked, too: about {_minutes(merged)}")
    slowest = sorted(every, key=lambda one: -found.seconds([one]))[:5]
    lines.append("the longest:")
    lines += [
        f"  {_minutes(found.seconds([one]))}: {len(one.seeds)} runs of {one.steps} steps, "
        f"{one.job.config.n_layers} blocks of width {one.job.config.d_model}, {type(one.job.task).__name__}"
        for one in slowest
    ]
    return "\n".join(lines)


def _add(found: Plan, job: Job, *, search: bool) -> None:
    told = _told(job)
    stack = found.stacks.get(told)
    if stack is None:
        stack = found.stacks[told] = Stack(job, search)
    stack.seeds.add(job.seed)
    stack.search = stack.search and search


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

    own_jobs.Search.known = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        own_jobs.Search.known = known  # type: ignore[method-assign]


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
