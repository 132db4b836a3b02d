"""Records judged anew by the registry as it is now: the committed ones, and what makes them differ."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bookpress.records import all_committed, committed
from bookpress.rejudge import judged_alike, only_declarations
from measured_transformer.evidence.records import read_records
from measured_transformer.evidence.registry import Claim, claims
from measured_transformer.evidence.verdicts import Verdict

ROOT = Path(__file__).resolve().parents[2]
FULL = all_committed(ROOT, "full")
CHAPTER = "book/training/schedules"
PARTS = "DA-4.17"  # of eight parts, judged by differences
PLAIN = "DD-10.2"  # of one rule, in another chapter


def payload_of(chapter: str) -> dict[str, Any]:
    return read_records(committed(ROOT, Path(chapter).name, "full"))


@pytest.mark.parametrize("path", FULL, ids=lambda path: path.parents[1].name)
def test_every_committed_record_of_a_full_run_gets_the_same_verdicts_again(path: Path) -> None:
    payload = read_records(path)
    assert judged_alike(claims(), payload["chapter"], payload)


def with_claim(claim_id: str, **changes: Any) -> dict[str, Claim]:
    known = claims()
    return {**known, claim_id: replace(known[claim_id], **changes)}


def first_part(**changes: Any) -> Any:
    first, *others = claims()[PARTS].parts
    return (replace(first, **changes), *others)


STRICTER = replace(claims()[PARTS].parts[0].rule, smallest_effect=0.03)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "changes",
    [
        {"statement": "Another sentence."},
        {"scope": "Another scope."},
        {"test": "Another test."},
        {"combine": "every"},
        {"axis": "something else"},
        {"seeds": {"quick": 2, "full": 6}},
        {"parts": claims()[PARTS].parts[1:]},
        {"parts": claims()[PARTS].parts[::-1]},
        {"parts": first_part(label="another name")},
        {"parts": first_part(rule=STRICTER)},
        {"status": "planned"},
        {"chapter": "book/training/warm-up"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_declaration_is_another_measurement(changes: dict[str, Any]) -> None:
    payload = payload_of(CHAPTER)
    assert judged_alike(claims(), CHAPTER, payload)
    assert not judged_alike(with_claim(PARTS, **changes), CHAPTER, payload)


def test_what_the_prose_says_and_what_quick_leaves_is_no_part_of_a_full_run() -> None:
    payload = payload_of(CHAPTER)
    expected = dict.fromkeys(("quick", "full"), Verdict.CONFIRMED)
    for changes in ({"expected": expected}, {"section": "x"}, {"parts": first_part(only="full")}):
        assert judged_alike(with_claim(PARTS, **changes), CHAPTER, payload)
    scope = claims()[PARTS].scope
    about_quick = f"{scope} At quick 0.5 of it. "
    assert judged_alike(with_claim(PARTS, scope=about_quick), CHAPTER, payload)
    for other in (f"{about_quick}More.", f"At full 1. {scope}", f"{scope} Not at quick."):
        assert not judged_alike(with_claim(PARTS, scope=other), CHAPTER, payload)
    assert judged_alike(with_claim(PARTS, seeds={"quick": 4, "full": 5}), CHAPTER, payload)


def test_values_that_the_verdict_does_not_follow_from_are_noticed() -> None:
    payload = payload_of("book/training/regularisation")
    record = payload["records"][PLAIN]
    assert judged_alike(claims(), record["chapter"], payload)
    for change in ("values", "effect", "interval", "p", "verdict"):
        broken = copy.deepcopy(payload)
        statistics = broken["records"][PLAIN]["statistics"]
        if change == "values":
            broken["records"][PLAIN]["values"]["treatment"][0] += 0.01
        elif change == "interval":
            statistics["interval"][0] += 1e-6
        elif change == "verdict":
            statistics["verdict"] = "not reproduced"
        else:
            statistics[change] *= 1.001
        assert not judged_alike(claims(), record["chapter"], broken), change
    broken = copy.deepcopy(payload)
    broken["records"][PLAIN]["values"]["treatment"].pop()
    assert not judged_alike(claims(), record["chapter"], broken)
    broken = copy.deepcopy(payload)
    broken["records"][PLAIN]["verdict_alone"] = "refuted"
    assert not judged_alike(claims(), record["chapter"], broken)
    del payload["records"][PLAIN]
    assert not judged_alike(claims(), record["chapter"], payload), "a claim was not measured"


def test_only_modules_that_compute_nothing_count_as_declarations() -> None:
    evidence = "lib/measured_transformer/evidence"
    assert only_declarations([])
    claims_file = "lib/measured_transformer/chapters/schedules/claims.toml"
    assert (ROOT / claims_file).is_file()
    assert only_declarations([f"{evidence}/registry.py", claims_file])
    assert not only_declarations([claims_file.replace("claims.toml", "measure.py")])
    for computes in ("rules", "verdicts", "statistics", "records", "profile"):
        assert (ROOT / f"{evidence}/{computes}.py").is_file()
        assert not only_declarations([f"{evidence}/registry.py", f"{evidence}/{computes}.py"])
    assert not only_declarations(["requirements.txt"])
