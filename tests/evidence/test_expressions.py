"""Expressions over results: each function against numpy, and each way to go wrong told in one sentence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from measured_book.evidence.expressions import ExpressionError, Scope, names_in
from measured_book.evidence.functions import FUNCTIONS, table
from measured_book.evidence.grammar import parse, split_format
from scipy import stats
from xarray import DataArray, Dataset

SEEDS, RATES, ARMS, AT = [0, 10, 20, 30], [0.001, 0.01, 0.1], ["pre", "post, small"], [1, 2, 3, 4]
RNG = np.random.default_rng(0)
LOSS = RNG.uniform(1, 2, (4, 2, 3))
CURVE = RNG.uniform(1, 2, (4, 4)).cumsum(1)


class Task:
    """What a constant of a room may be."""

    vocab = 7

    def bag_loss(self) -> float:
        return 1.25

    def batch(self, size: int, seed: int = 0) -> list[int]:
        return [seed] * size


@pytest.fixture
def scope() -> Scope:
    axes = ("seed", "arm", "rate")
    coords = {"seed": SEEDS, "arm": ARMS, "rate": RATES}
    race = Dataset({"loss": (axes, LOSS), "solved": (axes, LOSS < 1.5)}, coords)
    late = Dataset({"curve": (("seed", "at"), CURVE)}, {"seed": SEEDS, "at": AT})
    few = Dataset({"loss": (("seed",), LOSS[:2, 0, 0])}, {"seed": SEEDS[:2]})
    return Scope(
        {"race": race, "late": late, "few": few},
        {
            "gain": "race.loss[arm=pre] - race.loss[rate=0.1]",
            "ring": "bell + 1",
            "bell": "ring|mean",
        },
        {"floor": lambda: 0.5, "worth": lambda task, size: len(task) * int(size)},
        arguments={"worth": ("task", "size")},
        constants={"LIMIT": 1.5, "TASK": Task()},
    )


PRE = LOSS[:, 0]
CASES = {
    "race.loss": LOSS,
    "race.loss[arm=pre]": PRE,
    'race.loss[arm="post, small", rate=0.01]': LOSS[:, 1, 1],
    "race.loss[arm=pre,rate=1e-2]": PRE[:, 1],
    "race.loss[arm=pre][rate=(0.1, 0.001)]": PRE[:, [2, 0]],
    "race.loss[arm=pre,rate=0.01..]": PRE[:, 1:],
    "race.loss[arm=pre,rate=..0.01]": PRE[:, :2],
    "late.curve[at=2..3]": CURVE[:, 1:3],
    "late.curve[at>2]": CURVE[:, 2:],
    "late.curve[at<=2]": CURVE[:, :2],
    "late.curve[at!=3]": CURVE[:, [0, 1, 3]],
    "race.rate": np.array(RATES),
    "1 + 2 * 3 - 4 / 8": 6.5,
    "2 ** 3 ** 2 - -1": 513,
    "(1 + 2) * 3": 9,
    "-race.loss[arm=pre] ** 2": -(PRE**2),
    "race.loss[arm=pre,rate=0.1] / race.loss[arm=pre,rate=0.01]": PRE[:, 2] / PRE[:, 1],
    "race.loss[arm=pre] - race.loss[arm=pre,rate=0.1]": PRE - PRE[:, 2:],
    "race.loss[arm=pre,rate=0.1] < LIMIT": PRE[:, 2] < 1.5,
    "race.solved - race.solved[rate=0.1]|sum": (LOSS < 1.5).sum() - 3 * (LOSS[..., 2] < 1.5).sum(),
    "gain[rate=0.01, arm=pre]": PRE[:, 1] - PRE[:, 2],
    "floor + 1": 1.5,
    "worth(a word, 3) * 2": 36,
    "TASK.vocab + TASK.bag_loss": 8.25,
    "log(race.loss)|mean(seed)|exp": np.exp(np.log(LOSS).mean(0)),
    "race.loss|log2": np.log2(LOSS),
    "race.loss|log10": np.log10(LOSS),
    "sqrt(race.loss)": np.sqrt(LOSS),
    "abs(-race.loss)": LOSS,
    "round(10 * race.loss)": np.round(10 * LOSS),
    "minimum(race.loss[arm=pre], race.loss[arm!=pre]|first(arm))": np.minimum(PRE, LOSS[:, 1]),
    "maximum(race.loss[arm=pre], 1.4)": np.maximum(PRE, 1.4),
    "race.loss|where(race.solved)": np.where(LOSS < 1.5, LOSS, np.nan),
    "race.loss|where(race.loss[arm=pre] < 1.5)|mean(seed)": np.array(
        [[LOSS[PRE[:, r] < 1.5, a, r].mean() for r in range(3)] for a in range(2)]
    ),
    "race.loss|mean": LOSS.mean(),
    "race.loss|mean(arm, rate)": LOSS.mean((1, 2)),
    "race.loss|median(seed)": np.median(LOSS, 0),
    "race.solved|sum(rate)": (LOSS < 1.5).sum(2),
    "race.loss|min(rate)|max": LOSS.min(2).max(),
    "race.loss < 1.9|all(seed)": (LOSS < 1.9).all(0),
    "race.loss < 1.1|any(seed, rate)": (LOSS < 1.1).any((0, 2)),
    "race.loss|std(seed)": LOSS.std(0, ddof=1),
    "race.loss|var": LOSS.var(ddof=1),
    "race.loss|quantile(0.25, seed)": np.quantile(LOSS, 0.25, axis=0),
    "race.loss|count": 24,
    "race.loss|count(arm, rate)": 6,
    "race.solved|share": (LOSS < 1.5).mean(),
    "race.loss[arm=pre,rate=0.1]|interval": np.array(
        stats.ttest_1samp(PRE[:, 2], 0).confidence_interval(0.95)
    ),
    "late.curve|first(at)": CURVE[:, 0],
    "late.curve|last(at)": CURVE[:, -1],
    "late.curve|last": CURVE[-1, -1],
    "late.curve|skip(at, 1)|take(at, 2)": CURVE[:, 1:3],
    "late.curve|steps(at)": np.diff(CURVE),
    "late.curve|ratios(at)": CURVE[:, 1:] / CURVE[:, :-1],
    "race.loss|like(few.loss)": LOSS[:2],
    "race.loss[arm=pre]|argmin(rate)": np.array(RATES)[PRE.argmin(1)],
    "race.loss[arm=pre]|argmax(rate)": np.array(RATES)[PRE.argmax(1)],
    "-late.curve|first_below(at, -2)": 1 + (CURVE >= 2).argmax(1),
    "late.curve|slope(at)": np.polyfit(AT, CURVE.T, 1)[0],
    "late.curve|slope(at, late.at ** 2)": np.polyfit(np.square(AT), CURVE.T, 1)[0],
}


@pytest.mark.parametrize("text", CASES)
def test_values_are_those_of_numpy(scope: Scope, text: str):
    found = scope.evaluate(text)
    np.testing.assert_allclose(found.values, CASES[text], rtol=1e-12)


def best_by_hand(values: np.ndarray, by: np.ndarray) -> list[float]:
    """Each seed's value at the rate that is best for the others, one seed after the other."""
    return [
        row[min(range(row.size), key=lambda r: np.delete(by, seed, 0).mean(0)[r])]
        for seed, row in enumerate(values)
    ]


