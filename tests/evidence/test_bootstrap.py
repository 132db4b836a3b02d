"""Bootstrap intervals against scipy, against their own definition, and for how often they hold the truth."""

import math

import numpy as np
import pytest
import scipy.stats
from measured_book.evidence.bootstrap import bootstrap_difference, bootstrap_interval
from measured_book.evidence.statistics import mean_interval

VALUES = np.array([0.2, 0.5, 0.4, 1.9, 0.8, 0.6, 0.3, 1.1])
OTHERS = np.array([0.1, -0.3, 0.4, 0.2, 0.9])


def bca(values: np.ndarray, confidence: float, resamples: int = 40_000) -> tuple[float, float]:
    """Efron's definition, written out for a mean."""
    rng, normal = np.random.default_rng(11), scipy.stats.norm
    means = rng.choice(values, (resamples, values.size)).mean(axis=1)
    at_mean = ((means < values.mean()).mean() + (means <= values.mean()).mean()) / 2
    bias = normal.ppf(at_mean)
    without = (values.sum() - values) / (values.size - 1)
    gaps = without.mean() - without
    acceleration = (gaps**3).sum() / (6 * (gaps**2).sum() ** 1.5)
    ends = bias + normal.ppf([(1 - confidence) / 2, (1 + confidence) / 2])
    shares = normal.cdf(bias + ends / (1 - acceleration * ends))
    low, high = np.quantile(means, shares)
    return float(low), float(high)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_is_efrons(confidence: float) -> None:
    found = bootstrap_interval(VALUES, confidence=confidence, resamples=40_000)
    assert found.effect == pytest.approx(VALUES.mean())
    assert found.method == "BCa"
    assert found.interval == pytest.approx(bca(VALUES, confidence), abs=0.02)
    plain = mean_interval(VALUES, confidence=confidence).interval
    assert found.interval[1] - found.effect > found.effect - found.interval[0]  # it leans
    assert plain[1] - found.effect == pytest.approx(found.effect - plain[0])


def test_a_median_and_two_arms_are_scipys() -> None:
    settings = {"n_resamples": 2000, "method": "BCa", "random_state": np.random.default_rng(3)}
    oracle = scipy.stats.bootstrap((VALUES,), np.median, **settings).confidence_interval
    found = bootstrap_interval(VALUES, of="median", resamples=2000, seed=3)
    assert found.interval == pytest.approx(tuple(oracle))
    settings["random_state"] = np.random.default_rng(4)
    oracle = scipy.stats.bootstrap(
        (VALUES, OTHERS), lambda a, b, axis: a.mean(axis) - b.mean(axis), **settings
    ).confidence_interval
    found = bootstrap_difference(VALUES, OTHERS, paired=False, resamples=2000, seed=4)
    assert found.effect == pytest.approx(VALUES.mean() - OTHERS.mean())
    assert found.interval == pytest.approx(tuple(oracle))


def test_pairs_are_resampled_together() -> None:
    common = np.array([0.0, 10.0, 20.0, 30.0, 40.0])
    paired = bootstrap_difference(common + OTHERS, common, paired=True)
    assert paired == bootstrap_interval(common + OTHERS - common)
    settings = {"of": "median", "confidence": 0.8, "resamples": 300, "seed": 5}
    for changed in ({}, {"of": "mean", "seed": 6}):
        again = bootstrap_difference(common + OTHERS, common, paired=True, **settings | changed)
        assert again == bootstrap_interval(common + OTHERS - common, **settings | changed)
    low, high = bootstrap_difference(common + OTHERS, common, paired=False).interval
    assert high - low > 10 * (paired.interval[1] - paired.interval[0])


def test_the_seed_decides_the_resamples() -> None:
    assert bootstrap_interval(VALUES, seed=1) == bootstrap_interval(VALUES, seed=1)
    assert (
        bootstrap_interval(VALUES, seed=1).interval != bootstrap_interval(VALUES, seed=2).interval
    )


