"""Tests by rank and differences of shares: published numbers, full enumeration, rates of false alarms."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from measured_book.evidence.statistics import (
    mean_difference,
    proportion_difference,
    rank_test,
)


def all_signs(differences: np.ndarray) -> float:
    """The p-value of the signed-rank test, from every way to give the differences a sign."""
    kept = differences[differences != 0]
    ranks = scipy.stats.rankdata(np.abs(kept))
    signs = np.array(list(itertools.product([-1, 1], repeat=kept.size)))
    sums, seen = signs @ ranks, np.sign(kept) @ ranks
    return min(1.0, 2 * min((sums >= seen - 1e-9).mean(), (sums <= seen + 1e-9).mean()))


def all_splits(one: np.ndarray, two: np.ndarray) -> float:
    """The p-value of the Mann-Whitney test, from every way to deal the ranks to the arms."""
    ranks = scipy.stats.rankdata(np.concatenate([one, two]))
    sums = np.array([sum(dealt) for dealt in itertools.combinations(ranks, one.size)])
    seen = ranks[: one.size].sum()
    return min(1.0, 2 * min((sums >= seen - 1e-9).mean(), (sums <= seen + 1e-9).mean()))


@pytest.mark.parametrize("levels", [3, 1000])
@pytest.mark.parametrize("size", [4, 6, 8])
def test_every_arrangement_is_counted(levels: int, size: int) -> None:
    rng = np.random.default_rng(size + levels)
    for _ in range(8):
        one = rng.integers(0, levels, size) * 1.0
        two = rng.integers(0, levels, size) * 1.0
        if (one != two).any():
            assert rank_test(one, two, paired=True).p == pytest.approx(all_signs(one - two))
        found = rank_test(one, two[: size - 1], paired=False)
        assert found.p == pytest.approx(all_splits(one, two[: size - 1]))


@pytest.mark.parametrize("tied", [False, True])
def test_many_values_are_scipys(tied: bool) -> None:
    one, two = np.random.default_rng(1).normal(0.3, 1, (2, 40))
    if tied:
        one, two = np.round(one), np.round(two)
        paired = scipy.stats.wilcoxon(one, two, method="approx", correction=True)
        unpaired = scipy.stats.mannwhitneyu(one, two, method="asymptotic")
    else:
        paired = scipy.stats.wilcoxon(one, two, method="exact")
        unpaired = scipy.stats.mannwhitneyu(one, two, method="exact")
    assert rank_test(one, two, paired=True).p == pytest.approx(paired.pvalue)
    assert rank_test(one, two, paired=False).p == pytest.approx(unpaired.pvalue)


def test_hodges_and_lehmann_by_hand() -> None:
    one, two = np.array([1.0, 3.0, 8.0]), np.array([0.0, 1.0, 2.0])
    # Differences 1, 2, 6; with their means 1, 1.5, 2, 3.5, 4, 6.
    assert rank_test(one, two, paired=True).shift == pytest.approx(2.75)
    # Across: 1, 0, -1, 3, 2, 1, 8, 7, 6.
    assert rank_test(one, two, paired=False).shift == pytest.approx(2)


def test_five_pairs_can_never_reject() -> None:
    found = rank_test(np.arange(1.0, 6.0), np.zeros(5), paired=True)
    assert found.p == found.smallest_p == 1 / 16
    found = rank_test(np.arange(1.0, 6.0), np.zeros(5), paired=False)
    assert found.p >= found.smallest_p == pytest.approx(2 / 252)
    alike = rank_test(np.ones(4), np.ones(4), paired=True)
    assert (alike.shift, alike.p, alike.smallest_p) == (0, 1, 1)
    assert rank_test(np.ones(4), np.ones(6), paired=False).p == 1


def test_an_outlier_hides_a_difference_from_the_t_test_alone() -> None:
    rng = np.random.default_rng(2)
    two = rng.normal(0, 1, 12)
    one = two + rng.uniform(0.5, 1, 12)
    one[3] += 500
    assert mean_difference(one, two, paired=True).p > 0.2
    assert rank_test(one, two, paired=True).p < 0.001
    assert rank_test(one, two, paired=True).shift < 2


def test_the_rank_tests_seldom_raise_a_false_alarm() -> None:
    """Exact tests: at most 5 %, whatever the distribution; heavy tails and ties here."""
    rng, repeats = np.random.default_rng(3), 300
    alarms = dict.fromkeys(itertools.product((True, False), ("heavy", "tied")), 0)
    for _ in range(repeats):
        heavy = rng.standard_cauchy((2, 6))
        tied = rng.integers(0, 3, (2, 6)) * 1.0
        for (paired, kind), _ in list(alarms.items()):
            one, two = heavy if kind == "heavy" else tied
            alarms[paired, kind] += rank_test(one, two, paired=paired).p <= 0.05
    for case, count in alarms.items():
        assert count / repeats < 0.05 + 4 * math.sqrt(0.05 * 0.95 / repeats), case
        assert count > 0, case


@pytest.mark.parametrize(
    ("counts", "interval"),
    [  # Newcombe (1998), table II, method 10
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((10, 10, 0, 10), (0.6075, 1.0)),
        ((5, 56, 0, 29), (-0.0381, 0.1926)),
    ],
)
def test_newcombes_own_examples(counts: tuple[int, ...], interval: tuple[float, float]) -> None:
    found = proportion_difference(*counts)
    assert found.interval == pytest.approx(interval, abs=6e-5)
    assert found.effect == pytest.approx(counts[0] / counts[1] - counts[2] / counts[3])


def test_fishers_test_by_hand() -> None:
    # Three of three against none of three: one of the twenty splits, and its mirror.
    assert proportion_difference(3, 3, 0, 3).p == pytest.approx(2 / 20)
    assert proportion_difference(2, 5, 2, 5).p == 1


def test_swapping_the_shares_turns_the_sign() -> None:
    there, back = proportion_difference(7, 9, 2, 12), proportion_difference(2, 12, 7, 9)
    assert back.effect == pytest.approx(-there.effect)
    assert back.interval == pytest.approx((-there.interval[1], -there.interval[0]))
    assert back.p == pytest.approx(there.p)


def test_shares_cover_and_seldom_raise_a_false_alarm() -> None:
    """Exact, not simulated: summed over all outcomes of ten against fifteen trials."""
    outcomes = list(itertools.product(range(11), range(16)))
    found = [proportion_difference(one, 10, two, 15) for one, two in outcomes]
    low, high, p = np.array([(*estimate.interval, estimate.p) for estimate in found]).T
    coverages = []
    for share, other in itertools.product((0.05, 0.3, 0.5, 0.8, 0.95), repeat=2):
        chances = [
            scipy.stats.binom.pmf(n, size, truth)
            for n, size, truth in ((np.arange(11), 10, share), (np.arange(16), 15, other))
        ]
        weights = np.outer(*chances).ravel()
        coverages.append(weights[(low <= share - other) & (share - other <= high)].sum())
        if share == other:
            assert weights[p <= 0.05].sum() <= 0.05
    assert min(coverages) > 0.88
    assert abs(np.mean(coverages) - 0.95) < 0.015


def test_bad_arms_and_counts() -> None:
    with pytest.raises(ValueError, match="got 3 and 2"):
        rank_test(np.ones(3), np.ones(2), paired=True)
    with pytest.raises(ValueError, match="finite values"):
        rank_test(np.ones(3), np.array([1.0, np.nan]), paired=False)
    with pytest.raises(ValueError, match="successes <= trials"):
        proportion_difference(1, 2, 3, 2)
    with pytest.raises(ValueError, match="successes <= trials"):
        proportion_difference(0, 0, 1, 2)
    with pytest.raises(ValueError, match="confidence between"):
        proportion_difference(1, 2, 1, 2, confidence=95.0)
