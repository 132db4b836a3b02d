"""What is declared and not measured yet is no claim of the room: it becomes one with its results."""

import tomllib
from pathlib import Path

from measured_book.evidence.results import load_results
from measured_book.rooms.ladder import measure

DECLARED = tomllib.loads(Path(__file__).with_name("declared.toml").read_text("utf-8"))
KEPT = tomllib.loads(Path(measure.__file__).with_name("claims.toml").read_text("utf-8"))


def test_no_claim_is_both_declared_and_judged():
    names = [claim["id"] for claim in (*DECLARED["claim"], *KEPT["claim"])]
    assert len(names) == len(set(names))


def test_every_declared_claim_has_its_rule_and_its_expected_verdict():
    for claim in DECLARED["claim"]:
        assert {"statement", "test", "rule", "evidence", "expected", "seeds"} <= set(claim)


def test_what_declared_claims_are_judged_by_is_not_measured():
    of = {text.partition(".")[0] for text in DECLARED["values"].values()}
    assert of
    assert not of & set(load_results("ladder"))
