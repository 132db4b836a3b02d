"""Power: how often a comparison detects a true effect, and how many seeds that takes.

For those who declare a rule. Guess the spread of the differences from a few pilot seeds that are not used
again, name the smallest effect that would matter and the effect that you expect, and ask for the seeds.
All chances are exact for normal values.

>>> from measured_book.evidence.power import power_of_difference, seeds_for_difference
>>> round(power_of_difference(1.0, spread=1.0, seeds=5), 2)
0.4
>>> seeds_for_difference(1.0, spread=1.0, power=0.8)
10
"""

from __future__ import annotations

import math
from collections.abc import Callable

import scipy

from measured_book.evidence._samples import check_confidence, check_margin

_MOST_SEEDS = 1_000_000
_TAIL = 1e-13  # of the distribution of the spread, left out on either side


def power_of_difference(
    effect: float,
    *,
    spread: float,
    seeds: int,
    paired: bool = True,
    smallest_effect: float = 0.0,
    confidence: float = 0.95,
) -> float:
    """Return the chance that a difference is confirmed.

    Confirmed as the rule `Difference` has it: the t interval lies wholly above zero and the mean
    exceeds ``smallest_effect``. With the default of 0 it is the power of one side of the t test,
    from the noncentral t distribution (Cohen 1988).

    A true effect that just equals the smallest one of interest is confirmed at most every second
    time, whatever the number of seeds: half of all means lie below it.

    Args:
        effect: the true mean of treatment - baseline, positive on the claimed side.
        spread: the standard deviation of the differences (paired) or of each arm (unpaired).
        seeds: values in each arm.
        paired: whether both arms use the same seeds.
        smallest_effect: what the mean has to exceed besides.
        confidence: of the interval.

    Raises:
        ValueError: a spread that is not above 0, fewer than two seeds, a bad confidence, an effect
            that is not finite, a smallest effect below 0.
    """
    _check(effect, spread, seeds, confidence)
    if not (math.isfinite(smallest_effect) and smallest_effect >= 0):
        raise ValueError(f"expected a smallest effect of 0 or more, got {smallest_effect!r}")
    error, freedom = _error_and_freedom(spread, seeds, paired)
    reach = float(scipy.stats.t.ppf(0.5 + confidence / 2, freedom)) * error

    def given_spread(share: float) -> float:
        least = max(reach * share, smallest_effect)
        return float(scipy.special.ndtr((effect - least) / error))

    return _over_spreads(given_spread, freedom, smallest_effect / reach)


def power_of_equivalence(
    effect: float = 0.0,
    *,
    margin: float,
    spread: float,
    seeds: int,
    paired: bool = True,
    confidence: float = 0.95,
) -> float:
    """Return the chance that both one-sided tests find the difference within (-margin, margin).

    The exact power of Schuirmann's procedure (Phillips 1990), and so the chance that the rule
    `Equivalence` confirms.

    Args:
        effect: the true mean of treatment - baseline; 0 where both are thought to be alike.
        margin: the largest difference that still counts as none.
        spread: the standard deviation of the differences (paired) or of each arm (unpaired).
        seeds: values in each arm.
        paired: whether both arms use the same seeds.
        confidence: of each one-sided test.

    Raises:
        ValueError: as `power_of_difference`, or a margin that is not above 0.
    """
    _check(effect, spread, seeds, confidence)
    check_margin(margin)
    error, freedom = _error_and_freedom(spread, seeds, paired)
    reach = float(scipy.stats.t.ppf(confidence, freedom)) * error

    def given_spread(share: float) -> float:
        room = margin - reach * share
        if room <= 0:
            return 0.0
        above, below = (room - effect) / error, (-room - effect) / error
        return float(scipy.special.ndtr(above) - scipy.special.ndtr(below))

    return _over_spreads(given_spread, freedom, margin / reach)


def seeds_for_difference(
    effect: float,
    *,
    spread: float,
    power: float = 0.8,
    paired: bool = True,
    smallest_effect: float = 0.0,
    confidence: float = 0.95,
) -> int:
    """Return the smallest number of seeds in each arm at which `power_of_difference` reaches ``power``.

    Raises:
        ValueError: as `power_of_difference`; a power outside 0 to 1; a power that no number of
            seeds up to a million reaches, as that of an effect not above the smallest one.
    """
    _check_power(power)
    return _fewest(
        lambda seeds: power_of_difference(
            effect,
            spread=spread,
            seeds=seeds,
            paired=paired,
            smallest_effect=smallest_effect,
            confidence=confidence,
        ),
        power,
    )


def seeds_for_equivalence(
    effect: float = 0.0,
    *,
    margin: float,
    spread: float,
    power: float = 0.8,
    paired: bool = True,
    confidence: float = 0.95,
) -> int:
    """Return the smallest number of seeds in each arm at which `power_of_equivalence` reaches ``power``.

    Raises:
        ValueError: as `power_of_equivalence`; a power outside 0 to 1; a power that no number of
            seeds up to a million reaches, as that of an effect not inside the margin.
    """
    _check_power(power)
    return _fewest(
        lambda seeds: power_of_equivalence(
            effect,
            margin=margin,
            spread=spread,
            seeds=seeds,
            paired=paired,
            confidence=confidence,
        ),
        power,
    )


def _error_and_freedom(spread: float, seeds: int, paired: bool) -> tuple[float, int]:
    if paired:
        return spread / math.sqrt(seeds), seeds - 1
    return spread * math.sqrt(2 / seeds), 2 * seeds - 2


def _over_spreads(chance: Callable[[float], float], freedom: int, kink: float) -> float:
    """Return the mean of a chance over the estimated spread, as a share of the true one.

    The share times the root of the degrees of freedom follows the chi distribution. The chance may
    have a kink there, so both sides of it are integrated by themselves.
    """
    root = math.sqrt(freedom)
    spreads = scipy.stats.chi(freedom)
    low, high = float(spreads.ppf(_TAIL)) / root, float(spreads.isf(_TAIL)) / root
    middle = min(max(kink, low), high)
    total = 0.0
    for start, end in ((low, middle), (middle, high)):
        if start < end:
            total += scipy.integrate.quad(
                lambda share: chance(share) * float(spreads.pdf(share * root)) * root,
                start,
                end,
                limit=200,
            )[0]
    return min(1.0, max(0.0, float(total)))


def _fewest(power_at: Callable[[int], float], power: float) -> int:
    enough = 2
    while power_at(enough) < power:
        if enough >= _MOST_SEEDS:
            raise ValueError(
                f"expected a power that some number of seeds reaches, got {power}: "
                f"{_MOST_SEEDS} seeds do not reach it; the effect is too near its bound, "
                "or the spread too large"
            )
        enough = min(2 * enough, _MOST_SEEDS)
    too_few = enough // 2 if enough > 2 else 1
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if power_at(middle) < power:
            too_few = middle
        else:
            enough = middle
    return enough


def _check(effect: float, spread: float, seeds: int, confidence: float) -> None:
    check_confidence(confidence)
    if not math.isfinite(effect):
        raise ValueError(f"expected a finite effect, got {effect!r}")
    if not (math.isfinite(spread) and spread > 0):
        raise ValueError(f"expected a spread above 0, got {spread!r}")
    if seeds < 2:
        raise ValueError(f"expected two seeds or more, got {seeds}")


def _check_power(power: float) -> None:
    if not 0 < power < 1:
        raise ValueError(f"expected a power between 0 and 1, got {power!r}")
