"""Seconds and bytes of one piece of work, measured side by side with others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

Workload = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """How long one piece of work took, round by round.

    Attributes:
        seconds: of one call, the mean of a round's calls.
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.seconds)

    def times_faster_than(self, other: Timing) -> tuple[float, float, float]:
        """How many times shorter than the other's: of the medians, with a 95 % bootstrap interval.

        Both stem from the same rounds, so the rounds are drawn in pairs.
        """
        own, theirs = np.array(self.seconds), np.array(other.seconds)
        rows = np.random.default_rng(0).integers(len(own), size=(10_000, len(own)))
        ratios = np.median(theirs[rows], axis=1) / np.median(own[rows], axis=1)
        low, high = np.quantile(ratios, (0.025, 0.975))
        return other.median / self.median, float(low), float(high)


def in_turns(
    workloads: Mapping[str, Workload], *, rounds: int, seconds: float, device: str
) -> dict[str, Timing]:
    """Time each piece of work in each round, so that all of them meet the same disturbances.

    Each round begins with another one, and a turn lasts about `seconds`. Two calls go first and do not count.
    """
    calls = {}
    for name, work in workloads.items():
        work()
        once = _timed(work, 1, device)
        calls[name] = max(1, round(seconds / once))
    taken: dict[str, list[float]] = {name: [] for name in workloads}
    names = list(workloads)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(_timed(workloads[name], calls[name], device))
    return {name: Timing(tuple(values)) for name, values in taken.items()}


def _timed(work: Workload, calls: int, device: str) -> float:
    _wait(device)
    start = time.perf_counter()
    for _ in range(calls):
        work()
    _wait(device)
    return (time.perf_counter() - start) / calls


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def peak_bytes(work: Workload, device: str) -> int:
    """The most bytes of tensors that were alive at once during the work, beyond those before it.

    On a CPU each allocation and release of PyTorch is added up; what a kernel takes by itself is not seen.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        work()
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    alive = highest = 0
    for _, change in changes:
        alive += change
        highest = max(highest, alive)
    return highest
