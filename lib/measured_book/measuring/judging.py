"""Judges a room's claims from its results whenever the book is printed. No verdict is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from measured_book.evidence import records
from measured_book.evidence.registry import Claim, claims
from measured_book.evidence.results import Result
from measured_book.evidence.rules import Judgement, further_details, judge, numbers
from measured_book.evidence.schema import Rule
from measured_book.evidence.verdicts import Verdict, chapter_verdicts, combine, parts_of
from measured_book.measuring.measurement import (
    Reading,
    measurements_of,
    readings_of,
)
from measured_book.measuring.state import (
    CURRENT,
    HOLDS,
    MISSING,
    Standing,
    standing,
)

_CALL = re.compile(r"(?P<name>\w+)\((?P<given>[^()]*)\)")
_PATH = re.compile(r"(?P<result>\w+)\.(?P<variable>\w+)(?:\[(?P<where>[^\]]*)\])?")


@dataclass(frozen=True)
class Shown:
    """A result as pages show it: the result, its dataset, and whether it is valid.

    Attributes:
        name: of the measurement.
        what: what was measured, in one line.
        state, why: see `state.Standing`.
        result: None where it is missing or damaged.
    """

    name: str
    what: str
    state: str
    why: str
    result: Result | None

    @property
    def holds(self) -> bool:
        """Whether the page shows it unmarked."""
        return self.state in HOLDS

    @property
    def dataset(self) -> Any:
        """The values as an `xarray.Dataset`.

        Raises:
            ValueError: the result is missing or damaged; the message says which.
        """
        if self.result is None:
            raise ValueError(self.why)
        return self.result.dataset

    @property
    def seeds(self) -> list[int]:
        """The seeds; none where the result is missing."""
        return [] if self.result is None else self.result.seeds

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where and when it was measured."""
        return {} if self.result is None else self.result.provenance

    @property
    def path(self) -> Any:
        """Its file."""
        return None if self.result is None else self.result.path


@dataclass(frozen=True)
class Judged:
    """A room's claims and numbers, as its results give them now.

    Attributes:
        room: the room.
        records: claim -> its record: rule, values, statistics and verdict, after Holm's correction over the
        chapter. values: the numbers that the prose names.
        results: all measurements of the room, also those whose results do not hold.
        reads: claim or number -> the measurements it stands on.
        problems: claim or number -> why it could not be judged, in one sentence.
        asked: numbers that take arguments from the prose, by name, with the datasets that they read.
    """

    room: str
    records: Mapping[str, Any]
    values: Mapping[str, Any]
    results: Mapping[str, Shown]
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, tuple[Reading, Mapping[str, Any]]] = field(default_factory=dict)


def judge_room(room: str, replaced: Mapping[str, Result] | None = None) -> Judged:
    """Judge the claims of a room by their declared rules.

    Args:
        room: the chapter's room.
        replaced: results that take the place of the kept ones, by name.

    Raises:
        ValueError: the room declares no measurement, or evidence for a claim that the registry does not have.
    """
    shown = {}
    for name, one in measurements_of(room).items():
        at: Standing = standing(one)
        result = (replaced or {}).get(name, at.result)
        shown[name] = Shown(name, one.what, at.state, at.why, result)
    return _judged_room(room, shown)


def judge_results(room: str, results: Mapping[str, Result]) -> Judged:
    """Judge the claims of a room from a set of results, without checking what code measured them.

    Args:
        room: the room.
        results: by the names of their measurements; what reads one that is not there is not judged.

    Raises:
        ValueError: as `judge_room`.
    """
    shown = {}
    for name, one in measurements_of(room).items():
        found = results.get(name)
        missing = f"{room}.{name} is not in this set of results"
        shown[name] = (
            Shown(name, one.what, MISSING, missing, None)
            if found is None
            else Shown(name, one.what, CURRENT, "", found)
        )
    return _judged_room(room, shown)


