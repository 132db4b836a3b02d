"""Rules: each verdict is reachable, boundaries fall as declared, and symmetries hold."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from measured_book.evidence.registry import (
    Bound,
    Difference,
    Equivalence,
    Identity,
    Number,
    Proportion,
    Rule,
    Threshold,
)
from measured_book.evidence.rules import judge, numbers
from measured_book.evidence.verdicts import Verdict

C, R, N, I = (  # noqa: E741
    Verdict.CONFIRMED,
    Verdict.REFUTED,
    Verdict.NOT_REPRODUCED,
    Verdict.INCONCLUSIVE,
)


def around(mean: float, spread: float, n: int = 5) -> np.ndarray:
    """Values with exactly this mean and standard deviation."""
    values = np.arange(n) - (n - 1) / 2
    return mean + spread * values / values.std(ddof=1)


# With five values the 95 % interval reaches 2.776 / sqrt(5) = 1.2417 standard deviations.
REACH = 1.2416639982


IDENTITY = Identity(tolerance=1e-9, control_above=1e-3)


@pytest.mark.parametrize(
    ("error", "control", "verdict"),
    [
        ([1e-12, -1e-10], [0.5], C),
        ([1e-9], [0.5], C),  # the tolerance belongs to the identity
        ([1.0000001e-9], [0.5], R),
        ([1e-12, -2e-9], [0.5], R),  # one of many, and negative
        ([1e-12], [0.5, 1e-3], I),  # a control must exceed its bound
        ([1e-12], [0.5, -0.2], C),
        ([1.0], [0.0], R),  # a failed identity needs no control
        (0.0, 1.0, C),
    ],
)
def test_identity(error: object, control: object, verdict: Verdict) -> None:
    judged = judge(IDENTITY, {"error": error, "control": control})
    assert judged.verdict is verdict
    assert judged.effect == np.abs(error).max()
    assert judged.interval is None
    assert judged.p is None


def test_identity_without_control_says_so_in_the_rule() -> None:
    rule = Identity(tolerance=1e-9, no_control="the two sides are the same expression")
    assert judge(rule, {"error": [0.0]}).verdict is C
    with pytest.raises(ValueError, match="expected the values error for a rule of type identity"):
        judge(rule, {"error": [0.0], "control": [1.0]})
    with pytest.raises(ValueError, match=r"expected the values error, control .* got error"):
        judge(IDENTITY, {"error": [0.0]})


@pytest.mark.parametrize(
    ("rule", "value", "verdict", "relation"),
    [
        (Number((6.283,), digits=3), 2 * math.pi, C, "agrees"),
        (Number((6.283,), digits=3), 6.2836, C, "rounded"),
        (Number((6.283,), digits=3), 6.7, R, "differs"),
        (Number((6.283,), digits=3, within=0.2), 6.7, C, "rounded"),
        (Number((100.0,), digits=0), 105.0, C, "rounded"),  # five percent are still rounding
        (Number((100.0,), digits=0), 105.01, R, "differs"),
        (Number((100.0,), within=0.02), 100.0, C, "rounded"),
        (Number((100.0,), within=0.02), 103.0, R, "differs"),
        (Number((300.0,), digits=-2), 349.0, C, "agrees"),
        (Number((0.3,), digits=1), 0.35, C, "agrees"),  # the half belongs to both
        (Number((0.0,), digits=2), 0.004, C, "agrees"),
        (Number((0.0,), digits=2), 0.006, R, "differs"),
        (Number((-2.0,), digits=0), 2.0, R, "differs"),
        (Number((17.0, 31.0), digits=0), [16.9, 30.6], C, "agrees"),
        (Number((17.0, 31.0), digits=0), [16.9, 30.4], C, "rounded"),
        (Number((17.0, 31.0), digits=0), [16.9, 40.0], R, "differs"),
    ],
)
def test_number(rule: Number, value: object, verdict: Verdict, relation: str) -> None:
    judged = judge(rule, {"value": value})
    assert judged.verdict is verdict
    assert judged.details["relation"] == relation


def test_number_reports_where_it_differs_most() -> None:
    judged = judge(Number((1.0, 20.0, 30.0), digits=0), {"value": [1.2, 20.6, 27.0]})
    assert judged.effect == pytest.approx(-3)
    assert judged.details["stated"] == 30
    with pytest.raises(ValueError, match="expected 3 numbers, one for each stated, got 1"):
        judge(Number((1.0, 20.0, 30.0), digits=0), {"value": 1.2})


@pytest.mark.parametrize(
    ("rule", "value", "verdict", "effect"),
    [
        (Bound(at_most=0.0), [0, 0], C, 0),
        (Bound(at_most=0.0), [0, 3, 1], R, 3),
        (Bound(at_least=1.0), [1.0, 2.0], C, 1),
        (Bound(above=1.0), [1.0, 2.0], R, 1),
        (Bound(above=0.0), [0.5, 0.2], C, 0.2),
        (Bound(below=1.0), [0.5, 1.0], R, 1),
        (Bound(below=1.0), [0.5], C, 0.5),
        (Bound(at_least=-1.0, at_most=1.0), [0.9, -0.95], C, -0.95),
        (Bound(at_least=-1.0, at_most=1.0), [0.0, -1.1], R, -1.1),
    ],
)
def test_bound(rule: Bound, value: object, verdict: Verdict, effect: float) -> None:
    judged = judge(rule, {"value": value})
    assert judged.verdict is verdict
    assert judged.effect == effect


def test_bound_with_control() -> None:
    rule = Bound(at_most=0.0, control=True)
    assert judge(rule, {"value": [0], "control": [1, 2]}).verdict is C
    assert judge(rule, {"value": [0], "control": [1, 0]}).verdict is I
    assert judge(rule, {"value": [1], "control": [1, 0]}).verdict is R
    with pytest.raises(ValueError, match="expected the values value, control"):
        judge(rule, {"value": [0]})


@pytest.mark.parametrize(
    ("mean", "spread", "verdict"),
    [
        (0.5, 0.1, C),
        (0.5, 0.5 / REACH * 0.999, C),  # the interval just clears zero ...
        (0.5, 0.5 / REACH * 1.001, I),  # ... and just does not
        (0.11, 0.01, C),
        (0.1, 0.0, I),  # the mean must exceed the smallest effect
        (0.09, 0.0, N),
        (0.09, 0.001, N),  # above zero beyond doubt, and too small
        (0.09, 0.02, I),
        (0.0, 0.01, N),
        (0.0, 0.1 / REACH * 0.999, N),
        (0.0, 0.1 / REACH * 1.001, I),
        (0.0, 1.0, I),
        (-0.09, 0.001, N),  # below zero beyond doubt, and too small to be the opposite
        (-0.5, 0.1, R),
        (-0.5, 0.5 / REACH * 0.999, R),
        (-0.5, 0.5 / REACH * 1.001, N),  # the interval touches zero: absent, not opposite
        (-5.0, 5.0 / REACH * 1.01, N),  # never above the smallest effect, the opposite unproved
    ],
)
@pytest.mark.parametrize("direction", ["greater", "less"])
def test_difference(mean: float, spread: float, verdict: Verdict, direction: str) -> None:
    if (mean, verdict) == (-5.0, N):
        # The upper end, 5 * 0.01, lies between zero and the smallest effect.
        assert 0 < mean + REACH * spread < 0.1
    sign = 1 if direction == "greater" else -1
    rule = Difference(direction=direction, smallest_effect=0.1)
    baseline = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
    judged = judge(
        rule, {"treatment": baseline + sign * around(mean, spread), "baseline": baseline}
    )
    if spread == 0:  # the baseline's digits leave a rounding in the differences
        constant = np.full(5, sign * mean)
        judged = judge(rule, {"treatment": constant, "baseline": np.zeros(5)})
    assert judged.verdict is verdict
    assert judged.effect == pytest.approx(sign * mean, abs=1e-12)
    assert judged.p is not None


def test_pairing_decides_what_the_noise_is() -> None:
    common = np.array([0.0, 10.0, 20.0, 30.0, 40.0])
    values = {"treatment": common + around(1.0, 0.1), "baseline": common}
    assert judge(Difference("greater", 0.5), values).verdict is C
    assert judge(Difference("greater", 0.5, paired=False), values).verdict is I


@pytest.mark.parametrize(
    ("mean", "spread", "verdict"),
    [
        (0.0, 0.05, C),
        (0.05, 0.01, C),
        (0.0, 0.5, I),
        (0.1, 0.01, I),
        (0.2, 0.01, R),
        (-0.2, 0.01, R),
        (0.1, 0.0, I),  # exactly at the margin is on neither side
        (0.0999, 0.0, C),
        (0.1001, 0.0, R),
    ],
)
def test_equivalence(mean: float, spread: float, verdict: Verdict) -> None:
    values = {"treatment": around(mean, spread), "baseline": np.zeros(5)}
    judged = judge(Equivalence(margin=0.1), values)
    assert judged.verdict is verdict
    assert judged.p is not None
    assert (judged.p < 0.05) == (verdict is not I)
    assert judged.details["confidence"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("rule", "successes", "trials", "verdict"),
    [
        (Proportion(at_least=0.8), 100, 100, C),
        (Proportion(at_least=0.8), 88, 100, I),  # 0.8 lies inside 0.7998 to 0.9364
        (Proportion(at_least=0.8), 89, 100, C),
        (Proportion(at_least=0.8), 71, 100, R),
        (Proportion(at_least=0.8), 5, 5, I),  # too few
        (Proportion(at_most=0.2), 0, 100, C),
        (Proportion(at_most=0.2), 40, 100, R),
        (Proportion(at_least=0.8), [50, 50], [50, 50], C),
    ],
)
def test_proportion(rule: Proportion, successes: object, trials: object, verdict: Verdict) -> None:
    judged = judge(rule, {"successes": successes, "trials": trials})
    assert judged.verdict is verdict
    assert judged.effect == np.sum(successes) / np.sum(trials)


@pytest.mark.parametrize(
    ("rule", "mean", "spread", "verdict"),
    [
        (Threshold(at_least=0.9), 0.95, 0.05 / REACH * 0.999, C),
        (Threshold(at_least=0.9), 0.95, 0.05 / REACH * 1.001, I),
        (Threshold(at_least=0.9), 0.85, 0.05 / REACH * 0.999, R),
        (Threshold(at_least=0.9), 0.85, 0.05 / REACH * 1.001, I),
        (Threshold(at_most=0.9), 0.85, 0.05 / REACH * 0.999, C),
        (Threshold(at_most=0.9), 0.95, 0.05 / REACH * 0.999, R),
        (Threshold(at_most=0.9), 0.9, 0.01, I),
        (Threshold(at_least=0.9), 1.0, 0.0, C),
        (Threshold(at_least=0.1, at_most=0.2), 0.15, 0.05 / REACH * 0.999, C),
        (Threshold(at_least=0.1, at_most=0.2), 0.15, 0.05 / REACH * 1.001, I),
        (Threshold(at_least=0.1, at_most=0.2), 0.12, 0.02 / REACH * 1.001, I),
        (Threshold(at_least=0.1, at_most=0.2), 0.18, 0.02 / REACH * 1.001, I),
        (Threshold(at_least=0.1, at_most=0.2), 0.05, 0.05 / REACH * 0.999, R),
        (Threshold(at_least=0.1, at_most=0.2), 0.05, 0.05 / REACH * 1.001, I),
        (Threshold(at_least=0.1, at_most=0.2), 0.25, 0.05 / REACH * 0.999, R),
        (Threshold(at_least=0.1, at_most=0.2), 0.25, 0.05 / REACH * 1.001, I),
    ],
)
def test_threshold(rule: Threshold, mean: float, spread: float, verdict: Verdict) -> None:
    judged = judge(rule, {"value": around(mean, spread)})
    assert judged.verdict is verdict
    assert judged.effect == pytest.approx(mean)
    assert judged.p is not None
    assert (judged.p < 0.05) == (verdict is not I)


@pytest.mark.parametrize("mean", [0.05, 0.25])
def test_beyond_a_range_the_nearer_end_counts(mean: float) -> None:
    range_rule = Threshold(at_least=0.1, at_most=0.2)
    nearer = Threshold(at_least=0.1) if mean < 0.1 else Threshold(at_most=0.2)
    values = {"value": around(mean, 0.04)}
    assert judge(range_rule, values).p == judge(nearer, values).p


def test_the_false_alarm_rate_of_a_difference() -> None:
    """Where there is no effect, confirmed and refuted each come in at most 2.5 % of all cases."""
    rng = np.random.default_rng(8)
    rule = Difference("greater", smallest_effect=1e-9)
    repeats = 3000
    verdicts = [
        judge(rule, {"treatment": a, "baseline": b}).verdict
        for a, b in rng.normal(0, 1, (repeats, 2, 5))
    ]
    tolerance = 4 * math.sqrt(0.025 * 0.975 / repeats)
    assert abs(verdicts.count(C) / repeats - 0.025) < tolerance
    assert abs(verdicts.count(R) / repeats - 0.025) < tolerance


def test_the_power_of_a_difference_at_twice_the_smallest_effect() -> None:
    rng = np.random.default_rng(9)
    rule = Difference("greater", smallest_effect=1.0)
    verdicts = [
        judge(rule, {"treatment": a + 2, "baseline": b}).verdict
        for a, b in rng.normal(0, 0.5, (500, 2, 10))
    ]
    assert verdicts.count(C) / 500 > 0.95


thousandths = st.integers(-3000, 3000).map(lambda n: n / 1000)
arms = st.tuples(*[st.lists(thousandths, min_size=5, max_size=5)] * 2)
RULES_WITH_ARMS: list[Rule] = [
    Difference("greater", 0.25),
    Difference("less", 0.25),
    Difference("greater", 0.25, paired=False),
    Equivalence(0.25),
    Equivalence(0.25, paired=False),
]


@given(arms, st.sampled_from(RULES_WITH_ARMS), st.permutations(range(5)))
def test_permuting_the_seeds_jointly_changes_no_verdict(
    both: tuple[list[float], list[float]], rule: Rule, order: list[int]
) -> None:
    one, two = map(np.array, both)
    before = judge(rule, {"treatment": one, "baseline": two})
    after = judge(rule, {"treatment": one[order], "baseline": two[order]})
    assume(far_from_boundaries(before.effect, before.interval))
    assert after.verdict is before.verdict
    assert after.effect == pytest.approx(before.effect, abs=1e-12)


@given(arms, st.sampled_from(RULES_WITH_ARMS), st.integers(-8, 8))
def test_a_common_constant_changes_no_verdict(
    both: tuple[list[float], list[float]], rule: Rule, constant: int
) -> None:
    one, two = map(np.array, both)
    before = judge(rule, {"treatment": one, "baseline": two})
    after = judge(rule, {"treatment": one + constant, "baseline": two + constant})
    assume(far_from_boundaries(before.effect, before.interval))
    assert after.verdict is before.verdict


@given(arms, st.booleans())
def test_turning_the_direction_mirrors_the_verdict(
    both: tuple[list[float], list[float]], paired: bool
) -> None:
    values = {"treatment": both[0], "baseline": both[1]}
    there = judge(Difference("greater", 0.25, paired=paired), values)
    back = judge(Difference("less", 0.25, paired=paired), values)
    assert (there.verdict is C) == (back.verdict is R)
    assert (there.verdict is R) == (back.verdict is C)
    assert (there.effect, there.interval, there.p) == (back.effect, back.interval, back.p)


@given(arms, st.booleans())
def test_swapping_the_arms_is_turning_the_direction(
    both: tuple[list[float], list[float]], paired: bool
) -> None:
    one, two = both
    there = judge(Difference("greater", 0.25, paired=paired), {"treatment": one, "baseline": two})
    back = judge(Difference("less", 0.25, paired=paired), {"treatment": two, "baseline": one})
    assume(far_from_boundaries(there.effect, there.interval))
    assert there.verdict is back.verdict


@given(arms, st.booleans())
def test_equivalent_is_never_different_beyond_the_margin(
    both: tuple[list[float], list[float]], paired: bool
) -> None:
    values = {"treatment": both[0], "baseline": both[1]}
    same = judge(Equivalence(0.25, paired=paired), values).verdict
    greater = judge(Difference("greater", 0.25, paired=paired), values).verdict
    assert not (same is C and greater in (C, R))


def far_from_boundaries(effect: float, interval: tuple[float, float] | None) -> bool:
    assert interval is not None
    marks = (-0.25, 0.0, 0.25)
    return all(abs(x - mark) > 1e-9 for x in (effect, *interval) for mark in marks)


BAD = {
    "unknown name": ({"treatment": [1, 2], "base": [1, 2]}, "got treatment, base"),
    "nothing": ({}, "got none"),
    "empty": ({"treatment": [], "baseline": [1, 2]}, "treatment: expected at least one value"),
    "one seed": ({"treatment": [1], "baseline": [1]}, "at least 2 values"),
    "unequal pairs": ({"treatment": [1, 2, 3], "baseline": [1, 2]}, "got 3 and 2"),
    "not a number": ({"treatment": [1, math.nan], "baseline": [1, 2]}, "got nan at index 1"),
    "infinite": ({"treatment": [1, 2], "baseline": [math.inf, 2]}, "baseline: .* inf at index 0"),
    "a matrix": ({"treatment": np.ones((2, 2)), "baseline": [1, 2]}, r"got shape \(2, 2\)"),
    "ragged": ({"treatment": [[1], [1, 2]], "baseline": [1, 2]}, "treatment: expected"),
    "texts": ({"treatment": ["1", "2"], "baseline": [1, 2]}, "real numbers"),
    "complex": ({"treatment": [1j, 2], "baseline": [1, 2]}, "real numbers"),
    "nothing at all": ({"treatment": None, "baseline": [1, 2]}, "real numbers"),
}


@pytest.mark.parametrize(("values", "words"), BAD.values(), ids=BAD)
def test_bad_values_are_explained(values: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        judge(Difference("greater", 0.1), values)


def test_bad_counts_are_explained() -> None:
    rule = Proportion(at_least=0.8)
    for successes, trials, words in (
        (3, 2, "got 3 of 2"),
        (0.5, 2, "successes: expected whole numbers"),
        (-1, 2, "successes: expected whole numbers"),
        ([1, 2], [3], "as many numbers of trials"),
        (0, 0, "trials > 0"),
    ):
        with pytest.raises(ValueError, match=words):
            judge(rule, {"successes": successes, "trials": trials})


def test_numbers_come_from_anywhere_and_stay_exact() -> None:
    expected = np.array([0.1, 0.25], dtype=np.float32).astype(np.float64)
    single = torch.tensor([0.1, 0.25], requires_grad=True)
    for given_values in (single, np.array([0.1, 0.25], dtype=np.float32), list(single)):
        np.testing.assert_array_equal(numbers("x", given_values), expected)
    half = torch.tensor([0.5, 0.25], dtype=torch.bfloat16)
    np.testing.assert_array_equal(numbers("x", half), [0.5, 0.25])
    np.testing.assert_array_equal(numbers("x", torch.tensor(3)), [3])
    np.testing.assert_array_equal(numbers("x", torch.tensor([True, False])), [1, 0])
    np.testing.assert_array_equal(numbers("x", 2), [2])


def test_an_effect_that_has_no_room_is_not_called_absent() -> None:
    rule = Difference(direction="greater", smallest_effect=0.1, headroom=True)
    arms = {"treatment": around(0.999, 0.001), "baseline": around(0.999, 0.0005)}
    assert judge(rule, {**arms, "headroom": np.full(5, 0.5)}).verdict is N
    crowded = judge(rule, {**arms, "headroom": np.full(5, 0.001)})
    assert crowded.verdict is I
    assert "no room" in crowded.details["why"]
    shown = {"treatment": around(0.5, 0.01), "baseline": around(0.0, 0.01)}
    assert judge(rule, {**shown, "headroom": np.full(5, 0.01)}).verdict is C


def test_arms_are_equal_only_where_a_control_is_not() -> None:
    rule = Equivalence(margin=0.1, control=True)
    arms = {"treatment": around(1.0, 0.01), "baseline": around(1.0, 0.008)}
    assert judge(rule, {**arms, "control": around(2.0, 0.01)}).verdict is C
    blind = judge(rule, {**arms, "control": around(1.01, 0.01)})
    assert blind.verdict is I
    assert "could not have failed" in blind.details["why"]
