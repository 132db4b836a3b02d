"""Bootstrap intervals: what resampling the seeds says about a mean or a median.

They assume no normal distribution. What they do assume is that the seeds at hand show how seeds spread,
which five of them hardly do: at few seeds a bootstrap interval is too narrow and holds the truth less
often than it says, where the t interval of `statistics` keeps its word. So no verdict rests on a bootstrap;
it stands beside the t interval, and where the two disagree the values are worth a look.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy

from measured_book.evidence._samples import (
    Samples,
    Treated,
    Untreated,
    Values,
    check_arms,
    check_confidence,
    check_values,
)

Statistic = Literal["mean", "median"]
_STATISTICS: dict[str, Callable[..., Any]] = {"mean": np.mean, "median": np.median}
_BATCH_NUMBERS = 2_000_000  # resampled numbers in memory at once


@dataclass(frozen=True)
class BootstrapEstimate:
    """An effect with its two-sided bootstrap interval of a confidence.

    ``method`` is ``"BCa"``, the bias-corrected and accelerated interval, or ``"percentile"`` where
    that one is not defined.
    """

    effect: float
    interval: tuple[float, float]
    confidence: float
    method: str


def bootstrap_interval(
    values: Values,
    *,
    of: Statistic = "mean",
    confidence: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> BootstrapEstimate:
    """Return the mean or median of a sample with its BCa bootstrap interval (Efron 1987).

    The same values and seed give the same interval. Values without any spread have an interval of
    width zero. The interval never leaves the range of the values, so two or three of them say
    little; where BCa is not defined (the median of many tied values) it is the percentile interval.

    Args:
        values: independent measurements, shape ``(seeds,)``.
        of: ``"mean"`` or ``"median"``.
        confidence: how often the interval is meant to hold the truth.
        resamples: number of samples drawn with replacement.
        seed: of the generator that draws them.

    Raises:
        ValueError: fewer than two values, a value that is not finite, a bad confidence, an unknown
            statistic, fewer than 100 resamples.
    """
    check_values("values", values)
    statistic = _statistic(of)
    return _bootstrap(
        (values,), lambda x, axis: statistic(x, axis=axis), confidence, resamples, seed
    )


def bootstrap_difference(
    treatment: Treated,
    baseline: Untreated,
    *,
    paired: bool,
    of: Statistic = "mean",
    confidence: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> BootstrapEstimate:
    """Return treatment - baseline with its BCa bootstrap interval (Efron 1987).

    Paired: the mean or median of the differences seed by seed, resampling seeds. Unpaired: the
    difference of both arms' means or medians, resampling each arm by itself. What
    `bootstrap_interval` says about spread and few values holds here too.

    Raises:
        ValueError: as `bootstrap_interval`, or paired arms of different length.
    """
    check_arms(treatment, baseline, paired=paired)
    if paired:
        return bootstrap_interval(
            treatment - baseline, of=of, confidence=confidence, resamples=resamples, seed=seed
        )
    statistic = _statistic(of)
    return _bootstrap(
        (treatment, baseline),
        lambda one, two, axis: statistic(one, axis=axis) - statistic(two, axis=axis),
        confidence,
        resamples,
        seed,
    )


def _statistic(of: str) -> Callable[..., Any]:
    if of not in _STATISTICS:
        raise ValueError(f"expected one of {', '.join(_STATISTICS)} to resample, got {of!r}")
    return _STATISTICS[of]


def _bootstrap(
    samples: Samples,
    statistic: Callable[..., Any],
    confidence: float,
    resamples: int,
    seed: int,
) -> BootstrapEstimate:
    check_confidence(confidence)
    if resamples < 100:
        raise ValueError(f"expected at least 100 resamples, got {resamples}")
    if all(np.ptp(sample) == 0 for sample in samples):
        effect = float(statistic(*(sample[:1] for sample in samples), axis=-1))
        return BootstrapEstimate(effect, (effect, effect), confidence, "BCa")
    effect = float(statistic(*samples, axis=-1))
    largest = max(sample.size for sample in samples)
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():  # a BCa interval that is not defined announces itself
            warnings.simplefilter("ignore")
            found = scipy.stats.bootstrap(
                samples,
                statistic,
                vectorized=True,
                confidence_level=confidence,
                n_resamples=resamples,
                batch=max(1, _BATCH_NUMBERS // largest),
                method=method,
                random_state=np.random.default_rng(seed),
            ).confidence_interval
        if np.isfinite([found.low, found.high]).all():
            break
    return BootstrapEstimate(effect, (float(found.low), float(found.high)), confidence, method)