def _judged_room(room: str, shown: Mapping[str, Shown]) -> Judged:
    datasets = {n: one.result.dataset for n, one in shown.items() if one.result is not None}
    known = {c: claim for c, claim in claims().items() if _room(claim) == room}
    found: dict[str, Any] = {}
    values: dict[str, Any] = {}
    reads: dict[str, tuple[str, ...]] = {}
    problems: dict[str, str] = {}
    asked: dict[str, tuple[Reading, Mapping[str, Any]]] = {}
    for reading in readings_of(room):
        _check(reading, known, shown, room)
        reads[reading.name] = reading.reads
        missing = [name for name in reading.reads if name not in datasets]
        if missing:
            problems[reading.name] = shown[missing[0]].why
            continue
        read = {name: datasets[name] for name in reading.reads}
        if reading.asks:
            asked[reading.name] = (reading, read)
            continue
        given = reading.function(**read)
        if reading.is_claim:
            results = [shown[name] for name in reading.reads]
            found[reading.name] = _record(known[reading.name], given, results)
        else:
            values[reading.name] = _value(reading.name, given)
    return Judged(room, with_chapter_verdicts(found), values, shown, reads, problems, asked)


def with_chapter_verdicts(found: dict[str, Any]) -> dict[str, Any]:
    """Records with their verdicts after Holm's correction over all experiments of the chapter."""
    for claim_id, (verdict, parts) in chapter_verdicts(found).items():
        record = found[claim_id]
        record["verdict_alone"], record["verdict"] = record["verdict"], verdict.value
        for name, part in parts_of(record).items():
            part["statistics"]["verdict_holm"] = parts[name][0].value
            part["statistics"]["p_holm"] = parts[name][1]
    return found


def verdicts_of(room: str, replaced: Mapping[str, Result] | None = None) -> dict[str, str]:
    """Claim -> verdict."""
    return {c: record["verdict"] for c, record in judge_room(room, replaced).records.items()}


def value_of(judged: Judged, expression: str) -> str:
    """The text that an expression in the prose prints.

    - ``reversal.accuracy[arm=random]|mean:.3f``: a variable of a result, labels that choose along its axes, a
      reduction over all that remains, a format;
    - ``floor:.2f``: a number that the room declares;
    - ``worth(lag):.0%``: one that takes arguments;
    - ``DA-2.8.random.effect:.3f``: values and statistics of a claim, see `evidence.records.format_value`.

    Raises:
        KeyError: a path that leads nowhere.
        ValueError: a label, a reduction or a format that does not fit, or a result that is missing.
    """
    path, rest = _split(expression)
    if (call := _CALL.fullmatch(path)) is not None:
        answer = _called(judged, call["name"], call["given"])
        return records.format_value({"records": {}, "values": {"it": answer}}, f"it{rest}")
    match = _PATH.fullmatch(path)
    if match is None or match["result"] not in judged.results:
        name = _stands_on(judged, path)
        if name in judged.problems:
            raise ValueError(judged.problems[name])
        return records.format_value(
            {"records": judged.records, "values": judged.values}, expression
        )
    values = _selected(judged.results[match["result"]], match["variable"], match["where"] or "")
    return records.format_value({"records": {}, "values": {"it": values}}, f"it{rest}")


def results_of(judged: Judged, expression: str) -> tuple[str, ...]:
    """The measurements that an expression reads."""
    path, _ = _split(expression)
    if (call := _CALL.fullmatch(path)) is not None:
        return judged.reads.get(call["name"], ())
    match = _PATH.fullmatch(path)
    if match is not None and match["result"] in judged.results:
        return (match["result"],)
    return judged.reads.get(_stands_on(judged, path), ())


def _split(expression: str) -> tuple[str, str]:
    """Split an expression into path and rest; a label in brackets may contain the separator."""
    text, depth = expression.strip(), 0
    for index, sign in enumerate(text):
        depth += {"[": 1, "]": -1, "(": 1, ")": -1}.get(sign, 0)
        if sign in "|:" and not depth:
            return text[:index].strip(), text[index:]
    return text, ""


def _called(judged: Judged, name: str, given: str) -> Any:
    if name in judged.problems:
        raise ValueError(judged.problems[name])
    if name not in judged.asked:
        known = ", ".join(judged.asked) or "none"
        raise KeyError(f"expected a number that takes arguments ({known}), got {name!r}")
    reading, read = judged.asked[name]
    words = [word.strip() for word in given.split(",") if word.strip()]
    return _value(name, reading.function(**read, **reading.answered(words)))


def _stands_on(judged: Judged, path: str) -> str:
    names = [name for name in judged.reads if path == name or path.startswith(f"{name}.")]
    return max(names, key=len, default="")


