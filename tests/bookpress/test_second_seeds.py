"""Verdicts of a second set of seeds count for the code that they were measured with, and no other."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

from bookpress import second_seeds
from measured_book.evidence.registry import claims
from measured_book.evidence.results import Result
from measured_book.evidence.verdicts import Verdict


def test_an_entry_of_other_code_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(second_seeds, "_digest_now", {"room/one": "now"}.get)
    monkeypatch.setattr(second_seeds, "_rule_now", lambda claim: "a rule")
    path = tmp_path / "kept.json"
    entry = {"verdict": "refuted", "seeds": 8, "rule": "a rule"}
    kept = {
        "CS-1.1": entry | {"digests": {"room/one": "now"}},
        "CS-1.2": entry | {"digests": {"room/one": "before"}},
        "CS-1.3": entry | {"digests": {"room/gone": "now"}},
        "CS-1.4": entry | {"rule": "another", "digests": {"room/one": "now"}},
        "CS-1.5": {"verdict": "refuted", "seeds": 8, "digests": {"room/one": "now"}},
    }
    path.write_text(json.dumps(kept))
    assert second_seeds.kept_verdicts(path) == {"CS-1.1": ("refuted", 8)}
    assert second_seeds.kept_verdicts(tmp_path / "none.json") == {}


def test_a_room_that_fewer_seeds_do_not_suffice_leaves_the_others_judged(
    tmp_path, monkeypatch, capsys
):
    for room in ("a_table_of_all_seeds", "means"):
        (tmp_path / room / "results").mkdir(parents=True)
    seeds = SimpleNamespace(seeds=[0, 10])
    own = {"one": SimpleNamespace(result=seeds, seeds=[0, 10])}

    def judged(room, results):
        if room != "means":
            raise ValueError("cannot reshape")
        return SimpleNamespace(records={"DD-9.1": {"verdict_own": "refuted"}})

    monkeypatch.setattr(
        second_seeds,
        "judge_room",
        lambda room: SimpleNamespace(room=room, results=own, reads={"DD-9.1": ["one"]}),
    )
    monkeypatch.setattr(second_seeds, "_of_the_same_code", lambda own, folder: {"one": seeds})
    monkeypatch.setattr(second_seeds, "_digest", lambda result: "now")
    monkeypatch.setattr(second_seeds, "judge_results", judged)
    found = second_seeds.judged_again(tmp_path)
    assert {claim: entry["verdict"] for claim, entry in found.items()} == {"DD-9.1": "refuted"}
    assert found["DD-9.1"]["digests"] == {"means/one": "now"}
    assert "a_table_of_all_seeds: left out: cannot reshape" in capsys.readouterr().err


def test_a_full_second_set_stands_under_the_numbers_of_the_first():
    """So that a rule that names seeds by number can be judged; half a set keeps its own numbers."""
    own = Result("room", "one", "", {}, {"seed": [0, 10, 20], "arm": ["a"]})
    full = replace(own, coords={"seed": [10000, 10010, 10020], "arm": ["a"]})
    half = replace(own, coords={"seed": [10000, 10010], "arm": ["a"]})
    assert second_seeds._in_the_places_of(own, full).coords == own.coords
    assert second_seeds._in_the_places_of(own, half) is half


def test_a_verdict_that_another_set_turns_says_so_in_its_claim():
    """And nothing else does: what is declared and what was judged say the same."""
    known, wrong = claims(), []
    kept = {c: one for c, (one, _) in second_seeds.kept_verdicts().items() if c in known}
    for name, verdict in kept.items():
        claim = known[name]
        own = claim.expected if not claim.other_seeds else claim.other_seeds
        open_ = Verdict.INCONCLUSIVE in (verdict, claim.expected)
        if verdict != own and not open_ and claim.expected is not Verdict.CONDITIONAL:
            wrong.append(f"{name}: {verdict} by other seeds, {claim.expected}; declare other_seeds")
    wrong += [
        f"{claim.id}: other_seeds declared, but they say {kept.get(claim.id, 'nothing')}"
        for claim in known.values()
        if claim.other_seeds and kept.get(claim.id) != claim.other_seeds
    ]
    assert not wrong, "\n".join(wrong)


def test_a_result_that_is_gone_has_no_digest():
    assert second_seeds._digest_now("no_such_room/nothing") == ""


def test_a_rule_is_what_decides_and_not_its_words():
    one = claims()["DD-9.1"]
    rule = second_seeds.rule_of(one)
    assert second_seeds.rule_of(replace(one, test="other words", expected=None)) == rule
    assert second_seeds.rule_of(replace(one, combine="every")) != rule
    assert second_seeds.rule_of(replace(one, parts=one.parts[:-1])) != rule
    first = replace(one.parts[0], rule=replace(one.parts[0].rule, at_most=5.0))
    assert second_seeds.rule_of(replace(one, parts=(first, *one.parts[1:]))) != rule
    assert second_seeds._rule_now("DD-9.1") == rule
    assert second_seeds._rule_now("XX-0.0") == ""
