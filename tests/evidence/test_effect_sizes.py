"""Effect sizes by hand, against scipy, and for how often their intervals hold the truth."""

import math
import time

import numpy as np
import pytest
import scipy.stats
from measured_book.evidence.effect_sizes import cohens_d, hedges_g

ONE = np.array([2.0, 4.0, 6.0, 8.0])
TWO = np.array([1.0, 2.0, 3.0])


def test_cohens_d_by_hand() -> None:
    # Means 5 and 2, squares 20 and 2 over 5 degrees of freedom.
    assert cohens_d(ONE, TWO, paired=False).value == pytest.approx(3 / math.sqrt(22 / 5))
    # Differences 1, 2, 3: mean 2, standard deviation 1.
    assert cohens_d(ONE[:3], TWO, paired=True).value == pytest.approx(2)
    assert cohens_d(TWO, ONE[:3], paired=True).value == pytest.approx(-2)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("shift", [0.0, 0.4, -3.0])
def test_the_interval_inverts_the_noncentral_t(
    paired: bool, confidence: float, shift: float
) -> None:
    one, two = np.random.default_rng(1).normal(0, 1, (2, 8)) + np.array([[shift], [0]])
    found = cohens_d(one, two, paired=paired, confidence=confidence)
    oracle = scipy.stats.ttest_rel(one, two) if paired else scipy.stats.ttest_ind(one, two)
    scale = math.sqrt(8 if paired else 4)  # from standard deviations to noncentrality
    for end, share in zip(
        found.interval, (0.5 + confidence / 2, 0.5 - confidence / 2), strict=True
    ):
        below = scipy.stats.nct.cdf(oracle.statistic, oracle.df, end * scale)
        assert below == pytest.approx(share, abs=1e-7)
    excludes_zero = found.interval[0] > 0 or found.interval[1] < 0
    assert excludes_zero == (oracle.pvalue < 1 - confidence)


def test_huge_effects_stay_quick_and_finite() -> None:
    started = time.perf_counter()
    found = cohens_d(1e6 + TWO, TWO[::-1].copy(), paired=True)
    assert time.perf_counter() - started < 1
    # With t this large only the spread is in doubt: the ends are quantiles of chi.
    quantiles = scipy.stats.chi.ppf([0.025, 0.975], 2) / math.sqrt(2)
    assert found.interval == pytest.approx(tuple(found.value * quantiles), rel=1e-4)


@pytest.mark.parametrize(("size", "paired"), [(3, True), (5, True), (4, False)])
def test_hedges_g_has_no_bias(size: int, paired: bool) -> None:
    rng, truth, repeats = np.random.default_rng(2), 0.8, 200_000
    one, two = rng.normal(0, 1, (2, repeats, size))
    if paired:
        d = (one + truth).mean(1) / one.std(1, ddof=1)
        sample = (ONE[:size] if size < 5 else np.arange(5.0) ** 2, np.zeros(size))
    else:
        d = ((one + truth).mean(1) - two.mean(1)) / np.sqrt(
            (one.var(1, ddof=1) + two.var(1, ddof=1)) / 2
        )
        sample = (ONE, ONE[::-1] - 3)
    shrunk = hedges_g(*sample, paired=paired).value / cohens_d(*sample, paired=paired).value
    error = 4 * d.std() / math.sqrt(repeats)
    assert abs(shrunk * d.mean() - truth) < error
    assert d.mean() - truth > error


def test_g_at_two_pairs_and_its_interval() -> None:
    assert hedges_g(ONE[:2], TWO[:2], paired=True).value == 0  # nothing can be said of the spread
    one, two = ONE[:3], TWO
    intervals = [f(one, two, paired=True).interval for f in (hedges_g, cohens_d)]
    assert intervals[0] == intervals[1]


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_of_d_covers(paired: bool) -> None:
    rng, truth, repeats = np.random.default_rng(3), 0.9, 300
    held = 0
    for _ in range(repeats):
        one, two = rng.normal(truth, 1, 6), rng.normal(0, 1, 6) * (not paired)
        low, high = cohens_d(one, two, paired=paired).interval
        held += low <= truth <= high
    assert abs(held / repeats - 0.95) < 4 * math.sqrt(0.95 * 0.05 / repeats)


def test_bad_samples() -> None:
    for function in (cohens_d, hedges_g):
        with pytest.raises(ValueError, match="no unit to count in"):
            function(ONE, ONE - 1, paired=True)
        with pytest.raises(ValueError, match="got 4 and 3"):
            function(ONE, TWO, paired=True)
        with pytest.raises(ValueError, match="confidence between"):
            function(ONE, TWO, paired=False, confidence=0.2)