def test_without_spread_the_interval_has_no_width() -> None:
    assert bootstrap_interval(np.full(3, 0.1)).interval == (0.1, 0.1)
    found = bootstrap_difference(np.full(3, 1.0), np.full(4, 0.5), paired=False)
    assert (found.effect, found.interval) == (0.5, (0.5, 0.5))
    low, high = bootstrap_difference(VALUES, np.full(4, 0.5), paired=False).interval
    assert low < VALUES.mean() - 0.5 < high


def test_few_and_tied_values() -> None:
    assert bootstrap_interval(np.array([1.0, 2.0])).interval == (1, 2)  # all that two values say
    tied = bootstrap_interval(np.array([1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0]), of="median")
    assert tied.method == "percentile"
    assert tied.effect == 2
    assert 1 <= tied.interval[0] <= 2 <= tied.interval[1] <= 3


def coverage(draw: object, truth: float, repeats: int = 800) -> tuple[float, float]:
    """How often the bootstrap interval and the t interval of a mean hold the truth."""
    rng = np.random.default_rng(5)
    held = np.zeros(2)
    for number in range(repeats):
        values = draw(rng)
        for index, (low, high) in enumerate(
            (
                bootstrap_interval(values, resamples=499, seed=number).interval,
                mean_interval(values).interval,
            )
        ):
            held[index] += low <= truth <= high
    resampled, student = held / repeats
    return float(resampled), float(student)


def four_sigma(share: float, repeats: int = 800) -> float:
    return 4 * math.sqrt(share * (1 - share) / repeats)


def test_at_five_seeds_the_bootstrap_is_too_narrow() -> None:
    resampled, student = coverage(lambda rng: rng.normal(1, 2, 5), 1.0)
    assert abs(student - 0.95) < four_sigma(0.95)
    assert abs(resampled - 0.83) < four_sigma(0.83)


def test_at_fifty_seeds_it_holds_the_truth_as_it_says() -> None:
    resampled, _ = coverage(lambda rng: rng.normal(1, 2, 50), 1.0)
    assert abs(resampled - 0.95) < four_sigma(0.95)


def test_where_values_are_skewed_it_leans_and_neither_is_exact() -> None:
    resampled, student = coverage(lambda rng: rng.exponential(1.0, 20), 1.0)
    assert 0.88 < resampled < 0.95
    assert 0.88 < student < 0.95


def test_two_arms_at_fifteen_seeds() -> None:
    rng = np.random.default_rng(6)
    repeats = 700
    held = 0
    for number in range(repeats):
        one, two = rng.normal(0.7, 1, 15), rng.normal(0, 3, 15)
        found = bootstrap_difference(one, two, paired=False, resamples=499, seed=number)
        held += found.interval[0] <= 0.7 <= found.interval[1]
    assert 0.88 < held / repeats < 0.96


def test_bad_samples_and_settings() -> None:
    with pytest.raises(ValueError, match="at least 2 values"):
        bootstrap_interval(np.ones(1))
    with pytest.raises(ValueError, match="finite values, got nan"):
        bootstrap_difference(VALUES, np.array([1.0, np.nan]), paired=False)
    with pytest.raises(ValueError, match="got 8 and 5"):
        bootstrap_difference(VALUES, OTHERS, paired=True)
    with pytest.raises(ValueError, match="confidence between"):
        bootstrap_interval(VALUES, confidence=1.0)
    with pytest.raises(ValueError, match="at least 100 resamples, got 10"):
        bootstrap_interval(VALUES, resamples=10)


@pytest.mark.usefixtures("unhooked")
def test_an_unknown_statistic() -> None:
    import subprocess  # shape checks of tests refuse the word before the function can
    import sys

    code = (
        "import numpy as np; from measured_book.evidence.bootstrap import bootstrap_interval;"
        "bootstrap_interval(np.ones(3), of='mode')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "expected one of mean, median to resample, got 'mode'" in done.stderr