def test_the_other_seeds_choose(scope: Scope):
    for i, arm in enumerate(("pre", '"post, small"')):
        rows = LOSS[:, i]
        expected = best_by_hand(rows, rows)
        assert scope.evaluate("race.loss|best_rate|exp|log")[:, i].values == pytest.approx(expected)
        assert scope.evaluate(f"race.loss[arm={arm}]|best(rate)").values.tolist() == expected
        largest = scope.evaluate(f"race.loss[arm={arm}]|best(rate, -race.loss[arm={arm}])")
        assert largest.values.tolist() == best_by_hand(rows, -rows)
        labels = np.array([RATES] * 4)
        chosen = scope.evaluate(f"race.loss[arm={arm}]|best_label(rate)")
        assert chosen.values.tolist() == best_by_hand(labels, rows)


def test_missing_values_can_be_left_out():
    values = DataArray([1.0, math.nan, 3.0], dims="seed", coords={"seed": [0, 1, 2]})
    found = Scope({"one": Dataset({"x": values})}).evaluate("one.x|known(seed)")
    assert found.seed.values.tolist() == [0, 2]
    assert math.isnan(
        float(Scope({"one": Dataset({"x": values})}).evaluate("one.x|skip(seed, 1)|first"))
    )


def test_every_function_is_tried_and_explained():
    tried = {name for text in [*CASES, "race.loss|best(rate)|best_rate|best_label(rate)"]
             for name in FUNCTIONS if f"{name}(" in text or f"|{name}" in text}  # fmt: skip
    assert set(FUNCTIONS) - tried <= {"known"}
    assert all(words.endswith(".") for _, words in table().values())
    assert table()["best"][0] == "best(axis, by)"


