"""Divides runs into stacks that an accelerator trains at once, and estimates how long each stack takes.

Runs that differ in their seeds alone are one stack. A step of small models is a few hundred kernels of a few
microseconds each, which one core hands out far more slowly than the accelerator does them. So a stack takes a
process nearly all of its time and the accelerator little, and several processes beside one another, each with
a stack of its own, use it better. `work` takes from here what is alike, how large stacks are and which is the
longest.

Where the numbers come from: `STACKED` and `ALONE` were measured on a server's core; `PRODUCTS_A_SECOND` is an
assumption about an H100-class device. They serve to put stacks in order, and for nothing else.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar

from measured_transformer.provenance import plain
from measured_transformer.tasks.task import Task
from measured_transformer.training.ensemble import LARGEST_STACK
from measured_transformer.training.jobs import Job
from measured_transformer.training.seeding import make_generator

T = TypeVar("T")
VARIABLE = "MEASURED_DEVICE_PROCESSES"
MOST_PROCESSES = 16
"""How many processes drive a device at most where nothing else is said."""
STACKED = (3.5e-3, 2.1e-3)
"""Seconds that one step of a stack takes the processor that drives the accelerator, and for each block.

Measured with two models of width 8 on one core of a server, as processor time.
"""
ALONE = (1.8e-3, 1.0e-3)
"""The same for one model that is trained alone."""
PRODUCTS_A_SECOND = 5e12
"""Multiplications and additions that an H100-class GPU does in float32 without TF32, at a tenth of its peak."""


@dataclass(frozen=True)
class Took:
    """The estimated cost of a stack.

    Attributes:
        processor: seconds of the core that hands out its kernels.
        products: seconds that the device multiplies.
    """

    processor: float
    products: float

    @property
    def seconds(self) -> float:
        """Seconds from beginning to end with a device and a core of its own: each step waits for its losses."""
        return self.processor + self.products


def stack_key(job: Job) -> str:
    """A text that is equal for the runs that one stack can hold, and for no others; functions by their repr."""
    settings = job.settings
    given: Mapping[str, Any] = {"config": job.config, "task": job.task, "settings": settings}
    try:
        told = json.dumps(plain(given), sort_keys=True)
    except (ValueError, TypeError):
        told = repr((job.config, job.task, settings))
    return "\n".join([told, *_kinds([job.config, job.task, *settings.values()])])


def _kinds(value: Any) -> Iterator[str]:
    """The classes an object is made of, with their modules, and the functions it holds."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _kinds(one)
    elif value is not None and not isinstance(value, bool | int | float | str):
        yield f"{type(value).__module__} {value!r}" if callable(value) else type(value).__module__
        if is_dataclass(value) and not isinstance(value, type):
            yield from _kinds([getattr(value, one.name) for one in fields(value)])


def can_stack(job: Job) -> bool:
    """Return whether runs from other seeds can be trained with this one: it has no dropout and no hook."""
    return not job.config.dropout and job.settings["after_step"] is None


def parts_of(job: Job, members: int) -> list[int]:
    """The sizes of the stacks for so many runs: as few stacks as possible, of about equal size."""
    largest = LARGEST_STACK if can_stack(job) else 1
    number = -(-members // largest)
    return [members // number + (part < members % number) for part in range(number)]


def took(job: Job, members: int) -> Took:
    """Estimate the cost of one stack.

    Args:
        job: one of its runs.
        members: how many it has.
    """
    steps = job.settings["steps"]
    start, block = STACKED if can_stack(job) and members > 1 else ALONE
    return Took(
        steps * (start + job.config.n_layers * block),
        steps * members * products(job) / PRODUCTS_A_SECOND,
    )


def products(job: Job) -> float:
    """Estimate the multiplications of one step of one run: three for each weight and token."""
    config, weights = job.config, job.config.n_layers * 12 * job.config.d_model**2
    tokens = job.settings["batch_size"] * _length(job.task)
    return float(3 * tokens * (weights + config.vocab * config.d_model))


def _length(task: Task) -> int:
    return int(task.batch(make_generator(0, "training"), 1).inputs.shape[1])


# What waits, and for how many processes -----------------------------------------------------------


def device_processes(cores: int) -> int:
    """The number of processes that share the one device.

    Args:
        cores: how many there are; as many processes, but `MOST_PROCESSES` at most. `MEASURED_DEVICE_PROCESSES`
            names another number, for a device with little memory, of which each takes about half a gigabyte.

    Raises:
        ValueError: the variable holds no positive whole number.
    """
    told = os.environ.get(VARIABLE, "").strip()
    if not told:
        return max(1, min(cores, MOST_PROCESSES))
    if not told.isdecimal() or not int(told):
        raise ValueError(f"expected {VARIABLE} to be a positive whole number, got {told!r}")
    return int(told)


@dataclass(eq=False)
class Group(Generic[T]):
    """What waits of runs that differ in their seeds alone.

    Attributes:
        first: whether more is to be done when they are there.
        job: one of the runs.
        alone, pair: the estimated costs of one run, and of a stack of two.
        members: what waits, one item a run.
    """

    first: bool
    job: Job
    alone: Took
    pair: Took
    members: list[T] = field(default_factory=list)

    @property
    def part(self) -> int:
        """The size of its next stack."""
        return parts_of(self.job, len(self.members))[0]

    @property
    def order(self) -> tuple[bool, float]:
        """Its place in a queue: the smallest comes first."""
        return not self.first, -self.seconds(self.part)

    def seconds(self, part: int) -> float:
        """The estimated seconds of a stack of so many runs."""
        if part == 1:
            return self.alone.seconds
        return self.pair.processor + self.alone.products * part


class Stacks(Generic[T]):
    """A queue of stacks for a device: those that other work waits for come first, then the longest."""

    def __init__(self) -> None:
        self._groups: dict[str, Group[T]] = {}
        self._heap: list[tuple[tuple[bool, float], int, str, int]] = []
        self._count = itertools.count()

    def __bool__(self) -> bool:
        """Return whether anything waits."""
        return bool(self._groups)

    def put(self, job: Job, what: T, *, first: bool = False) -> None:
        """Add an item to the queue.

        Args:
            job: the run that it is about.
            what: it.
            first: whether more is to be done when it is there, such as for the choice of a learning rate.
        """
        key = f"{first} {stack_key(job)}"
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(first, job, took(job, 1), took(job, 2))
        group.members.append(what)
        self._push(key)

    def take(self) -> list[T]:
        """Remove and return the next stack; an empty list when the queue is empty."""
        while self._heap:
            _, _, key, size = heapq.heappop(self._heap)
            group = self._groups.get(key)
            if group is None or size != len(group.members):
                continue  # it grew or shrank, and stands in the heap once more
            part = group.part
            stack, group.members = group.members[:part], group.members[part:]
            if group.members:
                self._push(key)
            else:
                del self._groups[key]
            return stack
        return []

    def _push(self, key: str) -> None:
        group = self._groups[key]
        entry = (group.order, next(self._count), key, len(group.members))
        heapq.heappush(self._heap, entry)
