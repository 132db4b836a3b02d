"""Every verdict, derived a second time from its values by code that shares nothing with the library.

What a rule means is written here once more, from its description in words, with scipy's own tests.
"""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from measured_book.evidence.registry import claims
from measured_book.measuring.judging import judge_room
from measured_book.measuring.measurement import rooms

CLAIMS = claims()
ROOMS = Path(__file__).parents[2] / "lib/measured_book/rooms"
JUDGED = [
    room for room in rooms() if "[[claim]]" in (ROOMS / room / "claims.toml").read_text("utf-8")
]


def parts(record: dict[str, Any]) -> list[dict[str, Any]]:
    return record.get("parts", [record])


def by_identity(rule: dict, values: dict) -> tuple[str, None, None]:
    if np.max(np.abs(values["error"])) > rule["tolerance"]:
        return "refuted", None, None
    if "control_above" in rule:
        could_fail = np.min(np.abs(values["control"])) > rule["control_above"]
        return ("confirmed" if could_fail else "inconclusive"), None, None
    return "confirmed", None, None


def by_number(rule: dict, values: dict) -> tuple[str, None, None]:
    stated = np.atleast_1d(rule["stated"])
    off = np.abs(np.asarray(values["value"]) - stated)
    share = rule.get("within", 0.05)
    allowed = share * np.abs(stated)
    if "digits" in rule:
        allowed = np.maximum(allowed, 0.5 / 10 ** rule["digits"])
    return ("confirmed" if (off <= allowed * (1 + 1e-9)).all() else "refuted"), None, None


def by_bound(rule: dict, values: dict) -> tuple[str, None, None]:
    def kept(x: np.ndarray) -> np.ndarray:
        return (
            (x >= rule.get("at_least", -math.inf))
            & (x > rule.get("above", -math.inf))
            & (x <= rule.get("at_most", math.inf))
            & (x < rule.get("below", math.inf))
        )

    if not kept(np.asarray(values["value"], dtype=float)).all():
        return "refuted", None, None
    if rule.get("control") and kept(np.asarray(values["control"], dtype=float)).any():
        return "inconclusive", None, None
    return "confirmed", None, None


def t_test(sample: np.ndarray, against: float, confidence: float) -> tuple[tuple, float]:
    """Scipy's interval and p-value; a sample without spread is its own interval."""
    if np.ptp(sample) == 0:
        return (sample[0], sample[0]), float(sample[0] == against)
    found = scipy.stats.ttest_1samp(sample, against)
    return tuple(found.confidence_interval(confidence)), float(found.pvalue)


def difference_test(rule: dict, values: dict, shift: float, confidence: float):
    one, two = (np.asarray(values[name], dtype=float) for name in ("treatment", "baseline"))
    if rule["paired"]:
        return (one - two).mean(), *t_test(one - two, shift, confidence)
    if np.ptp(one) == 0 and np.ptp(two) == 0:
        gap = one[0] - two[0]
        return gap, (gap, gap), float(gap == shift)
    found = scipy.stats.ttest_ind(one - shift, two, equal_var=False)
    low, high = found.confidence_interval(confidence)
    return one.mean() - two.mean(), (low + shift, high + shift), float(found.pvalue)


def by_difference(rule: dict, values: dict):
    mean, interval, p = difference_test(rule, values, 0.0, rule["confidence"])
    sign = 1 if rule["direction"] == "greater" else -1
    low, high = sorted(sign * end for end in interval)
    smallest = rule["smallest_effect"]
    if low > 0 and sign * mean > smallest:
        return "confirmed", interval, p
    if high < 0 and -sign * mean > smallest:
        return "refuted", interval, p
    return ("not reproduced" if high < smallest else "inconclusive"), interval, p