WRONG = {
    "race.loss[arms=pre]": "race.loss has no axis 'arms'; the nearest is arm",
    "race.loss[arm=per]": "race.loss has no arm 'per'; the nearest is pre",
    "race.loss[rate=0.02]": "race.loss has no rate '0.02'; the nearest is 0.01",
    "race.lost": "race has no variable 'lost'; the nearest is loss",
    "rice.loss": "no result 'rice'; the nearest is race",
    "race": r"expected a variable of race \(loss, solved\), got none",
    "gian": "no value 'gian'; the nearest is gain",
    "LIMITS": "no constant 'LIMITS'; the nearest is LIMIT",
    "TASK.bag_los": "TASK has no 'bag_los'; the nearest is bag_loss",
    "race.loss|meen": "no function 'meen'; the nearest is mean",
    "race.loss|mean(rates)": r"mean\(axes, ...\): no axis 'rates'; the nearest is rate",
    "race.loss|skip(rate)": r"expected skip\(axis, number\), got 1 arguments",
    "race.loss|exp(rate)": "expected exp, got 1 arguments",
    "race.loss|share": r"share\(axes, ...\): expected zeros and ones",
    "late.curve|best_rate": r"best_rate\(by\): no axis 'rate'; there are seed, at",
    "race.loss[arm=pre]|mean(seed)|best(rate)": "expected at least two seeds",
    "race.loss[arm>1]": "expected numbers to compare along arm",
    "race.loss - few.loss": "different labels along seed",
    "maximum(race.loss, few.loss)": "different labels along seed",
    "worth": r"expected the arguments of worth\(task, size\), got none",
    "floor(2)": "floor takes no arguments",
    "ring": "ring is declared by itself: ring -> bell -> ring",
    "race.loss[arm=pre": r"expected a closing \]",
    "race.loss[pre]": "expected a choice such as depth=12",
    "(race.loss": r"expected a closing \)",
    "race.loss +": "expected a value in 'race.loss \\+', got 'the end'",
    "race.loss race.loss": "expected the end",
    "race.": "expected the name of a variable after race",
    "race.loss|": "the name of a function after |",
    "CS-1.3.effect": "expected values of results",
    "LIMIT + TASK": r"expected numbers on both sides of \+, got LIMIT \+ TASK",
    "TASK": "expected numbers from TASK, got",
    "TASK.batch": "expected a number or a method without arguments from TASK.batch, got a method of size",
    "worth(word, x)": r"worth\(word, x\): invalid literal",
    "1 / 0": "1 / 0: division by zero",
    "race.loss|skip(rate, race.loss)": r"skip\(axis, number\): expected one number from race.loss",
    "race.loss|skip(rate, TASK)": "expected numbers from TASK, got",
    "race.loss[rate>1]|first": r"first\(axis\): index 0 is out of bounds",
}


@pytest.mark.parametrize("text", WRONG)
def test_errors_are_one_sentence_with_the_nearest_name(scope: Scope, text: str):
    with pytest.raises(ExpressionError, match=WRONG[text]) as caught:
        scope.evaluate(text)
    assert "\n" not in str(caught.value)


def test_an_expression_says_what_it_stands_on():
    text = (
        'log(race.loss|best(rate, late.curve)) + gain[arm="a, b"] - worth(word) + 3 + CS-1.3.effect'
    )
    found = [str(path) for path in names_in(text)]
    assert found == ["race.loss", "late.curve", "gain", "worth", "CS-1.3.effect"]


def test_formats_stand_behind_the_last_colon_outside_of_brackets():
    assert split_format('a.b[c="x:y"]|mean:,.2f') == ('a.b[c="x:y"]|mean', ",.2f")
    assert split_format("a.b") == ("a.b", "")
    assert split_format("f(a:b) : .1%") == ("f(a:b)", ".1%")


def test_nothing_of_an_expression_is_run():
    for text in ("__import__('os')", "race.loss.values", "TASK.__class__", "().x"):
        with pytest.raises(ExpressionError):
            Scope({}, constants={"TASK": Task()}).evaluate(text)
    assert parse("a.b") is parse("a.b")
