"""Verdicts of a second set of seeds count for the code that they were measured with, and no other."""

from __future__ import annotations

import json

from bookpress import second_seeds


def test_an_entry_of_other_code_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(second_seeds, "_digest_now", {"room/one": "now"}.get)
    path = tmp_path / "kept.json"
    entry = {"verdict": "refuted", "seeds": 8}
    kept = {
        "CS-1.1": entry | {"digests": {"room/one": "now"}},
        "CS-1.2": entry | {"digests": {"room/one": "before"}},
        "CS-1.3": entry | {"digests": {"room/gone": "now"}},
    }
    path.write_text(json.dumps(kept))
    assert second_seeds.kept_verdicts(path) == {"CS-1.1": ("refuted", 8)}
    assert second_seeds.kept_verdicts(tmp_path / "none.json") == {}


def test_a_result_that_is_gone_has_no_digest():
    assert second_seeds._digest_now("no_such_room/nothing") == ""
