"""Judges what is asked of the real model whenever the book is printed. No outcome is stored.

The small model's effect and verdict are those of its claim, as its own room judges it. The real model's values
are judged by the row's rule, after Holm's correction over all rows. A finding carries over where the effect is
there in both models, or in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from measured_book.evidence.carries import NOT, OPEN, OVER, ROOM, Carries, Row, carries, joined
from measured_book.evidence.registry import claims
from measured_book.evidence.verdicts import Verdict, parts_of
from measured_book.measuring.judged import Judged
from measured_book.measuring.judging import (
    judge_room,
    judged_by,
    room_of,
    with_chapter_verdicts,
)

_ABSENT = {
    Verdict.REFUTED,
    Verdict.DOES_NOT_CARRY_OVER,  # what a chapter calls a refuted claim on models of another size
    Verdict.MISPRINT,  # and one on a formula that its source's own words contradict
    Verdict.NOT_REPRODUCED,
}


@dataclass(frozen=True)
class Said:
    """What one model says.

    Attributes:
        effect: as the rule has it, see `evidence.rules.judge`.
        interval: of the effect; None for exact rules.
        verdict: after Holm's correction where there is one.
    """

    effect: float
    interval: tuple[float, float] | None
    verdict: Verdict

    @property
    def is_there(self) -> bool:
        """Whether the effect that the claim speaks of is there."""
        return self.verdict not in _ABSENT


@dataclass(frozen=True)
class Asked:
    """One question, and what both models say.

    Attributes:
        row: as declared.
        small: what the small model says.
        real: what the real one says; None where it has not been measured.
        minilm: what all-MiniLM-L6-v2 says, where the row names it.
        problem: why the real model says nothing; empty where it does.
    """

    row: Row
    small: Said
    real: Said | None
    minilm: Said | None
    problem: str = ""

    @property
    def outcome(self) -> str:
        """`OVER`, `NOT` or `OPEN`."""
        if self.real is None or self.real.verdict is Verdict.INCONCLUSIVE:
            return OPEN
        return OVER if self.small.is_there == self.real.is_there else NOT


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


Saying = Callable[[str, str], Said]
"""From a claim and its part to what was measured of it."""


def asked_rows(
    *,
    small: Saying | None = None,
    real: Judged | None = None,
    declared: Carries | None = None,
) -> list[Asked]:
    """Judge every row.

    Args:
        small: what the book says of a claim's part; judged from the kept results when not given.
        real: the room of the real model; its kept results when not given.
        declared: what is asked; the library's own when not given.

    Raises:
        ValueError: an expression that cannot be read, or a small model whose claim is undecided.
        KeyError: `small` does not know the part.
    """
    rows, say = (declared or carries()).rows, small or kept_parts()
    own = judge_room(ROOM) if real is None else real
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
        first = say(row.claim, row.part)
        if first.verdict is Verdict.INCONCLUSIVE:
            raise ValueError(
                f"{row.where}: expected a finding of the small model, got an inconclusive one: "
                "leave the row out"
            )
        record = judged.get(row.name)
        found.append(
            Asked(
                row,
                first,
                None if record is None else said(record),
                None if row.minilm is None else say(*row.minilm),
                problems.get(row.name, ""),
            )
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


def said(part: Mapping[str, Any]) -> Said:
    """What a part of a record says."""
    statistics = part["statistics"]
    interval = statistics["interval"]
    return Said(
        statistics["effect"],
        None if interval is None else (interval[0], interval[1]),
        Verdict(statistics.get("verdict_holm", statistics["verdict"])),
    )


def kept_parts(judge: Callable[[str], Judged] = judge_room) -> Saying:
    """What the kept results say of each part of each claim; every room is judged once.

    Args:
        judge: judges a room.
    """
    once = cache(judge)

    def say(claim: str, part: str) -> Said:
        return said(kept_part(once, claim, part))

    return say


def kept_part(judge: Callable[[str], Judged], claim: str, part: str) -> Mapping[str, Any]:
    """The part of a claim's record.

    Raises:
        ValueError: the room gives no verdict; the message says why.
    """
    judged = judge(room_of(claims()[claim]))
    if claim not in judged.records:
        why = judged.problems.get(claim, "its room does not judge it")
        raise ValueError(f"expected a verdict on {claim}, got none: {why}")
    return parts_of(judged.records[claim])[part]


def unlike(judge: Callable[[str], Judged], rows: Sequence[Row]) -> list[str]:
    """Rows that are said to stand on the values of others and do not: ``CS-2.11.entropy, CS-6.2.entropy``."""
    once, found = cache(judge), []
    for row in rows:
        own = _values(kept_part(once, row.claim, row.part))
        found += [
            f"{row.name}, {joined(*one)}"
            for one in row.also
            if _values(kept_part(once, *one)) != own
        ]
    return found


def _values(part: Mapping[str, Any]) -> dict[str, Any]:
    """What the effect is computed from: headroom is only asked whether it could have shown."""
    return {name: values for name, values in part["values"].items() if name != "headroom"}
