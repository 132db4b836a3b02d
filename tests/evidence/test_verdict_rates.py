"""How often each verdict is given, by what is true: the rules and Holm's correction as a whole, simulated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import scipy.stats
from measured_book.evidence.power import power_of_difference, power_of_equivalence
from measured_book.evidence.registry import (
    Difference,
    Equivalence,
    Proportion,
    Rule,
    Threshold,
)
from measured_book.evidence.rules import further_details, judge
from measured_book.evidence.statistics import mean_interval
from measured_book.evidence.verdicts import Verdict, chapter_verdicts, holm

from test_rederived_verdicts import RULES  # isort: skip  # rules written a second time

C, R, N, I = (  # noqa: E741
    Verdict.CONFIRMED,
    Verdict.REFUTED,
    Verdict.NOT_REPRODUCED,
    Verdict.INCONCLUSIVE,
)
REPEATS = 1500
Draw = Callable[[np.random.Generator], Mapping[str, Any]]


def rates(rule: Rule, draw: Draw, repeats: int = REPEATS) -> dict[Verdict, float]:
    rng = np.random.default_rng(17)
    counts = Counter(judge(rule, draw(rng)).verdict for _ in range(repeats))
    return {verdict: counts[verdict] / repeats for verdict in (C, R, N, I)}


def sigma(chance: float, repeats: int = REPEATS) -> float:
    return 4 * math.sqrt(max(chance * (1 - chance), 1e-3) / repeats)


def pairs(effect: float, seeds: int, spread: float = 1.0) -> Draw:
    """Arms that share most of their noise; their differences have this mean and spread."""

    def draw(rng: np.random.Generator) -> Mapping[str, Any]:
        baseline = rng.normal(5, 3, seeds)
        return {
            "treatment": baseline + rng.normal(effect, spread, seeds),
            "baseline": baseline,
        }

    return draw


SMALLEST = 0.5


@pytest.mark.parametrize("seeds", [5, 10, 40])
@pytest.mark.parametrize("effect", [0.0, SMALLEST, 3 * SMALLEST])
def test_a_difference_is_confirmed_as_often_as_its_power_says(effect: float, seeds: int) -> None:
    found = rates(Difference("greater", SMALLEST), pairs(effect, seeds))
    for verdict, true in ((C, effect), (R, -effect)):
        chance = power_of_difference(true, spread=1.0, seeds=seeds, smallest_effect=SMALLEST)
        assert abs(found[verdict] - chance) < sigma(chance)


def test_no_effect_is_announced_seldom_and_absence_takes_seeds() -> None:
    rule = Difference("greater", SMALLEST)
    few, many = (rates(rule, pairs(0.0, seeds)) for seeds in (5, 40))
    for found in (few, many):
        assert max(found[C], found[R]) < 0.025 + sigma(0.025)
    assert few[I] > 0.6  # five seeds that spread this much cannot say so
    assert many[N] > 0.8


def test_an_effect_that_just_matters_is_seldom_decided() -> None:
    found = rates(Difference("greater", SMALLEST), pairs(SMALLEST, 40))
    assert abs(found[C] - 0.5) < sigma(0.5)
    assert found[R] < 0.001
    # "Not reproduced" is an error here: the interval ends below the truth.
    assert abs(found[N] - 0.025) < sigma(0.025)


def test_a_clear_effect_is_found_and_never_refuted() -> None:
    found = rates(Difference("less", SMALLEST), pairs(-3 * SMALLEST, 10))
    assert found[C] > 0.95
    assert found[R] == found[N] == 0


@pytest.mark.parametrize("lean", [1, -1])
def test_skewed_differences_err_on_one_side_more_often(lean: int) -> None:
    """The t interval is not exact there: one of its sides fails more often, both together still seldom."""

    def draw(rng: np.random.Generator) -> Mapping[str, Any]:
        skewed = lean * (rng.exponential(1, 10) - 1)
        return {"treatment": skewed, "baseline": np.zeros(10)}

    found = rates(Difference("greater", 1e-9), draw)
    heavy, light = (R, C) if lean == 1 else (C, R)
    assert 0.06 < found[heavy] < 0.12
    assert found[light] < 0.02


def test_arms_of_one_skewed_distribution_raise_no_more_alarms() -> None:
    """Comparing like with like: the difference of two arms is symmetric, however each of them leans."""

    def draw(rng: np.random.Generator) -> Mapping[str, Any]:
        one, two = rng.lognormal(0, 1, (2, 8))
        return {"treatment": one, "baseline": two}

    for paired in (True, False):
        found = rates(Difference("greater", 1e-9, paired=paired), draw)
        assert max(found[C], found[R]) < 0.025 + sigma(0.025)


@pytest.mark.parametrize("effect", [0.0, 0.5, 1.0, 1.5])
def test_equivalence_is_decided_as_often_as_its_power_says(effect: float) -> None:
    found = rates(Equivalence(margin=1.0), pairs(effect, 12))
    chance = power_of_equivalence(effect, margin=1.0, spread=1.0, seeds=12)
    assert abs(found[C] - chance) < sigma(chance)
    if effect == 1.0:  # exactly at the margin each side errs as often as declared
        assert abs(found[C] - 0.05) < sigma(0.05)
        assert abs(found[R] - 0.05) < sigma(0.05)


@pytest.mark.parametrize("rule", [Threshold(at_least=0.8), Threshold(at_most=0.8)])
def test_at_the_threshold_both_verdicts_are_rare(rule: Threshold) -> None:
    found = rates(rule, lambda rng: {"value": rng.normal(0.8, 0.1, 5)})
    assert abs(found[C] - 0.025) < sigma(0.025)
    assert abs(found[R] - 0.025) < sigma(0.025)


def test_at_the_end_of_a_range() -> None:
    rule = Threshold(at_least=0.2, at_most=0.8)
    found = rates(rule, lambda rng: {"value": rng.normal(0.8, 0.1, 6)})
    assert found[C] < 0.025 + sigma(0.025)
    assert abs(found[R] - 0.025) < sigma(0.025)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_at_the_share_both_verdicts_are_rare(share: float) -> None:
    """Exact, not simulated: over all outcomes of thirty trials."""
    chances = scipy.stats.binom.pmf(np.arange(31), 30, share)
    verdicts = [
        judge(Proportion(at_least=share), {"successes": k, "trials": 30}).verdict for k in range(31)
    ]
    for verdict in (C, R):
        assert sum(p for p, v in zip(chances, verdicts, strict=True) if v is verdict) <= 0.025


# Families ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "true"), [(10, 10), (10, 4), (1, 1), (40, 40)])
def test_holm_keeps_the_chance_of_any_false_rejection(size: int, true: int) -> None:
    rng, repeats = np.random.default_rng(18), 4000
    p = rng.uniform(size=(repeats, size))
    p[:, true:] = 1e-12  # effects that nobody misses
    adjusted = np.array([holm(row.tolist()) for row in p])
    assert (adjusted[:, true:] < 0.05).all()
    any_false = (adjusted[:, :true] <= 0.05).any(1).mean()
    # Independent tests: the smallest of the true ones against alpha over their number.
    assert abs(any_false - (1 - (1 - 0.05 / true) ** true)) < sigma(0.05, repeats)
    if true == 10:
        assert (p[:, :true] <= 0.05).any(1).mean() > 0.35  # what happens without it


def test_holm_holds_where_tests_depend_on_each_other() -> None:
    rng, repeats = np.random.default_rng(19), 4000
    noise = rng.normal(size=(repeats, 1)) + 0.3 * rng.normal(size=(repeats, 10))
    p = 2 * scipy.stats.norm.sf(np.abs(noise) / math.sqrt(1.09))
    any_false = np.mean([min(holm(row.tolist())) <= 0.05 for row in p])
    assert any_false < 0.05


def chapter(values: np.ndarray) -> dict[str, dict[str, Any]]:
    rule = Threshold(at_least=0.0)
    records = {}
    for number, row in enumerate(values):
        judged = judge(rule, {"value": row})
        records[f"R{number}"] = {
            "rule": rule.as_dict(),
            "statistics": {"verdict": judged.verdict.value, "p": judged.p},
        }
    return records


def test_a_chapter_without_effects_announces_one_seldom() -> None:
    rng, repeats, size = np.random.default_rng(20), 250, 8
    alone = corrected = 0
    for _ in range(repeats):
        records = chapter(rng.normal(0, 1, (size, 5)))
        alone += any(row["statistics"]["verdict"] != I for row in records.values())
        corrected += any(verdict is not I for verdict, _ in chapter_verdicts(records).values())
    assert corrected / repeats < 0.05 + sigma(0.05, repeats)
    assert alone / repeats > 0.25


def test_a_chapter_keeps_its_clear_effects() -> None:
    rng, repeats = np.random.default_rng(21), 100
    kept = 0
    for _ in range(repeats):
        verdicts = chapter_verdicts(
            chapter(np.vstack([rng.normal(0, 1, (8, 10)), rng.normal(3, 1, (2, 10))]))
        )
        kept += all(verdicts[name][0] is C for name in ("R8", "R9"))
    assert kept / repeats > 0.95


def test_skewed_values_are_covered_less_often_than_said() -> None:
    """What the t interval does not promise, so that nobody thinks it does."""
    rng, repeats = np.random.default_rng(22), 1200
    held = {"uniform": 0, "lognormal": 0}
    for _ in range(repeats):
        low, high = mean_interval(rng.uniform(0, 1, 6)).interval
        held["uniform"] += low <= 0.5 <= high
        low, high = mean_interval(rng.lognormal(0, 1, 6)).interval
        held["lognormal"] += low <= math.exp(0.5) <= high
    assert abs(held["uniform"] / repeats - 0.94) < 0.02
    assert 0.78 < held["lognormal"] / repeats < 0.9


# The rules against the same rules, written a second time -------------------------------------------


AGAIN: list[Rule] = [
    Difference("greater", 0.4),
    Difference("less", 0.4, paired=False, confidence=0.9),
    Equivalence(1.0),
    Equivalence(1.0, paired=False),
    Threshold(at_least=0.2),
    Threshold(at_least=-0.3, at_most=0.9, confidence=0.8),
    Proportion(at_least=0.7),
    Proportion(at_most=0.4, confidence=0.9),
]


@pytest.mark.parametrize("rule", AGAIN, ids=str)
def test_both_writings_of_a_rule_agree(rule: Rule) -> None:
    rng = np.random.default_rng(23)
    seen = set()
    for number in range(300):
        if isinstance(rule, Proportion):
            values: dict[str, Any] = {"successes": [number % 31], "trials": [30]}
        else:
            centre, spread = rng.uniform(-2, 2), rng.uniform(0.05, 1)
            values = {name: rng.normal(0, spread, 6) for name in rule.value_names}
            first = rule.value_names[0]
            values[first] = values[first] + centre
            if number % 10 == 0:
                values = {name: np.full(6, round(x[0])) * 1.0 for name, x in values.items()}
        judged = judge(rule, values)
        verdict, interval, p = RULES[rule.type](rule.as_dict(), values)
        assert judged.verdict == verdict, values
        assert judged.interval == pytest.approx(interval)
        assert judged.p == pytest.approx(p, rel=1e-6, abs=1e-12)
        seen.add(verdict)
    assert len(seen) == (4 if isinstance(rule, Difference) else 3)


def test_what_stands_beside_a_verdict() -> None:
    values = {"treatment": [1.0, 2.0, 3.0, 5.0], "baseline": [0.5, 1.0, 1.0, 1.0]}
    details = further_details(Difference("greater", 0.1), values)
    assert details["bootstrap"][0] < 1.875 < details["bootstrap"][1]
    differences = np.array([0.5, 1.0, 2.0, 4.0])
    d = differences.mean() / differences.std(ddof=1)
    assert details["hedges_g"] == pytest.approx(
        d * math.gamma(1.5) / math.gamma(1) / math.sqrt(1.5)
    )
    constant = {"treatment": [1.0, 1.0], "baseline": [0.0, 0.0]}
    assert further_details(Equivalence(0.1), constant) == {"bootstrap": [1.0, 1.0]}
    assert set(further_details(Threshold(at_least=0.0), {"value": [1.0, 2.0]})) == {"bootstrap"}
    assert further_details(Proportion(at_least=0.5), {"successes": [1], "trials": [2]}) == {}
