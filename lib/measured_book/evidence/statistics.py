"""Estimates with intervals and p-values: pure functions of arrays, on scipy.

Axis words: ``seeds`` counts independent measurements, one a seed; ``treated`` and ``untreated`` count
those of two arms, which may differ unless the arms are paired. All intervals are two-sided.

Resampled intervals stand in `bootstrap`, standardised effects in `effect_sizes`, the number of seeds that
a comparison needs in `power`, and Holm's correction in `verdicts`.

A sample without any spread has an interval of width zero. That is what the formulas give in the
limit, and measured shares of one on every seed are not rare; its p-value is then 0, or 1 when the
estimate equals the value that it is tested against.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy  # scipy.stats is loaded at its first use

from measured_book.evidence._samples import (
    Treated,
    Untreated,
    Values,
    check_arms,
    check_confidence,
    check_counts,
    check_margin,
    check_values,
    spread_of,
)


@dataclass(frozen=True)
class Estimate:
    """An effect, its two-sided interval of a confidence, and the p-value of a test of it."""

    effect: float
    interval: tuple[float, float]
    p: float
    confidence: float


@dataclass(frozen=True)
class _Student:
    """A mean that is Student-t distributed around the truth."""

    mean: float
    error: float
    freedom: float

    def interval(self, confidence: float) -> tuple[float, float]:
        if self.error == 0:
            return self.mean, self.mean
        reach = float(scipy.stats.t.ppf(0.5 + confidence / 2, self.freedom)) * self.error
        return self.mean - reach, self.mean + reach

    def above(self, value: float) -> float:
        """Return the one-sided p-value of "the truth is at most ``value``"."""
        if self.error == 0:
            return 0.0 if self.mean > value else 1.0
        return float(scipy.stats.t.sf((self.mean - value) / self.error, self.freedom))

    def below(self, value: float) -> float:
        """Return the one-sided p-value of "the truth is at least ``value``"."""
        if self.error == 0:
            return 0.0 if self.mean < value else 1.0
        return float(scipy.stats.t.cdf((self.mean - value) / self.error, self.freedom))

    def differs(self, value: float) -> float:
        return min(1.0, 2 * min(self.above(value), self.below(value)))


def _student(values: Values) -> _Student:
    spread = spread_of(values)
    # The mean of values that are all alike is that value: its rounding must not move it.
    mean = float(values[0]) if spread == 0 else float(values.mean())
    return _Student(mean, spread / math.sqrt(values.size), float(values.size - 1))


def _student_difference(treatment: Treated, baseline: Untreated, paired: bool) -> _Student:
    check_arms(treatment, baseline, paired=paired)
    if paired:
        return _student(treatment - baseline)
    one, two = _student(treatment), _student(baseline)
    error = math.hypot(one.error, two.error)
    if error == 0:
        return _Student(one.mean - two.mean, 0.0, one.freedom + two.freedom)
    # Shares of the squared error first: squares of tiny errors would underflow.
    a, b = (one.error / error) ** 2, (two.error / error) ** 2
    freedom = 1 / (a**2 / one.freedom + b**2 / two.freedom)
    return _Student(one.mean - two.mean, error, freedom)


def mean_interval(values: Values, *, confidence: float = 0.95, against: float = 0.0) -> Estimate:
    """Return the mean with its t interval, and the p-value of its being ``against``.

    Raises:
        ValueError: fewer than two values, a value that is not finite, a bad confidence.
    """
    check_confidence(confidence)
    check_values("values", values)
    student = _student(values)
    return Estimate(
        student.mean, student.interval(confidence), student.differs(against), confidence
    )


def mean_difference(
    treatment: Treated,
    baseline: Untreated,
    *,
    paired: bool,
    confidence: float = 0.95,
) -> Estimate:
    """Return the mean of treatment - baseline with its t interval, and the p-value of its being 0.

    Paired: the t interval of the differences seed by seed. Unpaired: Welch's, which does not assume
    that both arms spread alike.

    Raises:
        ValueError: fewer than two values in an arm, a value that is not finite, paired arms of
            different length, a bad confidence.
    """
    check_confidence(confidence)
    student = _student_difference(treatment, baseline, paired)
    return Estimate(student.mean, student.interval(confidence), student.differs(0.0), confidence)


@dataclass(frozen=True)
class EquivalenceEstimate:
    """A mean difference against a margin on both sides.

    ``p_inside`` is the p-value of "the difference is at least as large as the margin" (two
    one-sided tests), ``p_beyond`` that of "it is at most as large as the margin".
    """

    effect: float
    interval: tuple[float, float]
    p_inside: float
    p_beyond: float
    confidence: float


def equivalence(
    treatment: Treated,
    baseline: Untreated,
    *,
    margin: float,
    paired: bool,
    confidence: float = 0.95,
) -> EquivalenceEstimate:
    """Return the two one-sided tests of treatment - baseline lying within (-margin, margin).

    The interval has the confidence 1 - 2 (1 - ``confidence``): it lies inside the margin exactly
    when both one-sided tests reject at level 1 - ``confidence`` (Schuirmann 1987).

    Raises:
        ValueError: as `mean_difference`, or a margin that is not above 0.
    """
    check_confidence(confidence)
    check_margin(margin)
    student = _student_difference(treatment, baseline, paired)
    inner = 1 - 2 * (1 - confidence)
    return EquivalenceEstimate(
        effect=student.mean,
        interval=student.interval(inner),
        p_inside=max(student.above(-margin), student.below(margin)),
        p_beyond=min(student.above(margin), student.below(-margin)),
        confidence=inner,
    )


def proportion(
    successes: int, trials: int, *, confidence: float = 0.95, against: float = 0.5
) -> Estimate:
    """Return a share with its Clopper-Pearson interval, and the p-value of its being ``against``.

    The interval (Clopper and Pearson 1934) covers at least as often as it says, at any share and
    any number of trials. The p-value doubles the smaller binomial tail, so it is below
    1 - confidence exactly when ``against`` lies outside the interval.

    Raises:
        ValueError: no trials, successes outside 0 to trials, a bad confidence or ``against``.
    """
    check_confidence(confidence)
    check_counts(successes, trials)
    if not 0 < against < 1:
        raise ValueError(f"expected a share between 0 and 1 to test against, got {against!r}")
    ends = scipy.stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
    upper = float(scipy.stats.binom.sf(successes - 1, trials, against))
    lower = float(scipy.stats.binom.cdf(successes, trials, against))
    p = min(1.0, 2 * min(upper, lower))
    return Estimate(successes / trials, (float(ends.low), float(ends.high)), p, confidence)
