"""Comparing what was measured again with what is kept.

On the same kind of machine the same code gives the same values, to the last bit. Elsewhere rounding differs,
and a training's later steps with it: there a value may lie anywhere within the spread of the kept seeds,
widened by the measurement's tolerance. Where nothing is trained nothing amplifies rounding: there values agree
to a thousandth. What rounding cannot explain is found even so: in double precision the
first losses of a training agree among all machines (see `openings`), and a changed epsilon, a swapped sign or
another seed shows in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from measured_book.evidence.results import Result
from measured_book.measuring.measurement import Measurement, Variables
from measured_book.measuring.openings import AGREES
from measured_book.measuring.trials import Trial

FEW = 60.0
"""How a spread is widened where seeds are few: by so many times itself, over the square of the seeds less one.

What a training that rounding led elsewhere gives is one more draw. The range of three draws falls far short of
what a fourth may do, that of sixty hardly does: widened so, it leaves out about one draw in a thousand (of
normal ones). With few seeds that says little; what says more are first losses, and verdicts.
"""
STEADY = 1e-3
"""By what share of a variable's largest value any of it may differ where nothing is trained."""
NOISE = 1e-5
"""What may be rounding itself, such as the error of an identity: there the spread of the seeds counts."""
NEAR = 1e-5
"""By what share of itself a training's very first loss may differ in single precision."""
CLOSE = 1e-6
"""What counts as the same number on another kind of machine, as a share of it, where seeds do not spread."""


@dataclass
class Comparison:
    """How many values got back.

    Attributes:
        equal: to the last bit.
        within: the spread of the kept seeds, on another kind of machine.
        outside: all others.
        where: which those are, in words.
    """

    equal: int = 0
    within: int = 0
    outside: int = 0
    where: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All values compared."""
        return self.equal + self.within + self.outside

    def add(self, name: str, equal: np.ndarray, within: np.ndarray) -> None:
        """Count the values of one variable."""
        outside = ~(equal | within)
        self.equal += int(equal.sum())
        self.within += int((within & ~equal).sum())
        self.outside += int(outside.sum())
        if outside.any():
            self.where.append(f"{name} ({int(outside.sum())} of {outside.size})")


def compare(
    measurement: Measurement,
    kept: Result,
    trials: Sequence[Trial],
    *,
    exact: bool,
    values: bool = True,
) -> Comparison:
    """Compare trials with the same seeds of a kept result: values, and first losses of trainings.

    Args:
        measurement: what was measured.
        kept: its result.
        trials: measured again.
        exact: whether all must be equal to the last bit; if not, first losses are those in double precision.
        values: whether the trials have values; if not, their first losses are all that is compared.
    """
    found = Comparison()
    for trial in trials:
        if values and set(trial.variables) != set(kept.variables):
            names = sorted(set(trial.variables) ^ set(kept.variables))
            found.outside += len(names)
            found.where.append(f"other variables: {', '.join(names)}")
            continue
        if values:
            _values(measurement, kept, trial.seed, trial.variables, found, exact)
        told = (kept.openings, trial.openings) if exact else (kept.doubles, trial.doubles)
        _first_losses(*told, trial.seed, found, exact)
    return found


def compare_first(kept: Result, trials: Sequence[Trial], *, exact: bool) -> Comparison:
    """Compare the first losses of trainings in single precision, where there are no others to compare with.

    Args:
        kept, trials: as for `compare`.
        exact: whether all of them, to the last bit; if not, the very first of each, nearly.
    """
    found = Comparison()
    for trial in trials:
        if exact:
            _first_losses(kept.openings, trial.openings, trial.seed, found, exact=True)
            continue
        for name, each in kept.openings.items():
            old = np.array(each.get(str(trial.seed), [])[:1])
            new = np.array(trial.openings.get(name, [])[:1])
            near = np.abs(new - old) <= NEAR * np.abs(old) if new.size == old.size else old != old
            found.add(f"first loss of {name}", new == old if new.size == old.size else near, near)
    return found


def _values(
    measurement: Measurement,
    kept: Result,
    seed: int,
    variables: Variables,
    found: Comparison,
    exact: bool,
) -> None:
    index = kept.seeds.index(seed)
    for name, (_, new) in variables.items():
        old = kept.variables[name][1]
        same = np.asarray(old[index])
        if new.shape != same.shape:
            found.outside += new.size
            found.where.append(f"{name}: shape {new.shape} in place of {same.shape}")
            continue
        equal = _equal(new, same)
        within = np.zeros_like(equal)
        if not exact:
            within = _within(new, old, index, measurement.tolerance.get(name, 0.0))
            if measurement.trainings is None and name not in measurement.tolerance:
                within &= _is_steady(new, same)
        found.add(name, equal, within)


def _equal(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    both: np.ndarray = np.asarray(new == old)
    if new.dtype.kind == "f":
        both = np.asarray(both | (np.isnan(new) & np.isnan(np.asarray(old, dtype=np.float64))))
    return both


def _within(new: np.ndarray, old: np.ndarray, index: int, tolerance: float) -> np.ndarray:
    """Whether values lie as near to the kept ones of their seed as those of other seeds may."""
    values = old.astype(np.float64)
    with np.errstate(invalid="ignore"):
        spread = np.nanmax(values, 0) - np.nanmin(values, 0)
        wide = 1 + FEW / max(len(values) - 1, 1) ** 2
        allowed = wide * np.fmax(spread, 0) + tolerance + CLOSE * np.abs(values[index])
        near: np.ndarray = np.asarray(np.abs(new.astype(np.float64) - values[index]) <= allowed)
    return near


def _is_steady(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Whether values are nearly the kept ones; what is counted may turn over at a hair, and is left out."""
    if new.dtype.kind != "f":
        return np.ones_like(new, dtype=bool)
    largest = np.max(np.abs(old), initial=0.0, where=np.isfinite(old))
    with np.errstate(invalid="ignore"):
        near: np.ndarray = np.asarray(np.abs(new - old) <= STEADY * largest + NOISE)
    return near


def _first_losses(
    kept: Mapping[str, Mapping[str, Sequence[float]]],
    measured: Mapping[str, Sequence[float]],
    seed: int,
    found: Comparison,
    exact: bool,
) -> None:
    """Compare the first losses of a seed's trainings with the kept ones, as many as are kept."""
    if not kept:
        return  # a result of no training, or one that was written before these were kept
    if others := sorted(set(kept) ^ set(measured)):
        found.outside += len(others)
        found.where.append(f"other trainings: {', '.join(others)}")
    for name, each in kept.items():
        if str(seed) not in each or name not in measured:
            continue
        old = np.array(each[str(seed)], dtype=np.float64)
        new = np.array(measured[name], dtype=np.float64)
        if new.size < old.size or (exact and new.size != old.size):
            found.outside += old.size
            found.where.append(f"training {name}: {new.size} first losses in place of {old.size}")
            continue
        new = new[: old.size]
        equal = _equal(new, old)
        within = np.zeros_like(equal)
        if not exact:
            with np.errstate(invalid="ignore"):
                within = np.abs(new - old) <= AGREES * np.abs(old)
        found.add(f"first losses of {name}", equal, within)
