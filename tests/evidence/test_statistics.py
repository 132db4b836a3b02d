"""Statistics against scipy's own tests, hand-computed numbers, and simulation."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from measured_book.evidence.statistics import (
    equivalence,
    mean_difference,
    mean_interval,
    proportion,
)
from measured_book.evidence.verdicts import holm

# Thousandths, so that a spread is either zero or well above rounding.
samples = hnp.arrays(np.int64, 6, elements=st.integers(-5000, 5000)).map(lambda a: a / 1000)


def spread(values: np.ndarray) -> bool:
    return bool(np.ptp(values) > 0)


def test_mean_interval_by_hand() -> None:
    # 1..5: mean 3, standard error sqrt(2.5 / 5), t(0.975, 4) = 2.776445.
    estimate = mean_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    reach = 2.776445105 * math.sqrt(0.5)
    assert estimate.effect == 3
    assert estimate.interval == pytest.approx((3 - reach, 3 + reach), rel=1e-8)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("against", [0.0, 0.3])
def test_mean_interval_is_scipys(confidence: float, against: float) -> None:
    values = np.random.default_rng(1).normal(0.4, 1, 9)
    oracle = scipy.stats.ttest_1samp(values, against)
    estimate = mean_interval(values, confidence=confidence, against=against)
    assert estimate.interval == pytest.approx(tuple(oracle.confidence_interval(confidence)))
    assert estimate.p == pytest.approx(oracle.pvalue)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_paired_difference_is_scipys(confidence: float) -> None:
    one, two = np.random.default_rng(2).normal(0, 1, (2, 7))
    oracle = scipy.stats.ttest_rel(one, two)
    estimate = mean_difference(one, two, paired=True, confidence=confidence)
    assert estimate.effect == pytest.approx((one - two).mean())
    assert estimate.interval == pytest.approx(tuple(oracle.confidence_interval(confidence)))
    assert estimate.p == pytest.approx(oracle.pvalue)


@pytest.mark.parametrize("sizes", [(5, 5), (4, 11)])
def test_unpaired_difference_is_scipys_welch(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    one, two = rng.normal(0, 1, sizes[0]), rng.normal(1, 3, sizes[1])
    oracle = scipy.stats.ttest_ind(one, two, equal_var=False)
    estimate = mean_difference(one, two, paired=False)
    assert estimate.interval == pytest.approx(tuple(oracle.confidence_interval(0.95)))
    assert estimate.p == pytest.approx(oracle.pvalue)


def test_unpaired_with_one_arm_constant_is_the_other_arms_interval() -> None:
    one, two = np.array([1.0, 2.0, 4.0, 4.5]), np.full(6, 0.5)
    estimate = mean_difference(one, two, paired=False)
    oracle = scipy.stats.ttest_1samp(one - 0.5, 0).confidence_interval(0.95)
    assert estimate.interval == pytest.approx(tuple(oracle))


@pytest.mark.parametrize("shift", [-0.4, 0.0, 0.3, 2.0])
@pytest.mark.parametrize("paired", [True, False])
def test_equivalence_is_two_one_sided_tests(shift: float, paired: bool) -> None:
    rng = np.random.default_rng(4)
    one, two = rng.normal(shift, 1, 30), rng.normal(0, 1, 30)
    margin = 0.7
    if paired:
        lower = scipy.stats.ttest_1samp(one - two, -margin, alternative="greater").pvalue
        upper = scipy.stats.ttest_1samp(one - two, margin, alternative="less").pvalue
    else:
        arms = {"equal_var": False}
        lower = scipy.stats.ttest_ind(one + margin, two, alternative="greater", **arms).pvalue
        upper = scipy.stats.ttest_ind(one - margin, two, alternative="less", **arms).pvalue
    estimate = equivalence(one, two, margin=margin, paired=paired)
    assert estimate.confidence == pytest.approx(0.9)
    assert estimate.p_inside == pytest.approx(max(lower, upper))
    assert estimate.p_beyond == pytest.approx(min(1 - lower, 1 - upper))
    inside = -margin < estimate.interval[0] and estimate.interval[1] < margin
    assert inside == (estimate.p_inside < 0.05)
    beyond = estimate.interval[0] > margin or estimate.interval[1] < -margin
    assert beyond == (estimate.p_beyond < 0.05)


@pytest.mark.parametrize("successes", [0, 1, 7, 19, 20])
def test_clopper_pearson_is_the_quantiles_of_beta(successes: int) -> None:
    low, high = proportion(successes, 20).interval
    beta = scipy.stats.beta
    expected_low = beta.ppf(0.025, successes, 21 - successes) if successes else 0.0
    expected_high = beta.ppf(0.975, successes + 1, 20 - successes) if successes < 20 else 1.0
    assert (low, high) == pytest.approx((expected_low, expected_high))


def test_no_success_by_hand() -> None:
    # None of n: the upper end is 1 - (alpha / 2) ** (1 / n).
    assert proportion(0, 10).interval == pytest.approx((0, 1 - 0.025 ** (1 / 10)))


@given(st.integers(0, 30), st.floats(0.02, 0.98))
def test_the_p_value_of_a_share_agrees_with_its_interval(successes: int, against: float) -> None:
    estimate = proportion(successes, 30, against=against)
    low, high = estimate.interval
    if not math.isclose(estimate.p, 0.05, rel_tol=1e-6):
        assert (estimate.p > 0.05) == (low <= against <= high)


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1, made to ascend.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([0.001]) == [0.001]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_rejects_what_stepping_down_rejects(ps: list[float]) -> None:
    """The textbook procedure: step down the sorted p-values until the first that is too large."""
    alpha = 0.05
    rejected = set()
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        if ps[index] * (len(ps) - rank) > alpha:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(holm(ps)) if p <= alpha} == rejected


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_holm_wants_probabilities(p: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        holm([0.5, p])


@given(samples, samples, st.integers(-3000, 3000).map(lambda n: n / 1000))
def test_a_common_constant_changes_nothing(
    one: np.ndarray, two: np.ndarray, constant: float
) -> None:
    for paired in (True, False):
        before = mean_difference(one, two, paired=paired)
        after = mean_difference(one + constant, two + constant, paired=paired)
        assert after.effect == pytest.approx(before.effect, abs=1e-9)
        if spread(one - two):
            assert after.interval == pytest.approx(before.interval, abs=1e-8)


@given(samples, samples, st.permutations(range(6)))
def test_the_order_of_the_seeds_does_not_matter(
    one: np.ndarray, two: np.ndarray, order: list[int]
) -> None:
    before = mean_difference(one, two, paired=True)
    after = mean_difference(one[order], two[order], paired=True)
    assert after.interval == pytest.approx(before.interval, abs=1e-9)


@given(samples, samples)
def test_swapping_the_arms_turns_the_sign(one: np.ndarray, two: np.ndarray) -> None:
    for paired in (True, False):
        there, back = (mean_difference(a, b, paired=paired) for a, b in ((one, two), (two, one)))
        assert back.effect == pytest.approx(-there.effect, abs=1e-12)
        assert back.interval == pytest.approx(tuple(-end for end in reversed(there.interval)))
        assert back.p == pytest.approx(there.p)


def test_without_spread_the_interval_has_no_width() -> None:
    # 0.1 is no binary fraction: its mean over three is off by a rounding, which is no spread.
    estimate = mean_interval(np.full(3, 0.1), against=0.1)
    assert estimate.interval == (0.1, 0.1)
    assert estimate.p == 1
    assert mean_interval(np.full(3, 0.1)).p == 0
    assert mean_difference(np.full(3, 1.0), np.full(4, 0.5), paired=False).interval == (0.5, 0.5)
    same = equivalence(np.ones(3), np.ones(3), margin=0.1, paired=True)
    assert (same.p_inside, same.p_beyond) == (0, 1)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    repeats, covered = 3000, {True: 0, False: 0}
    for _ in range(repeats):
        common = rng.normal(0, 3, 5)  # what pairing by seed removes
        one, two = common + rng.normal(0.7, 1, 5), common + rng.normal(0, 1, 5)
        for paired in (True, False):
            low, high = mean_difference(one, two, paired=paired).interval
            covered[paired] += low <= 0.7 <= high
    # Four standard deviations of a binomial count around 95 %.
    assert abs(covered[True] / repeats - 0.95) < 4 * math.sqrt(0.95 * 0.05 / repeats)
    assert covered[False] / repeats > 0.97  # ignoring the pairs wastes precision, but is safe


def test_welch_covers_when_the_arms_spread_differently() -> None:
    rng = np.random.default_rng(6)
    repeats = 2000
    covered = 0
    for _ in range(repeats):
        one, two = rng.normal(0.7, 1, 8), rng.normal(0, 4, 12)
        low, high = mean_difference(one, two, paired=False).interval
        covered += low <= 0.7 <= high
    assert abs(covered / repeats - 0.95) < 4 * math.sqrt(0.95 * 0.05 / repeats)


def test_equivalence_is_seldom_claimed_at_the_margin() -> None:
    rng = np.random.default_rng(7)
    repeats = 3000
    claims = {"inside": 0, "beyond": 0}
    for _ in range(repeats):
        one, two = rng.normal(0.5, 0.3, 10), np.zeros(10)
        estimate = equivalence(one, two, margin=0.5, paired=True)
        claims["inside"] += estimate.p_inside < 0.05
        claims["beyond"] += estimate.p_beyond < 0.05
    tolerance = 4 * math.sqrt(0.05 * 0.95 / repeats)
    assert abs(claims["inside"] / repeats - 0.05) < tolerance
    assert abs(claims["beyond"] / repeats - 0.05) < tolerance


def test_clopper_pearson_covers_at_least_as_often_as_it_says() -> None:
    # Exact, not simulated: the chance that the interval holds the truth, summed over all outcomes.
    for truth in (0.03, 0.2, 0.5, 0.85):
        weights = scipy.stats.binom.pmf(np.arange(26), 25, truth)
        ends = [proportion(k, 25).interval for k in range(26)]
        covers = np.array([low <= truth <= high for low, high in ends])
        assert weights[covers].sum() >= 0.95


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([1.0]), r"at least 2 values, got shape \(1,\)"),
        (np.array([1.0, np.nan, 2.0]), "finite values, got nan at index 1"),
        (np.array([1.0, 2.0, -np.inf]), "finite values, got -inf at index 2"),
    ],
)
def test_too_few_and_non_finite_values(values: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mean_interval(values)
    with pytest.raises(ValueError, match=words):
        mean_difference(values, np.ones(3), paired=False)
    with pytest.raises(ValueError, match=words):
        equivalence(np.ones(3), values, margin=1.0, paired=False)


def test_unequal_pairs_and_bad_settings() -> None:
    with pytest.raises(ValueError, match="got 3 and 2; measure the same seeds"):
        mean_difference(np.ones(3), np.ones(2), paired=True)
    for confidence in (0.5, 1.0, 95.0):
        with pytest.raises(ValueError, match="confidence between"):
            mean_interval(np.ones(3), confidence=confidence)
    for margin in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="margin above 0"):
            equivalence(np.ones(3), np.ones(3), margin=margin, paired=True)
    for successes, trials in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="successes <= trials"):
            proportion(successes, trials)
    with pytest.raises(ValueError, match="share between 0 and 1"):
        proportion(1, 2, against=1.0)
