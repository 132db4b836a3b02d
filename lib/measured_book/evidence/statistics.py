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
from typing import Any, Literal

import numpy as np
import scipy  # scipy.stats is loaded at its first use

from measured_book.evidence._samples import (
    Samples,
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


def proportion_difference(
    successes: int,
    trials: int,
    baseline_successes: int,
    baseline_trials: int,
    *,
    confidence: float = 0.95,
) -> Estimate:
    """Return the difference of two independent shares with its interval, and the p-value of its being 0.

    The interval joins the Wilson intervals of both shares (Newcombe 1998, method 10): unlike the
    textbook interval it nearly keeps its coverage at few trials and at shares near 0 or 1. The p-value is
    that of Fisher's exact test, which never rejects too often and often too seldom, so it may
    exceed 1 - confidence where the interval just excludes 0.

    Args:
        successes: successes of the treatment.
        trials: trials of the treatment.
        baseline_successes: successes of the baseline.
        baseline_trials: trials of the baseline.
        confidence: of the interval.

    Raises:
        ValueError: no trials, successes outside 0 to trials, a bad confidence.
    """
    check_confidence(confidence)
    check_counts(successes, trials)
    check_counts(baseline_successes, baseline_trials)
    arms = ((successes, trials), (baseline_successes, baseline_trials))
    one, two = (
        scipy.stats.binomtest(k, n).proportion_ci(confidence, method="wilson") for k, n in arms
    )
    share, other = (k / n for k, n in arms)
    effect = share - other
    low = effect - math.hypot(share - one.low, two.high - other)
    high = effect + math.hypot(one.high - share, other - two.low)
    p = scipy.stats.fisher_exact(np.array([[k, n - k] for k, n in arms])).pvalue
    return Estimate(effect, (float(low), float(high)), min(1.0, float(p)), confidence)


@dataclass(frozen=True)
class RankTest:
    """A test that uses only the order of values: a check that no outlier made a t test.

    ``shift`` is the Hodges-Lehmann estimate of how far treatment lies above baseline,
    ``smallest_p`` the smallest p-value that a sample of this size can give at all.
    """

    shift: float
    p: float
    smallest_p: float


def rank_test(treatment: Treated, baseline: Untreated, *, paired: bool) -> RankTest:
    """Return the two-sided p-value of both arms being alike, without assuming a distribution.

    Paired: Wilcoxon's signed-rank test, exact where the differences are symmetric about 0; pairs
    without a difference are left out (Wilcoxon 1945). Unpaired: the Mann-Whitney test, exact where
    both arms have one distribution (Mann and Whitney 1947). Ties share their mean rank. Every
    arrangement is counted where nothing is tied or where they are few; a normal approximation serves
    many tied values.

    Few seeds have few arrangements: five pairs give no p-value below 1/16, so at five seeds this
    test alone can never reject at 0.05.

    The shift is the median of the mean of every two differences (paired, each difference with
    itself too), or of every difference between a value of each arm (Hodges and Lehmann 1963).

    Raises:
        ValueError: fewer than two values in an arm, a value that is not finite, paired arms of
            different length.
    """
    check_arms(treatment, baseline, paired=paired)
    return (_signed_rank if paired else _rank_sum)(treatment, baseline)


_LARGEST_COUNT = 20_000  # arrangements that are counted one by one where ties leave no other way


def _signed_rank(treatment: Treated, baseline: Untreated) -> RankTest:
    differences = treatment - baseline
    row, column = np.triu_indices(differences.size)
    shift = float(np.median((differences[row] + differences[column]) / 2))
    kept = differences[differences != 0]
    if kept.size == 0:
        return RankTest(shift, 1.0, 1.0)
    ranks: Values = scipy.stats.rankdata(np.abs(kept))
    arrangements = 2.0**kept.size
    if np.unique(ranks).size == kept.size:
        p = float(scipy.stats.wilcoxon(kept, method="exact").pvalue)
    elif arrangements <= _LARGEST_COUNT:
        p = _counted_exactly((np.sign(kept) * ranks,), "samples")
    else:
        p = float(scipy.stats.wilcoxon(kept, method="approx", correction=True).pvalue)
    return RankTest(shift, p, 2 / arrangements)


def _rank_sum(treatment: Treated, baseline: Untreated) -> RankTest:
    shift = float(np.median(treatment[:, None] - baseline[None, :]))
    ranks = scipy.stats.rankdata(np.concatenate([treatment, baseline]))
    arrangements = float(scipy.special.comb(ranks.size, treatment.size))
    if np.ptp(ranks) == 0:
        return RankTest(shift, 1.0, 1.0)
    if np.unique(ranks).size == ranks.size:
        p = float(scipy.stats.mannwhitneyu(treatment, baseline, method="exact").pvalue)
    elif arrangements <= _LARGEST_COUNT:
        p = _counted_exactly((ranks[: treatment.size], ranks[treatment.size :]), "independent")
    else:
        p = float(scipy.stats.mannwhitneyu(treatment, baseline, method="asymptotic").pvalue)
    return RankTest(shift, p, 2 / arrangements)


def _counted_exactly(ranks: Samples, kind: Literal["samples", "independent"]) -> float:
    """Return the two-sided p-value of the first sample's sum of ranks over all arrangements."""

    def total(first: Any, *others: Any, axis: int) -> Any:
        return first.sum(axis=axis)

    found = scipy.stats.permutation_test(
        ranks,
        total,
        permutation_type=kind,
        n_resamples=_LARGEST_COUNT,
        vectorized=True,
    )
    return float(found.pvalue)
