"""Comparing schedules of the learning rate: equal numbers of trials, the sum of the rates, what it explains.

A schedule has constants besides its highest rate: a warm-up, a time constant, the length of the decay at the
end. Whoever compares schedules compares what was tried of each. Here a *trial* is one setting of all constants,
and every schedule gets the same number of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy import stats

from measured_transformer.evidence.profile import Profile
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.arms import tune_arms
from measured_transformer.training.schedules import (
    Constant,
    ExponentialDecay,
    InverseSquareRoot,
    Noam,
    Schedule,
    WarmupCosine,
    WarmupLinear,
    WarmupStableDecay,
)
from measured_transformer.training.tuning import Arm

TIME_CONSTANTS = (50.0, 500.0)


@dataclass(frozen=True)
class Trial:
    """One setting of a schedule that was tried.

    Attributes:
        shape: name of the schedule with its constants, such as 'exponential-50'.
        schedule: what it names.
        rate: what the schedule's factor is multiplied with.
        losses: final loss of each tuning seed, infinite when it diverged.
        summed: sum of the rates over all steps.
    """

    shape: str
    schedule: Schedule
    rate: float
    losses: tuple[float, ...]
    summed: float

    @property
    def loss(self) -> float:
        """Mean of the losses: what trials are chosen by."""
        return float(np.mean(self.losses))


def contenders(steps: int) -> dict[str, dict[str, Schedule]]:
    """The four schedules of the comparison, each with the shapes that are tried of it.

    Two warm-ups, two time constants, two lengths of the final decay; a constant rate has no shape.

    >>> {name: list(shapes) for name, shapes in contenders(200).items()}["final decay"]
    ['final-50', 'final-100']

    Raises:
        ValueError: when there are fewer than 20 steps, too few for the shapes to differ.
    """
    if steps < 20:
        raise ValueError(f"expected at least 20 steps, got {steps}; shapes of fewer do not differ")
    warmups, decays = (3 * steps // 20, 3 * steps // 10), (steps // 4, steps // 2)
    return {
        "warm-up and root": {f"root-{w}": InverseSquareRoot(w) for w in warmups},
        "constant": {"constant": Constant()},
        "exponential": {f"exponential-{t:g}": ExponentialDecay.lasting(t) for t in TIME_CONSTANTS},
        "final decay": {f"final-{d}": WarmupStableDecay(0, steps, d) for d in decays},
    }


def bystanders(steps: int) -> dict[str, dict[str, Schedule]]:
    """Four more schedules, each with one shape: warm-up alone, cosine, straight line, stairs.

    >>> list(bystanders(200)["cosine"])
    ['cosine-30']

    Raises:
        ValueError: when there are too few steps for a warm-up or for three stairs.
    """
    warmup, stair = 3 * steps // 20, math.ceil(steps / 3)
    return {
        "warm-up alone": {f"warm-{warmup}": Constant(warmup)},
        "cosine": {f"cosine-{warmup}": WarmupCosine(warmup, steps)},
        "straight line": {f"linear-{warmup}": WarmupLinear(warmup, steps)},
        "stairs": {f"stairs-{stair}": ExponentialDecay(0.3, every=stair, staircase=True)},
    }


def spread(rates: Sequence[float], count: int) -> list[float]:
    """So many rates over the same span, evenly in the logarithm, to three digits.

    >>> spread((0.001, 0.01, 0.1), 5)
    [0.001, 0.00316, 0.01, 0.0316, 0.1]

    Raises:
        ValueError: when there are fewer than two rates or `count` is below two.
    """
    if len(rates) < 2 or count < 2:
        raise ValueError(
            f"expected at least two rates and a count of two, got {len(rates)}, {count}"
        )
    return [float(f"{rate:.3g}") for rate in np.geomspace(min(rates), max(rates), count)]


def summed_rate(schedule: Schedule, rate: float, steps: int) -> float:
    """Sum of the rates over all steps: how far the optimiser could carry a weight at most, for Adam roughly.

    >>> round(summed_rate(ExponentialDecay.lasting(5.0), 1e-3, 200), 4)
    0.0055
    """
    return math.fsum(rate * schedule(step) for step in range(steps))


def tune_shapes(
    name: str,
    shapes: Mapping[str, Schedule],
    config: Config,
    task: Task,
    *,
    rates: Sequence[float],
    steps: int,
    profile: Profile,
    batch_size: int = 32,
) -> list[Trial]:
    """Try every shape of a schedule at every rate, on the tuning seeds.

    Args:
        name: of the comparison; records of what was found are kept under it.
        shapes: the schedules by name.
        config, task, steps, profile, rates, batch_size: as for `training.arms.tune_arms`.

    Raises:
        ValueError: as `training.tuning.tuned_rates`.
    """
    arms = {shape: Arm(config, {"schedule": made}) for shape, made in shapes.items()}
    tuned = tune_arms(
        name, arms, task, steps=steps, profile=profile, rates=rates, batch_size=batch_size
    )
    return [
        Trial(shape, made, rate, tuple(losses), summed_rate(made, rate, steps))
        for shape, made in shapes.items()
        for rate, losses in tuned[shape].losses[shape].items()
    ]


def best(trials: Sequence[Trial]) -> Trial:
    """The trial with the smallest mean loss on the tuning seeds.

    Raises:
        ValueError: when there is no trial, or none that did not diverge.
    """
    kept = [trial for trial in trials if np.isfinite(trial.loss)]
    if not kept:
        raise ValueError(f"expected a trial with a finite loss, got none among {len(trials)}")
    return min(kept, key=lambda trial: trial.loss)


def separation(scores: Float[ndarray, "run"], failed: Bool[ndarray, "run"]) -> float:
    """Area under the curve with which *small* scores tell the runs that failed.

    The chance that a run that failed has a smaller score than one that did not; ties count half.

    >>> separation(np.array([1.0, 2.0, 3.0]), np.array([True, False, False]))
    1.0

    Raises:
        ValueError: when all runs failed or none did.
    """
    if failed.all() or not failed.any():
        raise ValueError(
            f"expected runs that failed and runs that did not, got {int(failed.sum())} failures among "
            f"{failed.size} runs"
        )
    low, high = scores[failed], scores[~failed]
    wins = float(stats.mannwhitneyu(high, low, alternative="greater").statistic)
    return float(wins / (low.size * high.size))


def running_mean(values: Float[ndarray, "step"], window: int) -> Float[ndarray, "step"]:
    """At each step the mean of the last `window` values, of as many as there are at the beginning.

    >>> running_mean(np.array([4.0, 2.0, 0.0, 1.0]), 2).tolist()
    [4.0, 3.0, 1.0, 0.5]

    Raises:
        ValueError: when `window` is not positive.
    """
    if window < 1:
        raise ValueError(f"expected a window of at least 1, got {window}")
    total = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return np.asarray((total[ends] - total[starts]) / (ends - starts))


def at_equal_training_loss(
    training: Float[ndarray, "evaluation"], validation: Float[ndarray, "evaluation"], level: float
) -> float:
    """Validation minus training loss where the training loss first falls to `level`.

    Between two evaluations both are taken to move along straight lines.

    >>> at_equal_training_loss(np.array([3.0, 1.0]), np.array([3.2, 1.6]), 2.0)
    0.4

    Raises:
        ValueError: when the training loss begins at or below the level, or never reaches it.
    """
    below = np.flatnonzero(training <= level)
    if not len(below) or below[0] == 0:
        raise ValueError(
            f"expected a training loss that falls past {level:.3g}, got one from {training[0]:.3g} "
            f"down to {training.min():.3g}"
        )
    after = int(below[0])
    share = (training[after - 1] - level) / (training[after - 1] - training[after])
    held = validation[after - 1] + share * (validation[after] - validation[after - 1])
    return round(float(held) - level, 12)


def noam_deviations(
    d_model: int, warmup: int, steps: int, *, longer: int = 0
) -> tuple[float, float]:
    """How far the library's `Noam` lies from the formula of Vaswani et al., in units of the largest rate.

    The formula is written out here once more, d^(-1/2) min(s^(-1/2), s w^(-3/2)) for s = 1, 2, ....

    Args:
        d_model: width d.
        warmup: steps of warm-up w.
        steps: how many steps are compared.
        longer: steps that the library's warm-up is longer than the formula's.

    Returns:
        the largest deviation over the steps, and that of the largest rate from 1 / root(d w).

    Raises:
        ValueError: when a number is not positive, or there are fewer steps than the warm-up takes.
    """
    if steps < warmup + longer:
        raise ValueError(f"expected steps to reach past the warm-up of {warmup}, got {steps}")
    number = np.arange(1, steps + 1, dtype=np.float64)
    formula = d_model**-0.5 * np.minimum(number**-0.5, number * warmup**-1.5)
    schedule = Noam(d_model, warmup + longer)
    rates = np.array([schedule(step) for step in range(steps)])
    peak = (d_model * warmup) ** -0.5
    return float(np.abs(rates - formula).max() / peak), float(abs(rates.max() - peak) / peak)
