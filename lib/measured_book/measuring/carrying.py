"""Judges what is asked of the real model whenever the book is printed. No outcome is stored.

The small model's effect and verdict are those of its claim, as its own room judges it. The real model's values are
judged by the row's rule, after Holm's correction over all rows. The two say the same where the effect is there in
both, or in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from measured_book.evidence.carries import Carries, Row, carries
from measured_book.evidence.registry import claims
from measured_book.evidence.schema import Claim
from measured_book.evidence.verdicts import Verdict, parts_of
from measured_book.measuring.judging import (
    Judged,
    judge_room,
    judged_by,
    room_of,
    with_chapter_verdicts,
)

ROOM = "carry_over"
OVER, NOT, OPEN, CANNOT = "carries over", "does not", "undecided", "cannot be asked"
OUTCOMES = (OVER, NOT, OPEN, CANNOT)
"""What a row can come to, in the order of the table."""
_ABSENT = {Verdict.REFUTED, Verdict.NOT_REPRODUCED}


@dataclass(frozen=True)
class Asked:
    """One question, and what both models say.

    Attributes:
        row: as declared.
        small: the part of the small model's record: rule, values and statistics.
        real: the same of the real model; None where it has not been measured.
        minilm: the same of all-MiniLM-L6-v2, where the row names it.
        outcome: `OVER`, `NOT` or `OPEN`.
        problem: why there is no real part; empty where there is.
    """

    row: Row
    small: Mapping[str, Any]
    real: Mapping[str, Any] | None
    minilm: Mapping[str, Any] | None
    outcome: str
    problem: str = ""


@dataclass(frozen=True)
class Headline:
    """How many findings carry over.

    Attributes:
        findings: that were asked, each counted once however many claims state it.
        over, not_over, undecided: of these.
        claims: that are asked by them.
        of: claims of the registry.
    """

    findings: int
    over: int
    not_over: int
    undecided: int
    claims: int
    of: int


def asked_rows(
    judge: Callable[[str], Judged] = judge_room, declared: Carries | None = None
) -> list[Asked]:
    """Judge every row.

    Args:
        judge: gives a room's claims and results as they are judged.
        declared: what is asked; the library's own when not given.

    Raises:
        ValueError: an expression that cannot be read, a small model whose claim is not judged, is undecided, or has
            other values than one that is said to be the same.
    """
    rows = (declared or carries()).rows
    known, own = claims(), judge(ROOM)
    judged: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for row in rows:
        part, problem = judged_by(own, row.where, row.rule, row.evidence)
        if part is None:
            problems[row.name] = problem
        else:
            judged[row.name] = {**part, "verdict": part["statistics"]["verdict"]}
    judged = with_chapter_verdicts(judged)
    found = []
    for row in rows:
        small = _part(judge, known[row.claim], row.part, row)
        for claim_id, name in row.also:
            other = _part(judge, known[claim_id], name, row)
            if other["values"].keys() - {"headroom"} != small["values"].keys() - {
                "headroom"
            } or any(
                other["values"][k] != small["values"][k] for k in other["values"] if k != "headroom"
            ):
                raise ValueError(
                    f"{row.where}: expected the values of {row.name} behind {claim_id}.{name}, got others"
                )
        real = judged.get(row.name)
        beside = (
            None if row.minilm is None else _part(judge, known[row.minilm[0]], row.minilm[1], row)
        )
        found.append(
            Asked(row, small, real, beside, _outcome(small, real), problems.get(row.name, ""))
        )
    return found


def headline(asked: Sequence[Asked]) -> Headline:
    """Count what carries over."""
    outcomes = [one.outcome for one in asked]
    return Headline(
        findings=len(asked),
        over=outcomes.count(OVER),
        not_over=outcomes.count(NOT),
        undecided=outcomes.count(OPEN),
        claims=len({claim for one in asked for claim in one.row.claims}),
        of=len(claims()),
    )


def verdict_of(part: Mapping[str, Any]) -> Verdict:
    """The verdict of a part, after Holm's correction where there is one."""
    statistics = part["statistics"]
    return Verdict(statistics.get("verdict_holm", statistics["verdict"]))


def _outcome(small: Mapping[str, Any], real: Mapping[str, Any] | None) -> str:
    if real is None or verdict_of(real) is Verdict.INCONCLUSIVE:
        return OPEN
    there, here = verdict_of(small) not in _ABSENT, verdict_of(real) not in _ABSENT
    return OVER if there == here else NOT


def _part(judge: Callable[[str], Judged], claim: Claim, name: str, row: Row) -> Mapping[str, Any]:
    judged = judge(room_of(claim))
    if claim.id not in judged.records:
        why = judged.problems.get(claim.id, "its room does not judge it")
        raise ValueError(f"{row.where}: expected a verdict on {claim.id}, got none: {why}")
    part = parts_of(judged.records[claim.id])[name]
    if verdict_of(part) is Verdict.INCONCLUSIVE:
        raise ValueError(
            f"{row.where}: expected a finding of the small model, got an inconclusive one; leave the row out"
        )
    return part
