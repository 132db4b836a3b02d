"""Power against the noncentral t distribution, textbook numbers, and simulation."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from measured_book.evidence.power import (
    power_of_difference,
    power_of_equivalence,
    seeds_for_difference,
    seeds_for_equivalence,
)

REPEATS = 40_000


def near(share: float, chance: float, repeats: int = REPEATS) -> bool:
    return abs(share - chance) < 4 * math.sqrt(max(chance * (1 - chance), 1e-3) / repeats)


@pytest.mark.parametrize("seeds", [2, 5, 20, 300])
@pytest.mark.parametrize("effect", [-0.5, 0.0, 0.2, 1.0])
@pytest.mark.parametrize("paired", [True, False])
def test_the_power_of_a_difference_is_the_noncentral_t(
    seeds: int, effect: float, paired: bool
) -> None:
    freedom = seeds - 1 if paired else 2 * seeds - 2
    noncentrality = effect / 2 * math.sqrt(seeds if paired else seeds / 2)
    threshold = scipy.stats.t.ppf(0.975, freedom)
    # The distribution of -t is that of the other sign, where the tail is summed more exactly.
    closed = scipy.stats.nct.cdf(-threshold, freedom, -noncentrality)
    found = power_of_difference(effect, spread=2.0, seeds=seeds, paired=paired)
    assert found == pytest.approx(float(closed), abs=1e-7)


def simulated(effect: float, spread: float, seeds: int, paired: bool) -> tuple[Any, Any, Any]:
    """Means, their errors and degrees of freedom of many experiments, the arms pooled if unpaired."""
    rng = np.random.default_rng(seeds)
    one = rng.normal(effect, spread, (REPEATS, seeds))
    if paired:
        return one.mean(1), one.std(1, ddof=1) / math.sqrt(seeds), seeds - 1
    two = rng.normal(0, spread, (REPEATS, seeds))
    error = np.sqrt((one.var(1, ddof=1) + two.var(1, ddof=1)) / seeds)
    return one.mean(1) - two.mean(1), error, 2 * seeds - 2


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("effect", "smallest", "seeds"),
    [(0.5, 0.5, 5), (1.0, 0.5, 5), (0.6, 0.5, 40), (0.3, 0.5, 8), (1.0, 0.0, 5)],
)
def test_the_smallest_effect_costs_power(
    effect: float, smallest: float, seeds: int, paired: bool
) -> None:
    mean, error, freedom = simulated(effect, 0.7, seeds, paired)
    confirmed = (mean - scipy.stats.t.ppf(0.975, freedom) * error > 0) & (mean > smallest)
    chance = power_of_difference(
        effect, spread=0.7, seeds=seeds, paired=paired, smallest_effect=smallest
    )
    assert near(confirmed.mean(), chance)


def test_an_effect_that_just_matters_is_confirmed_every_second_time_at_most() -> None:
    chances = [
        power_of_difference(0.5, spread=1.0, seeds=n, smallest_effect=0.5) for n in (3, 5, 9, 5000)
    ]
    assert chances == sorted(chances)
    assert chances[-1] == pytest.approx(0.5, abs=1e-6)
    with pytest.raises(ValueError, match="a power that some number of seeds reaches"):
        seeds_for_difference(0.5, spread=1.0, smallest_effect=0.5)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("effect", "seeds"), [(0.0, 5), (0.0, 20), (0.4, 20), (1.0, 20), (1.3, 8)])
def test_the_power_of_equivalence(effect: float, seeds: int, paired: bool) -> None:
    mean, error, freedom = simulated(effect, 1.1, seeds, paired)
    reach = scipy.stats.t.ppf(0.95, freedom) * error
    inside = (mean - reach > -1) & (mean + reach < 1)
    chance = power_of_equivalence(effect, margin=1.0, spread=1.1, seeds=seeds, paired=paired)
    assert near(inside.mean(), chance)


def test_at_the_margin_equivalence_is_claimed_as_often_as_alpha() -> None:
    chances = [power_of_equivalence(1.0, margin=1.0, spread=1.0, seeds=n) for n in (3, 10, 200)]
    assert chances == sorted(chances)
    assert all(chance < 0.05 + 1e-9 for chance in chances)
    assert chances[-1] == pytest.approx(0.05, abs=1e-7)
    with pytest.raises(ValueError, match="a power that some number of seeds reaches"):
        seeds_for_equivalence(1.0, margin=1.0, spread=1.0)


def test_the_numbers_of_textbooks() -> None:
    # Cohen (1988): a medium effect, two arms, power 0.8 at the two-sided level 0.05.
    assert seeds_for_difference(0.5, spread=1.0, paired=False) == 64
    assert seeds_for_difference(0.8, spread=1.0, paired=False) == 26
    assert seeds_for_difference(0.2, spread=1.0, paired=False) in (393, 394)
    assert seeds_for_difference(0.5, spread=1.0) == 34


@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("paired", [True, False])
def test_one_seed_less_would_not_do(power: float, paired: bool) -> None:
    same = {"spread": 0.6, "paired": paired}
    seeds = seeds_for_difference(0.7, power=power, smallest_effect=0.3, **same)
    reached = [
        power_of_difference(0.7, seeds=n, smallest_effect=0.3, **same) for n in (seeds, seeds - 1)
    ]
    assert reached[0] >= power > reached[1]
    seeds = seeds_for_equivalence(0.1, margin=0.5, power=power, **same)
    reached = [power_of_equivalence(0.1, margin=0.5, seeds=n, **same) for n in (seeds, seeds - 1)]
    assert reached[0] >= power > reached[1]


def test_two_seeds_are_the_fewest() -> None:
    assert seeds_for_difference(100.0, spread=0.1, power=0.5) == 2
    assert seeds_for_equivalence(margin=100.0, spread=0.1, power=0.5) == 2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"spread": 0.0}, "spread above 0"),
        ({"spread": math.nan}, "spread above 0"),
        ({"seeds": 1}, "two seeds or more, got 1"),
        ({"confidence": 95.0}, "confidence between"),
        ({"effect": math.inf}, "finite effect"),
    ],
)
def test_bad_settings(changed: dict[str, float], words: str) -> None:
    settings: dict[str, Any] = {"effect": 1.0, "spread": 1.0, "seeds": 5} | changed
    with pytest.raises(ValueError, match=words):
        power_of_difference(**settings)
    with pytest.raises(ValueError, match=words):
        power_of_equivalence(margin=2.0, **settings)


def test_bad_bounds() -> None:
    with pytest.raises(ValueError, match="smallest effect of 0 or more"):
        power_of_difference(1.0, spread=1.0, seeds=5, smallest_effect=-0.1)
    with pytest.raises(ValueError, match="margin above 0"):
        power_of_equivalence(margin=0.0, spread=1.0, seeds=5)
    for power in (0.0, 1.0, 80.0):
        with pytest.raises(ValueError, match="power between 0 and 1"):
            seeds_for_difference(1.0, spread=1.0, power=power)
        with pytest.raises(ValueError, match="power between 0 and 1"):
            seeds_for_equivalence(margin=1.0, spread=1.0, power=power)
