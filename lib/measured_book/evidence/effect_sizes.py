"""Effect sizes: how large a difference is beside the spread of seeds, counted in standard deviations.

A p-value says whether a difference is there, an effect size how large it is. More seeds narrow the interval of
an effect size and do not change what it means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from measured_book.evidence._samples import (
    Treated,
    Untreated,
    check_arms,
    check_confidence,
    spread_of,
)


@dataclass(frozen=True)
class EffectSize:
    """An effect without unit, with its two-sided interval of a confidence."""

    value: float
    interval: tuple[float, float]
    confidence: float


def cohens_d(
    treatment: Treated, baseline: Untreated, *, paired: bool, confidence: float = 0.95
) -> EffectSize:
    """Return the mean of treatment - baseline in standard deviations (Cohen 1988).

    Unpaired, the unit is the standard deviation pooled over both arms; paired (d_z), that of the
    differences seed by seed, so the two are not comparable with each other. The interval inverts
    the noncentral t distribution (Steiger and Fouladi 1997): exact for normal values, and unpaired
    for arms that spread alike.

    Few seeds overstate d: see `hedges_g`.

    Raises:
        ValueError: fewer than two values in an arm, a value that is not finite, paired arms of
            different length, a bad confidence, or values without any spread, which leave no unit.
    """
    check_arms(treatment, baseline, paired=paired)
    check_confidence(confidence)
    if paired:
        differences = treatment - baseline
        unit, freedom = spread_of(differences), differences.size - 1
        mean, share = float(differences.mean()), 1 / differences.size
    else:
        freedom = treatment.size + baseline.size - 2
        squares = sum(spread_of(arm) ** 2 * (arm.size - 1) for arm in (treatment, baseline))
        unit = math.sqrt(squares / freedom)
        mean, share = (
            float(treatment.mean() - baseline.mean()),
            1 / treatment.size + 1 / baseline.size,
        )
    if unit == 0:
        raise ValueError(
            "expected values that spread, came values that are all alike; "
            "without a spread there is no unit to count in, so report the plain difference"
        )
    scale = math.sqrt(share)
    low, high = _noncentrality(mean / unit / scale, freedom, confidence)
    return EffectSize(mean / unit, (low * scale, high * scale), confidence)


def hedges_g(
    treatment: Treated, baseline: Untreated, *, paired: bool, confidence: float = 0.95
) -> EffectSize:
    """Return Cohen's d without the bias that it has at few seeds (Hedges 1981).

    The exact correction for normal values; it shrinks d by a fifth at five pairs. The interval is
    that of `cohens_d`, which is one for the true effect and needs no correction.

    Raises:
        ValueError: as `cohens_d`.
    """
    found = cohens_d(treatment, baseline, paired=paired, confidence=confidence)
    freedom = treatment.size - 1 if paired else treatment.size + baseline.size - 2
    return EffectSize(found.value * _correction(freedom), found.interval, confidence)


def _correction(freedom: int) -> float:
    half = freedom / 2
    if freedom == 1:
        return 0.0  # d has no mean at two pairs: nothing short of zero corrects it
    return math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)


def _noncentrality(t: float, freedom: int, confidence: float) -> tuple[float, float]:
    """Return the noncentralities at which t lies at the upper and at the lower end of chance.

    The distribution is integrated over the estimated spread, a share of the true one: unlike the
    series that libraries sum, this stays quick and exact where the effect is huge.
    """
    if t < 0:
        low, high = _noncentrality(-t, freedom, confidence)
        return -high, -low
    root = math.sqrt(freedom)
    spreads = scipy.stats.chi(freedom)
    first, last = float(spreads.ppf(1e-13)) / root, float(spreads.isf(1e-13)) / root
    nodes, weights = np.polynomial.legendre.leggauss(64)

    def chance_below(noncentrality: float) -> float:
        # All of the rise from nothing to the density of the spread lies within this window.
        window = [(noncentrality + reach) / t if t else last for reach in (-9.0, 0.0, 9.0)]
        marks = np.clip([first, *window, last], first, last)
        half, middle = np.diff(marks)[:, None] / 2, (marks[:-1] + marks[1:])[:, None] / 2
        shares = middle + half * nodes
        below = scipy.special.ndtr(t * shares - noncentrality)
        return float((half * weights * below * spreads.pdf(shares * root)).sum() * root)

    def at(share: float) -> float:
        ends = t * first - 9, t * last + 9
        return float(scipy.optimize.brentq(lambda x: chance_below(x) - share, *ends))

    return at(0.5 + confidence / 2), at(0.5 - confidence / 2)
