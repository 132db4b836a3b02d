"""The first losses of trainings: what a repeat compares where a value may differ by rounding.

Rounding differs among kinds of machines, and a training amplifies it. In double precision, on a CPU, the first
losses of a training agree among all machines to many digits none the less, so that whatever changes what is
computed shows in them: an epsilon, a sign, a seed. How far that carries depends on the training: twelve blocks
without norms amplify a difference ten-thousandfold a step. So a second training, from weights nudged in their
thirteenth digit, tells after how many steps rounding alone could show, and no more are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from measured_transformer.training.device import VARIABLE
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, train

DOUBLE_STEPS = 10
"""How many first losses are kept in double precision, at most."""
NUDGE = 1e-13
"""By what share of themselves the weights of the second training are moved: some hundred times rounding."""
CARRIES = 1e-11
"""By what share of itself a loss may be moved by that, to be kept."""
AGREES = 1e-10
"""By what share of itself a kept loss may differ on any machine."""
_DIGITS = 13


def first_losses(job: Job, steps: int = DOUBLE_STEPS, *, double: bool = False) -> list[float]:
    """The losses of the first steps of a training.

    Args:
        job: the training.
        steps: how many.
        double: whether to compute in double precision, on the CPU whatever else there is.
    """
    if not double:
        return _losses(job, steps, job.settings["prepare"])
    with _in_double():
        return [_rounded(loss) for loss in _losses(job, steps, job.settings["prepare"])]


def double_opening(job: Job) -> list[float]:
    """The first losses of a training in double precision, as far as rounding does not show in them."""
    with _in_double():
        losses = np.array(_losses(job, DOUBLE_STEPS, job.settings["prepare"]))
        nudged = np.array(_losses(job, DOUBLE_STEPS, Nudged(job.settings["prepare"])))
    length = min(losses.size, nudged.size)
    with np.errstate(invalid="ignore"):
        moved = np.abs(losses[:length] - nudged[:length]) > CARRIES * np.abs(losses[:length])
    moved |= ~np.isfinite(losses[:length])
    carries = int(moved.argmax()) if moved.any() else length
    return [_rounded(loss) for loss in losses[:carries].tolist()]


@dataclass(frozen=True)
class Nudged:
    """A preparation of a model, after which its weights are moved by a tiny share of themselves."""

    prepare: Callable[[Model], None] | None

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Prepare the model, then nudge it."""
        if self.prepare is not None:
            self.prepare(model)
        generator = torch.Generator().manual_seed(0)
        for weight in model.parameters():
            shares = torch.rand(weight.shape, generator=generator, dtype=weight.dtype)
            weight.mul_(1 + NUDGE * (2 * shares - 1))


def _losses(job: Job, steps: int, prepare: Any) -> list[float]:
    given = {**job.settings, "steps": min(steps, job.settings["steps"]), "prepare": prepare}
    given["evaluate_every"] = None
    losses: list[float] = train(job.config, job.task, seed=job.seed, **given).losses.tolist()
    return losses


def _rounded(loss: float) -> float:
    return float(f"{loss:.{_DIGITS}g}")


@contextmanager
def _in_double() -> Iterator[None]:
    """Compute in double precision on the CPU. No other thread of this process may compute meanwhile."""
    kind, device = torch.get_default_dtype(), os.environ.get(VARIABLE)
    torch.set_default_dtype(torch.float64)
    os.environ[VARIABLE] = "cpu"
    try:
        yield
    finally:
        torch.set_default_dtype(kind)
        if device is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = device
