"""How verdicts of parts combine, and what Holm's correction takes back."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_book.evidence.verdicts import (
    COMBINATIONS,
    MEANING,
    Verdict,
    beside_other_seeds,
    chapter_verdicts,
    combine,
    named,
)

C, R, N, I = (  # noqa: E741
    Verdict.CONFIRMED,
    Verdict.REFUTED,
    Verdict.NOT_REPRODUCED,
    Verdict.INCONCLUSIVE,
)
CONDITIONAL, UNDERSPECIFIED = Verdict.CONDITIONAL, Verdict.UNDERSPECIFIED

TABLE = [
    # parts, levels, readings, every, majority
    ((C, C), C, C, C, C),
    ((R, R), R, R, R, R),
    ((N, N), N, N, N, N),
    ((I, I), I, I, I, I),
    ((C,), C, C, C, C),
    ((C, R), CONDITIONAL, UNDERSPECIFIED, R, N),
    ((C, N), CONDITIONAL, UNDERSPECIFIED, N, N),
    ((C, I), I, I, I, I),
    ((R, N), N, UNDERSPECIFIED, R, N),
    ((R, I), I, I, R, I),
    ((N, I), I, I, N, N),
    ((C, R, I), CONDITIONAL, UNDERSPECIFIED, R, I),
    ((C, N, I), CONDITIONAL, UNDERSPECIFIED, N, I),
    ((C, R, N), CONDITIONAL, UNDERSPECIFIED, R, N),
    ((R, N, I), I, UNDERSPECIFIED, R, I),
    ((C, C, R), CONDITIONAL, UNDERSPECIFIED, R, C),
    ((C, C, I), I, I, I, C),
    ((R, R, C), CONDITIONAL, UNDERSPECIFIED, R, R),
    ((C, N, N), CONDITIONAL, UNDERSPECIFIED, N, N),
    ((C, C, R, R), CONDITIONAL, UNDERSPECIFIED, R, N),
    ((C, C, R, I), CONDITIONAL, UNDERSPECIFIED, R, I),
    ((C, C, C, R), CONDITIONAL, UNDERSPECIFIED, R, C),
    ((N, N, I, I), I, I, N, N),
]


@pytest.mark.parametrize(("parts", "levels", "readings", "every", "majority"), TABLE)
def test_combinations(
    parts: tuple[Verdict, ...],
    levels: Verdict,
    readings: Verdict,
    every: Verdict,
    majority: Verdict,
) -> None:
    named = {f"part_{i}": verdict for i, verdict in enumerate(parts)}
    assert combine(named) is levels
    assert combine(named, "readings") is readings
    assert combine(named, "every") is every
    assert combine(named, "majority") is majority


@given(
    st.lists(st.sampled_from([C, R, N, I]), min_size=1, max_size=5),
    st.sampled_from(COMBINATIONS),
    st.randoms(),
)
def test_the_order_of_parts_does_not_matter(parts: list[Verdict], how: str, random: Any) -> None:
    shuffled = random.sample(parts, len(parts))
    one, two = ({str(i): v for i, v in enumerate(p)} for p in (parts, shuffled))
    assert combine(one, how) is combine(two, how)


def test_bad_combinations() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        combine({})
    with pytest.raises(ValueError, match=r"levels, readings, every, majority.*'most'"):
        combine({"a": C}, "most")
    for verdict in (CONDITIONAL, UNDERSPECIFIED, Verdict.FACT):
        with pytest.raises(ValueError, match=f"part 'a'.*got '{verdict.value}'"):
            combine({"a": verdict})


@pytest.mark.parametrize(
    ("verdict", "declared", "word"),
    [
        (R, {"said_of": "BERT, 110 million weights"}, Verdict.DOES_NOT_CARRY_OVER),
        (R, {"misprint": "the transpose"}, Verdict.MISPRINT),
        (R, {"said_of": "", "misprint": ""}, R),
        *((v, {"said_of": "BERT, 110 million weights"}, v) for v in (C, N, I, CONDITIONAL)),
        (C, {"misprint": "the transpose"}, C),
    ],
)
def test_only_what_is_refuted_gets_another_word(verdict, declared, word) -> None:
    assert named(verdict, declared) is word


def test_a_correction_takes_back_the_word_too() -> None:
    told = {"said_of": "BERT, 110 million weights"}
    records = {"CS-1.1": part(R, 0.03) | told}
    assert chapter_verdicts(records)["CS-1.1"] == (
        Verdict.DOES_NOT_CARRY_OVER,
        {"": (R, pytest.approx(0.03))},
    )
    records["CS-1.2"] = part(C, 0.04)
    assert chapter_verdicts(records)["CS-1.1"][0] is I


@pytest.mark.parametrize(
    ("own", "others", "both"),
    [
        (C, "", C),
        (C, "refuted", CONDITIONAL),
        (C, "not reproduced", CONDITIONAL),
        (R, "confirmed", CONDITIONAL),
        (R, "not reproduced", N),
        (N, "refuted", N),
        (N, "confirmed", CONDITIONAL),
        (I, "confirmed", I),
        (CONDITIONAL, "confirmed", CONDITIONAL),
    ],
)
def test_a_second_set_of_seeds_counts_as_much_as_the_first(own, others, both) -> None:
    assert beside_other_seeds(own, others) is both


def test_other_seeds_come_before_the_word_for_another_size() -> None:
    told = {"said_of": "BERT, 110 million weights"}
    records = {"CS-1.1": part(R, 0.03) | told | {"other_seeds": "not reproduced"}}
    assert chapter_verdicts(records)["CS-1.1"][0] is N
    records = {"CS-1.1": part(R, 0.03) | told | {"other_seeds": "refuted"}}
    assert chapter_verdicts(records)["CS-1.1"][0] is Verdict.DOES_NOT_CARRY_OVER


def test_there_are_nine_verdicts_each_explained() -> None:
    assert [verdict.value for verdict in Verdict] == [
        "confirmed",
        "refuted",
        "conditional",
        "does not carry over",
        "not reproduced",
        "underspecified",
        "inconclusive",
        "misprint",
        "fact",
    ]
    assert set(MEANING) == set(Verdict)


def part(verdict: Verdict, p: float | None, confidence: float = 0.95) -> dict[str, Any]:
    return {"rule": {"confidence": confidence}, "statistics": {"verdict": verdict.value, "p": p}}


def parts(how: str = "levels", **each: Mapping[str, Any]) -> dict[str, Any]:
    return {"combine": how, "parts": [{"name": name, **p} for name, p in each.items()]}


def test_holm_takes_back_what_the_family_cannot_bear() -> None:
    # 0.03 alone is below 0.05; beside 0.04 it counts twice, and both fall.
    records = {"CS-1.1": part(C, 0.03), "CS-1.2": part(R, 0.04)}
    found = chapter_verdicts(records)
    assert found["CS-1.1"] == (I, {"": (I, pytest.approx(0.06))})
    assert found["CS-1.2"] == (I, {"": (I, pytest.approx(0.06))})
    assert chapter_verdicts({"CS-1.1": part(C, 0.03)})["CS-1.1"][0] is C


def test_holm_counts_parts_and_leaves_exact_rules_alone() -> None:
    records = {
        "CS-1.1": part(C, None),
        "CS-1.2": parts(a=part(C, 0.001), b=part(R, 0.02), c=part(N, 0.9)),
    }
    found = chapter_verdicts(records)
    assert found["CS-1.1"] == (C, {"": (C, None)})
    verdict, each = found["CS-1.2"]
    assert verdict is CONDITIONAL
    assert each == {
        "a": (C, pytest.approx(0.003)),
        "b": (R, pytest.approx(0.04)),
        "c": (N, pytest.approx(0.9)),
    }


def test_holm_counts_a_comparison_once_however_many_claims_it_stands_in() -> None:
    again = part(C, 0.02) | {"values": {"treatment": [1.0], "baseline": [0.0]}}
    records = {"CS-1.1": again, "CS-1.2": parts(a=again, b=part(C, 0.03)), "CS-1.3": again}
    found = chapter_verdicts(records)
    assert found["CS-1.1"] == found["CS-1.3"] == (C, {"": (C, pytest.approx(0.04))})
    assert found["CS-1.2"][1] == {"a": (C, pytest.approx(0.04)), "b": (C, pytest.approx(0.04))}
    # other values are another comparison, also where p is the same
    records["CS-1.3"] = again | {"values": {"treatment": [2.0], "baseline": [1.0]}}
    assert chapter_verdicts(records)["CS-1.1"] == (I, {"": (I, pytest.approx(0.06))})


def test_a_part_that_falls_changes_the_claim() -> None:
    records = {"CS-1.2": parts(a=part(C, 0.001), b=part(R, 0.04), c=part(I, 0.01))}
    # 0.001 * 3, 0.01 * 2 and 0.04 * 1: the refuted part stands ...
    assert chapter_verdicts(records)["CS-1.2"][0] is CONDITIONAL
    # ... until one more experiment of the chapter makes it 0.04 * 2.
    records["CS-1.3"] = part(I, 0.9)
    found = chapter_verdicts(records)["CS-1.2"]
    assert found[0] is I
    assert [verdict for verdict, _ in found[1].values()] == [C, I, I]


def test_not_reproduced_announces_no_effect_and_stays() -> None:
    records = {f"CS-1.{i}": part(N, 0.04) for i in range(1, 9)}
    assert {verdict for verdict, _ in chapter_verdicts(records).values()} == {N}


def test_the_confidence_of_the_rule_sets_the_level() -> None:
    assert chapter_verdicts({"CS-1.1": part(C, 0.03, 0.99)})["CS-1.1"][0] is I
    assert chapter_verdicts({"CS-1.1": part(C, 0.03, 0.95)})["CS-1.1"][0] is C


def test_no_records_no_verdicts() -> None:
    assert chapter_verdicts({}) == {}
