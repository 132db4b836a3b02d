"""What a measurement computes, in a few numbers in which all processors agree.

A fingerprint is taken from the first seed in double precision on a CPU, with each training cut to its first ten
steps: the losses of these steps, and of each variable that is read from models so trained, a few sums. Rounding
in double precision is some ten digits smaller than what is compared, so whatever changes what is computed (an
epsilon, a sign, a seed, a learning rate) shows on any processor, and nothing else does. A fingerprint takes
seconds where the measurement takes minutes. That is how changed code is attested without training again.

How many digits carry depends on what is computed: twelve blocks without norms amplify a difference
ten-thousandfold a step. So each fingerprint is taken twice when it is kept, the second time with other kernels,
which sum in another order, and from weights nudged in their thirteenth digit. Only that is kept in which both
agree.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from measured_transformer.parts.kernels.linear import linear_kernel
from measured_transformer.training.device import VARIABLE, cpu_threads
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run
from measured_transformer.training.preparing import Preparation, prepare_model
from measured_transformer.training.tuning import trusting

from measured_book.measuring.jobs import kept_choices
from measured_book.measuring.measurement import Measurement, Variables, measurements_of

STEPS = 10
"""How many first steps of each training are taken."""
NUDGE = 1e-13
"""By what share of themselves weights are moved in the second taking: some hundred times rounding."""
CARRIES = 1e-11
"""By what share of itself a loss may differ between the two takings, to be kept."""
AGREES = 1e-10
"""By what share of itself a kept loss may differ on any processor."""
STEADY = 1e-8
"""By how much a variable's sums may differ between the two takings, to be kept: times the root of its size."""
SAME = 1e-6
"""By how much kept sums may differ on any processor: times the root of the variable's size."""
SLOW = 2.5
"""Seconds of reading, in processor time, after which values are left out: a repeat takes all fingerprints."""
OTHERS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Nehalem",
    "MKL_CBWR": "COMPATIBLE",
}
"""Variables by which PyTorch, oneDNN, OpenBLAS and MKL take other kernels than those of a newer processor."""
ALONE = threading.RLock()
"""Held by what computes: threads of one process share PyTorch's generator, threads and default type."""
_DIGITS = 13
_SMALLEST = 1e-6  # values below count by their size, values above by their digits


@dataclass(frozen=True)
class Fingerprint:
    """The numbers.

    Attributes:
        losses: training -> the losses of its first steps, in nats or whatever its loss is.
        values: variable -> how many values it has, how many of these are NaN, infinite, and two sums of all
            others; see `sums`.
        has_values: whether values were read at all.
    """

    losses: Mapping[str, Sequence[float]] = field(default_factory=dict)
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    has_values: bool = True

    def differences(self, other: Fingerprint) -> list[str]:
        """In what another one differs from this, which is kept: in words, the worst first."""
        found: list[tuple[float, str]] = []
        if strangers := sorted(set(self.losses) ^ set(other.losses)):
            found.append((np.inf, f"other trainings: {', '.join(strangers)}"))
        for name in self.losses.keys() & other.losses.keys():
            old, new = (np.array(each.losses[name], dtype=np.float64) for each in (self, other))
            if new.size < old.size:
                words = f"training {name}: {new.size} first losses, {old.size} kept"
                found.append((np.inf, words))
                continue
            worst = _largest(np.abs(new[: old.size] - old), np.abs(old))
            if worst > AGREES:
                found.append(
                    (worst / AGREES, f"first losses of {name} differ by {worst:.1e} of themselves")
                )
        if other.has_values:
            for name, kept in self.values.items():
                if name not in other.values:
                    found.append((np.inf, f"no variable {name}"))
                elif (apart := _apart(kept, other.values[name])) > SAME:
                    found.append((apart / SAME, f"values of {name} differ"))
        return [words for _, words in sorted(found, key=lambda one: -one[0])]

    def agreeing(self, other: Fingerprint) -> Fingerprint:
        """As much of this as another taking of the same agrees in."""
        losses = {}
        for name, each in self.losses.items():
            old, new = np.array(each), np.array(other.losses.get(name, []))
            length = min(old.size, new.size)
            with np.errstate(invalid="ignore"):
                near = np.abs(old[:length] - new[:length]) <= CARRIES * np.abs(old[:length])
            carries = length if near.all() else int(near.argmin())
            losses[name] = [_rounded(loss) for loss in old[:carries].tolist()]
        values = {
            name: [_rounded(one) for one in each]
            for name, each in self.values.items()
            if name in other.values and _apart(each, other.values[name]) <= STEADY
        }
        return replace(self, losses=losses, values=values)


