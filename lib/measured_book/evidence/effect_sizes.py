"""Effect sizes: how large a difference is beside the spread of seeds, as numbers without a unit.

A p-value says whether a difference is there, an effect size how much of it; seeds added later sharpen
an effect size and change its meaning in nothing. The standardised difference counts standard deviations.
Cliff's delta and the common-language effect use only the order of values, so no transformation of the
scale and no outlier moves them.
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


def cliffs_delta(
    treatment: Treated, baseline: Untreated, *, confidence: float = 0.95
) -> EffectSize:
    """Return how often treatment exceeds baseline minus how often it falls below (Cliff 1993).

    Over all pairs of a value of one arm and a value of the other, from -1 to 1. For unpaired arms;
    in paired ones the share of seeds that improve is a `statistics.proportion`. The interval is
    that of `common_language` on this scale.

    Raises:
        ValueError: fewer than two values in an arm, a value that is not finite, a bad confidence.
    """
    found = common_language(treatment, baseline, confidence=confidence)
    low, high = found.interval
    return EffectSize(2 * found.value - 1, (2 * low - 1, 2 * high - 1), confidence)


def common_language(
    treatment: Treated, baseline: Untreated, *, confidence: float = 0.95
) -> EffectSize:
    """Return the chance that a treated value exceeds an untreated one (McGraw and Wong 1992).

    Ties count half (Vargha and Delaney 2000), so arms that are alike give 1/2. For unpaired arms.
    The interval is Newcombe's fifth method (2006, part 2), a score interval: it stays within 0 and
    1 and keeps a width where one arm lies wholly above the other.

    Raises:
        ValueError: fewer than two values in an arm, a value that is not finite, a bad confidence.
    """
    check_arms(treatment, baseline, paired=False)
    check_confidence(confidence)
    order = np.sign(treatment[:, None] - baseline[None, :])
    chance = float((order.mean() + 1) / 2)
    reach = float(scipy.stats.norm.ppf(0.5 + confidence / 2))
    pairs, extra = order.size, (treatment.size + baseline.size) / 2 - 1

    def excess(truth: float) -> float:
        tails = (1 - truth) / (2 - truth) + truth / (1 + truth)
        variance = truth * (1 - truth) * (1 + extra * tails) / pairs
        return (chance - truth) ** 2 - reach**2 * variance

    # The chance itself solves the equation too where it is 0 or 1: keep a hair away from it.
    hair = 1 - 1e-9
    low = 0.0 if chance == 0 else float(scipy.optimize.brentq(excess, 0.0, chance * hair))
    high = 1.0
    if chance < 1:
        high = float(scipy.optimize.brentq(excess, 1 - (1 - chance) * hair, 1.0))
    return EffectSize(chance, (low, high), confidence)


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
