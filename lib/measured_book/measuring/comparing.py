"""Comparing what was measured again with what is kept.

On the same kind of machine the same code gives the same values, to the last bit. Elsewhere rounding differs,
and a training amplifies it: two runs that began alike may end as far apart as two seeds. So on another kind of
machine values are counted and reported, the farthest first, and none fails by itself. What fails there is
what rounding cannot explain: another fingerprint (see `fingerprints`), a verdict that changes, a printed number
that leaves its own interval (see `printed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from measured_book.evidence.results import Result
from measured_book.measuring.measurement import Variables
from measured_book.measuring.trials import Trial

FEW = 60.0
"""How a spread is widened where seeds are few: by so many times itself, over the square of the seeds less one.

The range of three draws falls far short of what a fourth may do, that of sixty hardly does: widened so, it
leaves out about one draw in a thousand (of normal ones).
"""
CLOSE = 1e-6
"""What counts as the same number on another kind of machine, as a share of it, where seeds do not spread."""


@dataclass
class Comparison:
    """How many values came back.

    Attributes:
        equal: to the last bit.
        within: on another kind of machine, no farther from the kept one of their seed than other seeds may lie.
        outside: all others.
        where: which those are: how far the farthest lies, in spreads of the seeds, and in words.
        failures: what rounding cannot explain.
    """

    equal: int = 0
    within: int = 0
    outside: int = 0
    where: list[tuple[float, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All values compared."""
        return self.equal + self.within + self.outside

    @property
    def farthest(self) -> str:
        """Which values lie outside, the farthest first."""
        return "; ".join(words for _, words in sorted(self.where, key=lambda one: -one[0]))

    def add(self, name: str, equal: np.ndarray, distance: np.ndarray) -> None:
        """Count the values of one variable, given how far each lies from the kept one, in spreads of seeds."""
        within = distance <= 1.0
        outside = ~(equal | within)
        self.equal += int(equal.sum())
        self.within += int((within & ~equal).sum())
        self.outside += int(outside.sum())
        if outside.any():
            farthest = float(np.where(outside, np.nan_to_num(distance, nan=np.inf), 0.0).max())
            self.where.append(
                (
                    farthest,
                    f"{name} ({int(outside.sum())} of {outside.size}, {farthest:.3g} spreads)",
                )
            )


def compare(kept: Result, trials: Sequence[Trial], *, exact: bool) -> Comparison:
    """Compare trials with the same seeds of a kept result.

    Args:
        kept: the result.
        trials: measured again; those without values have the first losses of their trainings alone.
        exact: whether this is the kind of machine that it was measured on, so that all must be equal.
    """
    found = Comparison()
    for trial in trials:
        if trial.variables:
            _values(kept, trial.seed, trial.variables, found)
        if exact:
            _first_losses(kept, trial, found)
    if exact and found.equal < found.total:
        found.failures.append(
            f"{found.total - found.equal} of {found.total} values differ on the kind of machine that they were "
            "measured on"
        )
    return found


def _values(kept: Result, seed: int, variables: Variables, found: Comparison) -> None:
    if strangers := sorted(set(variables) ^ set(kept.variables)):
        found.failures.append(f"other variables: {', '.join(strangers)}")
    index = kept.seeds.index(seed)
    for name in variables.keys() & kept.variables.keys():
        new, old = variables[name][1], kept.variables[name][1]
        same = np.asarray(old[index])
        if new.shape != same.shape:
            found.failures.append(f"{name}: shape {new.shape} in place of {same.shape}")
            continue
        found.add(name, _equal(new, same), _distance(new, old, index))


def _equal(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    both: np.ndarray = np.asarray(new == old)
    if new.dtype.kind == "f":
        both = np.asarray(both | (np.isnan(new) & np.isnan(np.asarray(old, dtype=np.float64))))
    return both


def _distance(new: np.ndarray, old: np.ndarray, index: int) -> np.ndarray:
    """How far values lie from the kept ones of their seed, in spreads of the seeds; see `FEW`."""
    values = old.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.nanmax(values, 0) - np.nanmin(values, 0)
        wide = 1 + FEW / max(len(values) - 1, 1) ** 2
        unit = wide * np.fmax(spread, 0) + CLOSE * np.abs(values[index])
        apart = np.abs(new.astype(np.float64) - values[index])
        found = np.where(apart == 0, 0.0, apart / unit)
    return np.where(np.isnan(found), np.inf, found)


def _first_losses(kept: Result, trial: Trial, found: Comparison) -> None:
    """Compare the first losses of a seed's trainings in single precision with the kept ones."""
    own = {name: each for name, each in kept.openings.items() if str(trial.seed) in each}
    if own and (strangers := sorted(set(own) ^ set(trial.openings))):
        found.failures.append(f"other trainings: {', '.join(strangers)}")
    for name in own.keys() & trial.openings.keys():
        old = np.array(own[name][str(trial.seed)], dtype=np.float64)
        new = np.array(trial.openings[name], dtype=np.float64)
        if new.size != old.size:
            found.failures.append(
                f"training {name}: {new.size} first losses in place of {old.size}"
            )
            continue
        equal = _equal(new, old)
        with np.errstate(invalid="ignore", divide="ignore"):
            distance = np.where(equal, 0.0, np.abs(new - old) / (CLOSE * np.abs(old)))
        found.add(f"first losses of {name}", equal, np.nan_to_num(distance, nan=np.inf))
