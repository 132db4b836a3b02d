"""Who would best train what on a machine with an accelerator: it large stacks, the cores beside it all else.

The plan counts with it; `work` does not do so yet, and leaves all training to the accelerator.

A model of a few thousand weights leaves an accelerator idle; what its steps take is how fast one core hands out
the work. Many such models in one stack cost little more than one. Few of them, or those that cannot be stacked,
are done sooner by all cores, a run each.
"""

from __future__ import annotations

from measured_transformer.measuring.progress import cost
from measured_transformer.tasks.task import Task
from measured_transformer.training.ensemble import LARGEST_STACK
from measured_transformer.training.jobs import Job
from measured_transformer.training.seeding import make_generator

STACKED = (3.5e-3, 2.1e-3)
"""Seconds that one step of a stack takes the processor that drives the accelerator, and for each block.

Measured with two models of width 8 on one core of a server, as processor time.
"""
ALONE = (1.8e-3, 1.0e-3)
"""The same for one model that is trained alone."""
PRODUCTS_A_SECOND = 5e12
"""Multiplications and additions that an H100-class GPU does in float32 without TF32, at a tenth of its peak."""
CORE = 4.2
"""How many times longer than `progress.cost` says a run takes on one core: so long the kept results took, looks
and all."""

MARGIN = 3.0
"""How many times sooner cores must be done than the accelerator would be: so both end at about one time."""


def can_stack(job: Job) -> bool:
    """Whether runs from other seeds may be trained with it: no dropout, no look after each step."""
    return not job.config.dropout and job.settings["after_step"] is None


def parts_of(job: Job, members: int) -> list[int]:
    """How many members the stacks have that so many runs make."""
    largest = LARGEST_STACK if can_stack(job) else 1
    return [min(largest, members - done) for done in range(0, members, largest)]


def device_seconds(job: Job, members: int, *, draw: float = 0.0) -> float:
    """About how long an accelerator takes for a job from so many seeds.

    Args:
        job: one of the runs.
        members: how many.
        draw: seconds to draw one batch.
    """
    start, block = STACKED if can_stack(job) else ALONE
    launched = start + job.config.n_layers * block
    member = draw + products(job) / PRODUCTS_A_SECOND
    steps: int = job.settings["steps"]
    return sum((steps * (launched + count * member) for count in parts_of(job, members)), 0.0)


def core_seconds(job: Job) -> float:
    """About how long one core takes for one run."""
    return CORE * cost(job) / 1e3


def suits_cores(job: Job, members: int, cores: int) -> bool:
    """Whether all cores together are done with so many runs well before the accelerator would be.

    Args:
        job: one of the runs.
        members: how many, which differ in their seeds alone.
        cores: how many there are beside the accelerator.
    """
    return MARGIN * members * core_seconds(job) / cores < device_seconds(job, members)


def products(job: Job) -> float:
    """About how many multiplications one step of one run takes: three for each weight and token."""
    config, weights = job.config, job.config.n_layers * 12 * job.config.d_model**2
    tokens = job.settings["batch_size"] * _length(job.task)
    return float(3 * tokens * (weights + config.vocab * config.d_model))


def _length(task: Task) -> int:
    return int(task.batch(make_generator(0, "training"), 1).inputs.shape[1])
