"""Measured values in words: numbers for readers, and expressions of the prose."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_book.evidence.records import format_value, number_text
from measured_book.measuring.judging import with_chapter_verdicts

MINUS, TIMES = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}"


def statistics(
    verdict: str, effect: float, interval: list[float] | None = None, p: float | None = None
) -> dict[str, Any]:
    return {"verdict": verdict, "effect": effect, "interval": interval, "p": p, "details": {}}


IDENTITY = {
    "id": "CS-1.3",
    "combine": "levels",
    "verdict": "confirmed",
    "rule": {"type": "identity", "tolerance": 1e-9, "control_above": 1e-3},
    "values": {"error": [1e-14, 1.2e-14, 3e-15], "control": [0.5]},
    "statistics": statistics("confirmed", 1.2e-14),
}
ARMS = {"treatment": [1.0, 2.0, 3.0], "baseline": [2.5, 3.5, 4.0]}
PARTS = {
    "id": "DD-7.7",
    "combine": "levels",
    "verdict": "conditional",
    "parts": [
        {
            "name": "rotary",
            "rule": {"type": "difference", "confidence": 0.95},
            "values": ARMS,
            "statistics": statistics("confirmed", -1.333, [-2.05, -0.62], 0.03),
        },
        {
            "name": "alibi",
            "rule": {"type": "difference", "confidence": 0.95},
            "values": ARMS,
            "statistics": statistics("refuted", 0.5, [0.25, 0.75], 0.02),
        },
    ],
}
VALUES = {
    "min_distance": 1.47184,
    "count": 5000,
    "losses": [3, 1, 2, 6],
    "solved": [1, 0, 1],
}


def gathered() -> dict[str, Any]:
    records = {record["id"]: copy.deepcopy(record) for record in (IDENTITY, PARTS)}
    return {"records": with_chapter_verdicts(records), "values": VALUES}


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("min_distance:.3f", "1.472"),
        ("min_distance", "1.472"),
        (" min_distance : .1f ", "1.5"),
        ("count", "5000"),
        ("count:,", "5,000"),
        ("losses", "3"),
        ("losses|mean:.2f", "3.00"),
        ("losses|min", "1"),
        ("losses|max", "6"),
        ("losses|median", "2.5"),
        ("losses|count", "4"),
        ("losses|first", "3"),
        ("losses|last", "6"),
        ("losses|interval:.2f", f"{MINUS}0.44 to 6.44"),  # 3 +- 3.1824 * 2.1602 / 2
        ("solved|share:.0%", "67%"),
        ("min_distance|count", "1"),
        ("CS-1.3.error|max:.1e", f"1.2{TIMES}10\u207b\u00b9\u2074"),
        ("CS-1.3.control", "0.5"),
        ("CS-1.3.effect:.0e", f"1{TIMES}10\u207b\u00b9\u2074"),
        ("CS-1.3.rule.tolerance", f"1{TIMES}10\u207b\u2079"),
        ("DD-7.7.rotary.treatment|mean:.2f", "2.00"),
        ("DD-7.7.rotary.effect:.2f", f"{MINUS}1.33"),
        ("DD-7.7.rotary.interval:.2f", f"{MINUS}2.05 to {MINUS}0.62"),
        ("DD-7.7.alibi.interval|min:.2f", "0.25"),
        ("DD-7.7.alibi.p:.2f", "0.02"),
        ("DD-7.7.alibi.p_holm:.2f", "0.04"),
    ],
)
def test_expressions(expression: str, text: str) -> None:
    assert format_value(gathered(), expression) == text


@pytest.mark.parametrize(
    ("expression", "near"),
    [
        ("min_distanse", "min_distance"),
        ("CS-1.3.eror|max", "CS-1.3.error"),
        ("CS-1.4.error", "CS-1.3.error"),
        ("DD-7.7.rotary.treatmen", "DD-7.7.rotary.treatment"),
        ("DD-7.7.effect", "DD-7.7.alibi.effect"),
        ("zzz", "nothing measured is near"),
        ("", "nothing measured is near"),
    ],
)
def test_an_unknown_name_gives_the_nearest(expression: str, near: str) -> None:
    with pytest.raises(KeyError) as caught:
        format_value(gathered(), expression)
    assert near in caught.value.args[0]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("losses|average", "expected one of mean, min, max.*'average'"),
        ("losses|", "expected one of mean, min, max.*''"),
        ("losses|share", "zeros and ones .* got 3"),
        ("min_distance:.3q", r"number format such as \.3f.*'\.3q'"),
        ("CS-1.3.p", "exact rule"),
        ("CS-1.3.rule.type", "expected a number, got 'identity'"),
        ("DD-7.7.alibi.interval|mean", "expected min or max of an interval, got mean"),
        ("min_distance|interval", "more than one seed"),
    ],
)
def test_bad_expressions_are_explained(expression: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        format_value(gathered(), expression)


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (1.2e-14, ".1e", f"1.2{TIMES}10\u207b\u00b9\u2074"),
        (-1.2e14, ".1e", f"{MINUS}1.2{TIMES}10\u00b9\u2074"),
        (1.5, ".1e", "1.5"),
        (1e100, ".0e", f"1{TIMES}10\u00b9\u2070\u2070"),
        (-0.5, "+.1f", f"{MINUS}0.5"),
        (0.5, "+.1f", "+0.5"),
        (-0.001, ".2f", "0.00"),
        (-0.001, ".0%", "0%"),
        (-0.06, ".1f", f"{MINUS}0.1"),
        (0.831, ".0%", "83%"),
        (1115394, ",", "1,115,394"),
        (1115394, "", "1115394"),
        (2 / 3, "", "0.6667"),
        (0.0, "", "0"),
    ],
)
def test_numbers_for_readers(value: float, spec: str, text: str) -> None:
    assert number_text(value, spec) == text


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([".2f", ".3e", "", ".3g"]))
def test_every_text_can_be_read_back(value: float, spec: str) -> None:
    text = number_text(value, spec)
    superscripts = "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
    plain = text.translate(str.maketrans(superscripts, "-0123456789"))
    plain = plain.replace(MINUS, "-").replace(f"{TIMES}10", "e")
    assert float(plain) == float(format(value, spec or ".4g"))