def _selected(shown: Shown, name: str, where: str) -> list[float | int]:
    if shown.result is None:
        raise ValueError(shown.why)
    if name not in shown.result.variables:
        known = ", ".join(shown.result.variables)
        raise KeyError(f"{shown.name} has the variables {known}, got {name!r}")
    axes, values = shown.result.variables[name]
    for choice in [text for text in where.split(",") if text.strip()]:
        axis, _, label = (part.strip() for part in choice.partition("="))
        labels = [str(one) for one in shown.result.coords.get(axis, ())]
        if axis not in axes or label not in labels:
            raise ValueError(
                f"{shown.name}.{name}: expected a label of {', '.join(axes)} such as "
                f"{axis}={labels[0] if labels else '...'}, got {choice.strip()!r}"
            )
        values = np.take(values, labels.index(label), axis=axes.index(axis))
        axes = tuple(a for a in axes if a != axis)
    flat = values.ravel()
    return [v.item() for v in (flat.astype(np.int64) if flat.dtype.kind == "b" else flat)]


# Records ------------------------------------------------------------------------------------------


def _room(claim: Claim) -> str:
    return claim.chapter.rpartition("/")[2].replace("-", "_")


def _check(
    reading: Reading, known: Mapping[str, Claim], shown: Mapping[str, Shown], room: str
) -> None:
    if reading.is_claim and reading.name not in known:
        raise ValueError(
            f"{room}: expected evidence for claims of this room ({', '.join(known)}), got {reading.name}"
        )
    if unknown := [name for name in reading.reads if name not in shown]:
        raise ValueError(
            f"{room}: {reading.name} reads {', '.join(unknown)}, but the measurements are {', '.join(shown)}"
        )


def _record(claim: Claim, given: Mapping[str, Any], results: list[Shown]) -> dict[str, Any]:
    seeds = max((one.seeds for one in results), key=len)
    latest = max(results, key=lambda one: str(one.provenance.get("date", "")))
    record: dict[str, Any] = {
        "id": claim.id,
        "combine": claim.combine,
        "axis": claim.axis,
        "seeds": None if claim.seeds is None else seeds,
    }
    if claim.rule is not None:
        record |= _part(claim.id, claim.rule, given)
    else:
        names = [part.name for part in claim.parts]
        if set(given) != set(names):
            raise ValueError(
                f"claim {claim.id}: expected evidence for the parts {', '.join(names)}, got {', '.join(given)}"
            )
        record["parts"] = [
            {
                "name": part.name,
                "label": part.label,
                **_part(f"{claim.id}, {part.name}", part.rule, given[part.name]),
            }
            for part in claim.parts
        ]
    verdicts = {n: Verdict(p["statistics"]["verdict"]) for n, p in parts_of(record).items()}
    return record | {
        "verdict": combine(verdicts, claim.combine).value,
        "device": latest.provenance.get("device", ""),
        "date": latest.provenance.get("date", ""),
    }


def _part(where: str, rule: Rule, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        kept = {name: numbers(name, _array(value)).tolist() for name, value in given.items()}
        judgement, details = _judged(rule, tuple((n, tuple(v)) for n, v in kept.items()))
    except ValueError as error:
        raise ValueError(f"claim {where}: {error}") from error
    return {
        "rule": rule.as_dict(),
        "values": kept,
        "statistics": {
            "verdict": judgement.verdict.value,
            "effect": judgement.effect,
            "interval": None if judgement.interval is None else list(judgement.interval),
            "p": judgement.p,
            "details": {**judgement.details, **details},
        },
    }


@lru_cache(maxsize=4096)
def _judged(
    rule: Rule, values: tuple[tuple[str, tuple[float, ...]], ...]
) -> tuple[Judgement, dict[str, Any]]:
    arrays = {name: np.array(each) for name, each in values}
    return judge(rule, arrays), further_details(rule, arrays)


def _array(value: Any) -> Any:
    return np.asarray(value) if hasattr(value, "dims") else value


def _value(name: str, given: Any) -> Any:
    array = np.asarray(given)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"expected a number or a list of numbers for {name}, got {given!r}")
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    return array.item() if array.ndim == 0 else array.ravel().tolist()