def by_equivalence(rule: dict, values: dict):
    margin, alpha = rule["margin"], 1 - rule["confidence"]
    mean, interval, _ = difference_test(rule, values, 0.0, 1 - 2 * alpha)
    # One-sided p-values from the two-sided ones of each end.
    ends = []
    for end in (-margin, margin):
        p = difference_test(rule, values, end, 0.9)[2]
        ends.append((p / 2, 1 - p / 2) if mean > end else (1 - p / 2, p / 2))
    if interval[0] == interval[1]:  # no spread: certain on either side
        ends = [(0.0, 1.0) if mean > end else (1.0, 0.0 if mean < end else 1.0)
                for end in (-margin, margin)]  # fmt: skip
    inside = max(ends[0][0], ends[1][1])
    beyond = min(ends[0][1], ends[1][0])
    if inside < alpha:
        return "confirmed", interval, inside
    return ("refuted", interval, beyond) if beyond < alpha else ("inconclusive", interval, inside)


def side(rule: dict, low: float, high: float) -> str:
    lower, upper = rule.get("at_least", -math.inf), rule.get("at_most", math.inf)
    if lower < low and high < upper:
        return "confirmed"
    return "refuted" if high < lower or low > upper else "inconclusive"


def by_proportion(rule: dict, values: dict):
    k, n = int(np.sum(values["successes"])), int(np.sum(values["trials"]))
    tail = (1 - rule["confidence"]) / 2
    low = scipy.stats.beta.ppf(tail, k, n - k + 1) if k else 0.0
    high = scipy.stats.beta.isf(tail, k + 1, n - k) if k < n else 1.0
    truth = rule.get("at_least", rule.get("at_most"))
    chances = scipy.stats.binom.pmf(np.arange(n + 1), n, truth)
    p = min(1.0, 2 * min(chances[k:].sum(), chances[: k + 1].sum()))
    return side(rule, low, high), (low, high), p


def by_threshold(rule: dict, values: dict):
    sample = np.asarray(values["value"], dtype=float)
    ends = [rule[name] for name in ("at_least", "at_most") if name in rule]
    interval, ps = None, []
    for end in ends:
        interval, p = t_test(sample, end, rule["confidence"])
        ps.append(p)
    verdict = side(rule, *interval)
    if verdict == "refuted" and len(ends) == 2:
        return verdict, interval, ps[0] if interval[1] < ends[0] else ps[1]
    return verdict, interval, max(ps)


RULES = {
    "identity": by_identity,
    "number": by_number,
    "bound": by_bound,
    "difference": by_difference,
    "equivalence": by_equivalence,
    "proportion": by_proportion,
    "threshold": by_threshold,
}


def together(verdicts: list[str], how: str) -> str:
    """The verdict of a claim, from how often each verdict comes among its parts."""
    count = Counter(verdicts)
    if len(count) == 1:
        return verdicts[0]
    yes, no, absent, unknown = (
        count[word] for word in ("confirmed", "refuted", "not reproduced", "inconclusive")
    )
    if how == "every":
        return "refuted" if no else "not reproduced" if absent else "inconclusive"
    if how == "majority":
        most = len(verdicts) // 2 + 1
        if yes >= most or no >= most:
            return "confirmed" if yes >= most else "refuted"
        return "inconclusive" if max(yes, no) + unknown >= most else "not reproduced"
    if how == "readings" and (yes > 0) + (no > 0) + (absent > 0) >= 2:
        return "underspecified"
    if yes and (no or absent):
        return "conditional"
    return "inconclusive" if unknown else "not reproduced"


def worded(verdict: str, record: dict[str, Any]) -> str:
    """What was said of another size, or against the source's own words, is not called refuted."""
    found = CLAIMS[record["id"]] if "id" in record else None
    if verdict == "refuted" and found is not None:
        if found.said_of:
            return "does not carry over"
        if found.misprint:
            return "misprint"
    return verdict


def step_down(family: list[tuple[float, float]]) -> list[bool]:
    """Holm's procedure as its paper tells it: go up the sorted p-values until one is too large."""
    kept = [False] * len(family)
    for rank, index in enumerate(sorted(range(len(family)), key=lambda i: family[i][0])):
        p, alpha = family[index]
        if p * (len(family) - rank) > alpha * (1 + 1e-9):
            break
        kept[index] = True
    return kept


