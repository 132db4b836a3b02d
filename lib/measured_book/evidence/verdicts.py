"""The nine verdicts, and how those of a claim's parts combine.

Nothing here computes a statistic from values: `rules.judge` does that. This module imports neither
scipy nor torch, so pages can be printed from records without them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What a measurement says about a claim, within the claim's scope."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    CONDITIONAL = "conditional"
    DOES_NOT_CARRY_OVER = "does not carry over"
    NOT_REPRODUCED = "not reproduced"
    UNDERSPECIFIED = "underspecified"
    INCONCLUSIVE = "inconclusive"
    MISPRINT = "misprint"
    FACT = "fact"


MEANING: Mapping[Verdict, str] = {
    Verdict.CONFIRMED: "the claim holds as measured here",
    Verdict.REFUTED: "the opposite is shown, or an identity fails",
    Verdict.CONDITIONAL: "it holds in some conditions and not in others",
    Verdict.DOES_NOT_CARRY_OVER: "false at the size measured here, but said of another size",
    Verdict.NOT_REPRODUCED: "the effect does not appear at this scale; the opposite is not shown",
    Verdict.UNDERSPECIFIED: "the source leaves out a setting, and its readings disagree",
    Verdict.INCONCLUSIVE: "too little data to decide",
    Verdict.MISPRINT: "what is printed is false, and the source's own words say otherwise",
    Verdict.FACT: "cited, not tested here",
}

LEVELS, READINGS, EVERY, MAJORITY = "levels", "readings", "every", "majority"
COMBINATIONS = (LEVELS, READINGS, EVERY, MAJORITY)


def combine(parts: Mapping[str, Verdict], how: str = LEVELS) -> Verdict:
    """Return the verdict of a claim from the verdicts of its parts.

    Parts that all say the same give that verdict. Otherwise it depends on what the parts are:

    - ``"levels"`` of an axis (schemes, depths, tasks): confirmed at one level and refuted or not
      reproduced at another is *conditional*, whatever the remaining levels say.
    - ``"readings"`` of a setting that the source leaves out: decided readings that disagree make
      the claim *underspecified*.
    - ``"every"``: the claim says several things at once and each must hold, so one refuted part
      refutes it, and one that is not reproduced leaves it not reproduced.
    - ``"majority"``: more than half of the parts decide. Where neither the confirmed nor the refuted
      ones are that many it is *inconclusive* as long as inconclusive parts could make them so, and
      *not reproduced* after that.

    In all other cases an inconclusive part leaves the claim *inconclusive*; refuted beside not
    reproduced, with nothing confirmed, is *not reproduced*.

    Raises:
        ValueError: no parts, a part that is not one of confirmed, refuted, not reproduced and
            inconclusive, or an unknown way to combine.
    """
    if how not in COMBINATIONS:
        raise ValueError(f"expected one of {', '.join(COMBINATIONS)} as combination, got {how!r}")
    if not parts:
        raise ValueError("expected at least one part to combine, got none")
    decided = {Verdict.CONFIRMED, Verdict.REFUTED, Verdict.NOT_REPRODUCED}
    for name, verdict in parts.items():
        if verdict not in decided | {Verdict.INCONCLUSIVE}:
            raise ValueError(
                f"part {name!r}: expected confirmed, refuted, not reproduced or inconclusive, "
                f"got {verdict.value!r}; only a whole claim can have that verdict"
            )
    seen = set(parts.values())
    if len(seen) == 1:
        return seen.pop()
    if how == EVERY:
        order = (Verdict.REFUTED, Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE)
        return next(verdict for verdict in order if verdict in seen)
    if how == MAJORITY:
        return _majority(list(parts.values()))
    if how == READINGS and len(seen & decided) > 1:
        return Verdict.UNDERSPECIFIED
    if Verdict.CONFIRMED in seen and seen & {Verdict.REFUTED, Verdict.NOT_REPRODUCED}:
        return Verdict.CONDITIONAL
    if Verdict.INCONCLUSIVE in seen:
        return Verdict.INCONCLUSIVE
    return Verdict.NOT_REPRODUCED


def _majority(verdicts: Sequence[Verdict]) -> Verdict:
    half = len(verdicts) / 2
    open_parts = verdicts.count(Verdict.INCONCLUSIVE)
    sides = {side: verdicts.count(side) for side in (Verdict.CONFIRMED, Verdict.REFUTED)}
    for side, count in sides.items():
        if count > half:
            return side
    if any(count + open_parts > half for count in sides.values()):
        return Verdict.INCONCLUSIVE
    return Verdict.NOT_REPRODUCED


def named(verdict: Verdict, told: Mapping[str, Any]) -> Verdict:
    """Return the word for a claim's verdict, given what the claim declares of itself.

    What was said of another size cannot be refuted at this one, and what a source prints against its own words
    is not what it says. All other verdicts stay as they are.

    Args:
        verdict: of the claim, or of one of its parts, by its rule.
        told: a record, with ``said_of`` or ``misprint`` where the claim declares one; see `declarations`.
    """
    if verdict is Verdict.REFUTED and told.get("said_of"):
        return Verdict.DOES_NOT_CARRY_OVER
    if verdict is Verdict.REFUTED and told.get("misprint"):
        return Verdict.MISPRINT
    return verdict


def beside_other_seeds(verdict: Verdict, others: str) -> Verdict:
    """Return the verdict of a claim that a second set of seeds judges otherwise.

    Neither set is more right than the other, so they count as two levels of one thing: confirmed by one alone
    is *conditional*, refuted by one and not reproduced by the other is *not reproduced*. What the book's own
    seeds leave open stays open.

    Args:
        verdict: by the book's own seeds.
        others: the verdict by the second set; empty where that is the same, or leaves the claim open.
    """
    levels = {Verdict.CONFIRMED, Verdict.REFUTED, Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE}
    if not others or verdict not in levels:
        return verdict
    return combine({"the book's seeds": verdict, "other seeds": Verdict(others)}, LEVELS)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values in the order given.

    Rejecting where the adjusted value is at most alpha keeps the chance of any false rejection in
    the whole family at alpha, however the tests depend on each other (Holm 1979).

    Raises:
        ValueError: a value that is not from 0 to 1.
    """
    for p in p_values:
        if not 0 <= p <= 1:
            raise ValueError(f"expected p-values from 0 to 1, got {p!r}")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def parts_of(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the parts of a record by name, in the registry's order.

    A record of one rule is one part named ``""``.
    """
    if "parts" in record:
        return {part["name"]: part for part in record["parts"]}
    return {"": record}


def _comparison(part: Mapping[str, Any]) -> str:
    """The key by which two parts are the same test: their values and their rule."""
    told = [part["rule"], part.get("values"), part["statistics"]["p"]]
    return json.dumps(told, sort_keys=True)


def chapter_verdicts(
    records: Mapping[str, Mapping[str, Any]],
) -> dict[str, tuple[Verdict, dict[str, tuple[Verdict, float | None]]]]:
    """Return the verdicts of a chapter's records after Holm's correction over all its experiments.

    The family is every comparison of every record that has a p-value; one that stands in several claims, with
    the same values and the same rule, counts once. A part that was confirmed or
    refuted on its own and whose adjusted p-value exceeds 1 - confidence becomes inconclusive;
    exact rules have no p-value and stay as they are, and so does *not reproduced*, which announces
    no effect.

    Returns:
        for each claim id the verdict of the claim, and for each part (``""`` for a record of one
        rule) its verdict and adjusted p-value.
    """
    family = {
        _comparison(part): part["statistics"]["p"]
        for record in records.values()
        for part in parts_of(record).values()
        if part["statistics"]["p"] is not None
    }
    adjusted = dict(zip(family, holm(list(family.values())), strict=True))
    gathered = {}
    for claim_id, record in records.items():
        parts: dict[str, tuple[Verdict, float | None]] = {}
        for name, part in parts_of(record).items():
            verdict = Verdict(part["statistics"]["verdict"])
            p = adjusted.get(_comparison(part))
            if p is not None and verdict in (Verdict.CONFIRMED, Verdict.REFUTED):
                alpha = 1 - part["rule"]["confidence"]
                if p > alpha and not math.isclose(p, alpha, rel_tol=1e-9):
                    verdict = Verdict.INCONCLUSIVE
            parts[name] = (verdict, p)
        how = record.get("combine", LEVELS)
        whole = combine({n: v for n, (v, _) in parts.items()}, how)
        both = beside_other_seeds(whole, record.get("other_seeds", ""))
        gathered[claim_id] = (named(both, record), parts)
    return gathered
