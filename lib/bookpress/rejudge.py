"""Judging committed records anew, where nothing but the declarations they were judged by has changed.

A record keeps the values that were measured and the rule they were judged by. When of all that a
chapter uses only the registry has changed, that is, how claims are declared, read and recorded, no
value can be another. What could be another is the verdict: so the values are judged again, by the
claim as it is declared now.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from measured_transformer.evidence.registry import Claim, Rule
from measured_transformer.evidence.verdicts import Verdict, combine, parts_of

from bookpress.fingerprint import CLAIMS

_EVIDENCE = "lib/measured_transformer/evidence"
DECLARATIONS = frozenset(f"{_EVIDENCE}/{name}.py" for name in ("record", "registry", "schema"))
"""Modules that take values to be judged, and hold what they are judged by, but compute none."""


def only_declarations(changed: Iterable[str]) -> bool:
    """Tell whether all of these files, named from the book's root, declare claims and compute nothing."""
    return all(
        name in DECLARATIONS or fnmatchcase(name, CLAIMS.format(room="*")) for name in changed
    )


def judged_alike(claims: Mapping[str, Claim], chapter: str, payload: Mapping[str, Any]) -> bool:
    """Tell whether a chapter's records would be the same if their values were judged now.

    Args:
        claims: the registry.
        chapter: the chapter's document name.
        payload: its records, as `read_records` returns them.

    The claims must be the same ones, with the same words, seeds, parts and rules, and each part must get
    the same statistics from its values. What the prose expects, where it discusses a claim, and what
    the words say of the other profile ("At quick ...") may have changed: that is no part of the measurement.
    """
    kept = payload["records"]
    tested = {
        claim_id
        for claim_id, claim in claims.items()
        if claim.chapter == chapter and claim.status == "covered" and claim.kind != "cited"
    }
    return tested == set(kept) and all(
        _alike(claims[claim_id], record, payload["profile"]) for claim_id, record in kept.items()
    )


def _alike(claim: Claim, record: Mapping[str, Any], profile: str) -> bool:
    words = ("source", "place", "statement", "kind", "scope", "test")
    other = "quick" if profile == "full" else "full"
    seeds = None if record["seeds"] is None else len(record["seeds"])
    if (
        any(
            _without(other, record["claim"][n]) != _without(other, getattr(claim, n)) for n in words
        )
        or record["chapter"] != claim.chapter
        or (record["axis"], record["combine"]) != (claim.axis, claim.combine)
        or (claim.seeds is not None and seeds != claim.seeds[profile])
    ):
        return False
    declared = {"": ("", claim.rule)} if claim.rule else _parts(claim)
    measured = parts_of(record)
    if list(declared) != list(measured):
        return False
    left = claim.left_at(profile)
    verdicts = {}
    for name, part in measured.items():
        label, rule = declared[name]
        if part.get("label", "") != label or rule is None or part["rule"] != rule.as_dict():
            return False
        statistics = part["statistics"]
        if bool(statistics.get("left")) != (name in left):
            return False
        if not statistics.get("left") and not _same_statistics(rule, part):
            return False
        verdicts[name] = Verdict(statistics["verdict"])
    alone = record.get("verdict_alone", record["verdict"])
    return bool(combine(verdicts, claim.combine) == alone)


def _without(profile: str, text: str) -> str:
    """Leave out sentences about a profile, which begin with "At" and its name."""
    return " ".join(re.sub(rf"\bAt {profile}\b.*?\.(?=\s|$)", "", text).split())


def _parts(claim: Claim) -> dict[str, tuple[str, Rule]]:
    return {part.name: (part.label, part.rule) for part in claim.parts}


def _same_statistics(rule: Rule, part: Mapping[str, Any]) -> bool:
    # Loaded here: judging needs scipy, which printing pages otherwise does not.
    from measured_transformer.evidence.rules import judge

    statistics = part["statistics"]
    try:
        now = judge(rule, part["values"])
    except ValueError:
        return False
    interval = None if now.interval is None else list(now.interval)
    return bool(now.verdict == statistics["verdict"]) and all(
        _close(new, statistics[name])
        for name, new in (("effect", now.effect), ("interval", interval), ("p", now.p))
    )


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