def differences(chapter: dict[str, Any]) -> list[str]:
    """What a chapter's records say otherwise than their values do."""
    found: list[str] = []

    def compare(where: str, says: object, is_: object) -> None:
        same = says == is_
        if isinstance(says, float) and isinstance(is_, float):
            # Not closer: p-values of several hundred standard errors magnify the last digit.
            same = math.isclose(says, is_, rel_tol=1e-6, abs_tol=1e-12)
        if not same:
            found.append(f"{where}: the record says {says}, the values give {is_}")

    judged, compared, family = {}, {}, {}
    for name, record in chapter["records"].items():
        for number, part in enumerate(parts(record)):
            where = f"{name}[{number}]"
            verdict, interval, p = RULES[part["rule"]["type"]](part["rule"], part["values"])
            statistics = part["statistics"]
            compare(f"{where} alone", statistics["verdict"], verdict)
            compare(f"{where} p", statistics["p"], p)
            says = statistics["interval"]
            if says is None or interval is None:
                compare(f"{where} interval", says, interval)
            else:
                for end in (0, 1):
                    compare(f"{where} interval", float(says[end]), float(interval[end]))
            judged[where] = verdict
            if p is not None:
                test = json.dumps([part["rule"], part["values"]], sort_keys=True)
                compared[where] = test
                family[test] = (p, 1 - part["rule"]["confidence"])  # once, in however many claims
    kept = dict(zip(family, step_down(list(family.values())), strict=True))
    for name, record in chapter["records"].items():
        alone, corrected = [], []
        for number, part in enumerate(parts(record)):
            where = f"{name}[{number}]"
            alone.append(judged[where])
            decided = judged[where] in ("confirmed", "refuted")
            lost = decided and not kept.get(compared.get(where), True)
            corrected.append("inconclusive" if lost else judged[where])
            compare(f"{where} in its chapter", part["statistics"]["verdict_holm"], corrected[-1])
        by_itself = worded(together(alone, record["combine"]), record)
        compare(f"{name} alone", record["verdict_alone"], by_itself)
        own = together(corrected, record["combine"])
        compare(f"{name} by its own seeds", record["verdict_own"], worded(own, record))
        others = record["other_seeds"]
        if others and own not in ("conditional", "underspecified"):
            own = together([own, others], "levels")
        compare(name, record["verdict"], worded(own, record))
    return found


def read(room: str) -> dict[str, Any]:
    """The records of a room as they are judged for print."""
    return json.loads(_room(room))


@cache
def _room(room: str) -> str:
    return json.dumps({"records": judge_room(room).records})


def test_there_are_records_to_check() -> None:
    assert sum(len(read(room)["records"]) for room in JUDGED) > 200


@pytest.mark.parametrize("room", JUDGED)
def test_the_values_give_the_recorded_verdicts(room: str) -> None:
    found = differences(read(room))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("room", JUDGED)
def test_the_prose_expects_what_the_values_give(room: str) -> None:
    for name, record in read(room)["records"].items():
        assert record["verdict"] == CLAIMS[name].expected, name


@pytest.mark.parametrize("room", JUDGED)
def test_a_record_has_the_rules_and_the_seeds_that_the_registry_declares(room: str) -> None:
    for name, record in read(room)["records"].items():
        found = CLAIMS[name]
        declared = [found.rule] if found.rule else [part.rule for part in found.parts]
        judged = [part["rule"] for part in parts(record)]
        assert judged == json.loads(json.dumps([rule.as_dict() for rule in declared])), name
        assert record["combine"] == found.combine, name
        assert (record["seeds"] is None) == (found.seeds is None), name
        assert found.seeds is None or len(record["seeds"]) >= found.seeds, name