def sums(values: np.ndarray) -> list[float]:
    """What a fingerprint keeps of an array: its size, how much is NaN and how much infinite, two weighted sums.

    Values are taken by the inverse hyperbolic sine, so that each counts by its digits and not by its size, and
    weighted by cosines and sines of their places: each place by one that is unlike its neighbours'.
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    finite = np.isfinite(flat)
    told = np.where(finite, np.arcsinh(np.where(finite, flat, 0.0) / _SMALLEST), 0.0)
    places = 1.0 + 2.399963 * np.arange(flat.size)
    nan = float(np.isnan(flat).sum())
    infinite = float(np.isinf(flat).sum())
    return [
        float(flat.size),
        nan,
        infinite,
        float(told @ np.cos(places)),
        float(told @ np.sin(places)),
    ]


def _apart(kept: Sequence[float], found: Sequence[float]) -> float:
    """How far sums lie apart, over the root of how many values they are of."""
    if list(kept[:3]) != list(found[:3]):
        return np.inf
    difference = np.abs(np.subtract(kept[3:], found[3:]))
    return float(difference.max(initial=0.0)) / max(kept[0], 1.0) ** 0.5


def _largest(apart: np.ndarray, size: np.ndarray) -> float:
    """The largest of some differences as a share of what differs; infinite where that cannot be told."""
    if not apart.size:
        return 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(apart == 0.0, 0.0, apart / size)
    return float(np.where(np.isnan(shares), np.inf, shares).max())


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


# Taking -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """A fingerprint that was taken, and how.

    Attributes:
        fingerprint: it.
        seconds: that it took, in processor time.
        choices: lines of the table of tuned rates that were taken from it while values were read, with the code
            as it is now.
    """

    fingerprint: Fingerprint
    seconds: float = 0.0
    choices: Sequence[Mapping[str, Any]] = ()


def take_fingerprint(
    measurement: Measurement,
    seed: int,
    *,
    values: bool = True,
    nudged: bool = False,
    most: float = math.inf,
) -> Taken:
    """The fingerprint of a measurement as the code is now.

    Learning rates are those that were chosen before, whatever code they were chosen with. Threads of one
    process take turns, with those that measure as well.

    Args:
        measurement: of what.
        seed: the seed that it is taken from.
        values: whether to read values from what was trained, too.
        nudged: whether weights are moved in their thirteenth digit.
        most: seconds of processor time after which values are left out, where their reading takes longer; they
            are then also left out where models of so few steps cannot be read, or not in double precision.

    Raises:
        NotTunedError: no learning rate was ever chosen for one of its trainings.
    """
    settings, start = measurement.settings(), time.process_time()
    with ALONE, kept_choices(), trusting() as choices:
        jobs = measurement.jobs(seed, **settings)
        with in_double(), cpu_threads(1), linear_kernel("product"):
            runs = _opened(jobs, nudged)
            given: Variables = {}
            if values:
                arguments = [seed] if measurement.trainings is None else [seed, runs]
                try:
                    with _at_most(most):
                        read = measurement.function(*arguments, **settings)
                    # curves of ten steps are shorter than the labels of their axis
                    given = replace(measurement, coords={}).variables(read)
                except _TooLongError:
                    values = False
                except (ValueError, IndexError, RuntimeError):
                    if math.isinf(most):
                        raise
                    values = False
    found = Fingerprint(
        {name_of(name): run.losses.tolist() for name, run in runs.items()},
        {name: sums(array) for name, (_, array) in given.items()},
        values,
    )
    return Taken(found, time.process_time() - start, choices)


class _TooLongError(Exception):
    """A reading that took longer than it may."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """End the block after so many seconds of processor time, where this is a main thread."""
    can = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not can or math.isinf(seconds):
        yield
        return

    def end(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _opened(jobs: Mapping[Any, Job], nudged: bool) -> dict[Any, Run]:
    """The first steps of trainings; those that are asked for under several names once."""
    found: dict[Any, Run] = {}
    known: list[tuple[Job, Run]] = []
    for name, job in jobs.items():
        run = next((run for other, run in known if _is_same(job, other)), None)
        if run is None:
            run = opening(job, nudged=nudged)
            known.append((job, run))
        found[name] = run
    return found


def _is_same(one: Job, other: Job) -> bool:
    try:
        same = (one.config, one.task, one.seed) == (other.config, other.task, other.seed)
        return bool(same and one.settings == other.settings)
    except (ValueError, RuntimeError):  # settings that hold arrays
        return False


def opening(job: Job, steps: int = STEPS, *, nudged: bool = False) -> Run:
    """The first steps of a training.

    Args:
        job: the training.
        steps: how many.
        nudged: whether its fresh weights are moved in their thirteenth digit.
    """
    every, prepare = job.settings["evaluate_every"], job.settings["prepare"]
    taken = min(steps, job.settings["steps"])
    changed = {
        "steps": taken,
        # once, at the end: an evaluation takes longer than a step, and each would tell what the last one tells
        "evaluate_every": None if every is None else taken,
        "prepare": Nudged(prepare) if nudged else prepare,
    }
    return replace(job, settings={**job.settings, **changed}, checkpoint_every=None).train()


@dataclass(frozen=True)
class Nudged:
    """A preparation of a model, after which its weights are moved by a tiny share of themselves."""

    prepare: Preparation | None

    @torch.no_grad()
    def __call__(self, model: Model, *, seed: int) -> None:
        """Prepare the model, then nudge it."""
        prepare_model(model, self.prepare, seed)
        generator = torch.Generator().manual_seed(0)
        for weight in model.parameters():
            shares = torch.rand(weight.shape, generator=generator, dtype=weight.dtype)
            weight.mul_(1 + NUDGE * (2 * shares - 1))


@contextmanager
def in_double() -> Iterator[None]:
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


def name_of(training: Any) -> str:
    """The name of a training in a file: its parts joined by slashes."""
    parts = training if isinstance(training, tuple) else (training,)
    return "/".join(str(part) for part in parts)


def take_by_label(
    label: tuple[str, str],
    seed: int,
    *,
    values: bool = True,
    nudged: bool = False,
    most: float = math.inf,
) -> Taken:
    """The same for a measurement of a room, which a worker process finds by room and name."""
    room, name = label
    one = measurements_of(room)[name]
    return take_fingerprint(one, seed, values=values, nudged=nudged, most=most)


# In words -----------------------------------------------------------------------------------------


def as_plain(fingerprint: Fingerprint) -> dict[str, Any]:
    """A fingerprint as JSON has it."""
    told: dict[str, Any] = {}
    if fingerprint.losses:
        told["losses"] = {name: list(each) for name, each in fingerprint.losses.items()}
    if fingerprint.has_values:
        told["values"] = {name: list(each) for name, each in fingerprint.values.items()}
    return told


def from_plain(told: Mapping[str, Any]) -> Fingerprint:
    """The fingerprint that `as_plain` was given.

    Raises:
        ValueError: it is no fingerprint.
    """
    try:
        losses, values = (
            {str(name): [float(x) for x in each] for name, each in told.get(part, {}).items()}
            for part in ("losses", "values")
        )
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"expected a fingerprint, got {json.dumps(told)[:60]}") from None
    return Fingerprint(losses, values, "values" in told)
