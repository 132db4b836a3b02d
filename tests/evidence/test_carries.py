"""The file of what is asked of the real model: what it must say, and what its errors say."""

from __future__ import annotations

from typing import Any

import pytest
from measured_book.evidence.carries import ABOUT_IT, UNASKED, carries, parse_carries
from measured_book.evidence.declarations import parse_claims
from measured_book.evidence.schema import Threshold

CLAIMS = """
chapter = "book/part/streams"
[[claim]]
id = "CS-1.1"
source = "CS"
place = "one"
statement = "It grows."
kind = "experiment"
scope = "Here."
test = "Slope above zero."
seeds = 3
expected = "conditional"
axis = "the depth"
[claim.rule]
type = "threshold"
at_least = 0
[claim.parts]
two = {}
twelve = {}
[[claim]]
id = "CS-1.2"
source = "CS"
place = "two"
statement = "It adds up."
kind = "identity"
scope = "Everywhere."
test = "Exactly."
expected = "confirmed"
[claim.rule]
type = "identity"
tolerance = 1e-9
no_control = "there is none"
[[claim]]
id = "CS-1.3"
chapter = "book/training/rates"
source = "CS"
place = "three"
statement = "It trains."
kind = "experiment"
scope = "There."
test = "Loss."
seeds = 3
expected = "confirmed"
[claim.rule]
type = "threshold"
at_most = 1
[[claim]]
id = "LT-60.1"
chapter = "book/real-language-model/sink"
source = "LT"
reference = "some2024paper"
place = "four"
statement = "It sinks."
kind = "pretrained"
scope = "There."
test = "Weight."
seeds = 3
expected = "confirmed"
[claim.rule]
type = "threshold"
at_least = 0.2
"""
ASKED = """scope = "One model."

[[row]]
claim = "CS-1.1.twelve"
theme = "stream"
question = "Does it grow?"
unit = "a block"
scope = "The first token left out."
value = "stream.size|log|slope(state)"

[[cannot]]
reason = "It takes training."
chapters = ["book/training/*"]
"""
KNOWN = parse_claims(CLAIMS, "claims.toml")


def parsed(*changes: tuple[str, str]) -> Any:
    text = ASKED
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return parse_carries(text, "carries.toml", KNOWN)


def test_a_row_has_the_rule_of_its_part_and_its_own_evidence() -> None:
    found = parsed()
    (row,) = found.rows
    assert (row.claim, row.part, row.name) == ("CS-1.1", "twelve", "CS-1.1.twelve")
    assert row.rule == Threshold(at_least=0.0)
    assert row.evidence["value"][0].text == "stream.size|log|slope(state)"
    assert row.evidence["value"][0].where == "carries.toml, line 9"
    assert row.where == "carries.toml, line 4, row CS-1.1.twelve"
    assert row.why == ""
    assert (row.small_unit, row.unit) == ("a block", "a block")


def test_a_row_may_have_a_rule_of_its_own_with_a_reason() -> None:
    own = 'small_unit = "of the answers"\nrule = {type = "threshold", at_most = 0.4}\nwhy = "Nats."\nvalue ='
    row = parsed(("value =", own)).rows[0]
    assert row.rule == Threshold(at_most=0.4)
    assert row.why == "Nats."
    assert (row.small_unit, row.unit) == ("of the answers", "a block")


def test_what_is_not_asked_has_a_reason() -> None:
    assert parsed().unasked == {
        "CS-1.2": UNASKED["identity"],
        "CS-1.3": "It takes training.",
        "LT-60.1": ABOUT_IT,
    }


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("CS-1.1.twelve", "CS-1.1.tvelve", "line 4.*a part of CS-1.1; the nearest is twelve"),
        ("CS-1.1.twelve", "CS-1.1", "a part of CS-1.1; there are two, twelve"),
        ("CS-1.1.twelve", "CS-1.7", "a claim of the registry; the nearest is CS-1.3"),
        ('"stream"\n', '"streem"\n', "a theme; the nearest is stream"),
        ("unit =", "units =", "field unit: expected a text, got nothing"),
        ("value =", "values =", "field value: expected expressions"),
        ("value =", 'extra = "x"\nvalue =', "expected only the fields"),
        ("|slope(state)", "|slope(state", "line 9: expected a closing"),
        ("grow?", "grow.", "expected a question"),
        ("value =", 'why = "Nats."\nvalue =', "beside a rule of the row's own"),
        ("value =", 'small_unit = "nats"\nvalue =', "small_unit.*only one of them"),
        (
            "value =",
            'rule = {type = "threshold", at_most = 0.4}\nwhy = "Nats."\nvalue =',
            "unit of the small model's effect",
        ),
        ("value =", 'also = ["CS-1.1.twelve"]\nvalue =', "each part once"),
        ("book/training/*", "book/trainig/*", "a pattern that fits; the nearest is book/training/rates"),
        ('chapters = ["book/training/*"]', 'claims = ["CS-1.2"]', "got neither for CS-1.3"),
        ("scope = \"One", "scop = \"One", "field scope"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected(before: str, after: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parsed((before, after))


def test_the_librarys_own_file_is_read() -> None:
    assert len(carries().rows) >= 60
    assert "SmolLM2-135M-Instruct" in carries().scope