def a_part(kind: str, verdict: str = "confirmed") -> tuple[str, str, int]:
    for room in JUDGED:
        for name, record in read(room)["records"].items():
            for number, part in enumerate(parts(record)):
                if (part["rule"]["type"], part["statistics"]["verdict"]) == (kind, verdict):
                    return room, name, number
    raise AssertionError(f"no {verdict} {kind} among the records")


@pytest.mark.parametrize(
    ("kind", "values"),
    [("identity", "error"), ("bound", "value"), ("number", "value"), ("difference", "treatment"),
     ("threshold", "value")],
)  # fmt: skip
def test_a_value_changed_by_hand_is_noticed(kind: str, values: str) -> None:
    room, name, number = a_part(kind)
    chapter = read(room)
    part = parts(chapter["records"][name])[number]
    bounded_above = {"below", "at_most"} & {
        key for key, bound in part["rule"].items() if bound is not None
    }
    part["values"][values][0] = 1e9 if bounded_above else -1e9
    assert any(f"{name}[{number}]" in line for line in differences(chapter))


@pytest.mark.parametrize(
    ("field", "more"),
    [("verdict", ""), ("verdict_alone", " alone"), ("verdict_own", " by its own seeds")],
)
def test_a_verdict_changed_by_hand_is_noticed(field: str, more: str) -> None:
    chapter = read(a_part("difference")[0])
    for name, record in chapter["records"].items():
        broken = copy.deepcopy(chapter)
        broken["records"][name][field] = "refuted" if record[field] == "confirmed" else "confirmed"
        assert [line.split(":")[0] for line in differences(broken)] == [f"{name}{more}"]


def test_a_rule_loosened_by_hand_is_noticed() -> None:
    room, name, number = a_part("identity")
    chapter = read(room)
    part = parts(chapter["records"][name])[number]
    part["rule"]["tolerance"] = -1.0
    assert differences(chapter)


def test_holm_counts_the_whole_chapter() -> None:
    """The same comparison, decided when alone and not among many: the family makes the difference."""

    def chapter(copies: int) -> dict[str, Any]:
        rng = np.random.default_rng(0)
        rule = {"type": "threshold", "at_least": 0.0, "confidence": 0.95}
        rows = [[0.2, 0.6, 0.7, 1.1, 0.4], *(rng.normal(0, 1, 5).tolist() for _ in range(copies))]
        records = {}
        for number, row in enumerate(rows):
            verdict, interval, p = by_threshold(rule, {"value": row})
            statistics = {
                "verdict": verdict,
                "interval": list(interval),
                "p": p,
                "verdict_holm": verdict,
            }
            records[f"R{number}"] = {
                "rule": rule, "values": {"value": row}, "statistics": statistics,
                "combine": "levels", "verdict_alone": verdict, "verdict": verdict,
                "verdict_own": verdict, "other_seeds": "",
            }  # fmt: skip
        return {"records": records}

    assert not differences(chapter(0))
    found = differences(chapter(30))
    assert "R0: the record says confirmed, the values give inconclusive" in found


@pytest.mark.parametrize(
    ("how", "verdicts", "claim"),
    [
        ("levels", "c r i", "conditional"), ("levels", "c n", "conditional"),
        ("levels", "r n", "not reproduced"), ("levels", "c i", "inconclusive"),
        ("readings", "c r", "underspecified"), ("readings", "r n", "underspecified"),
        ("readings", "c i", "inconclusive"), ("every", "c r i", "refuted"),
        ("every", "c n i", "not reproduced"), ("every", "c i", "inconclusive"),
        ("majority", "c c r", "confirmed"), ("majority", "r r c i", "inconclusive"),
        ("majority", "c r", "not reproduced"), ("majority", "c r i", "inconclusive"),
        ("every", "n n", "not reproduced"), ("majority", "r r r n", "refuted"),
    ],
)  # fmt: skip
def test_the_ways_to_combine_are_those_declared(how: str, verdicts: str, claim: str) -> None:
    words = {"c": "confirmed", "r": "refuted", "n": "not reproduced", "i": "inconclusive"}
    assert together([words[letter] for letter in verdicts.split()], how) == claim
