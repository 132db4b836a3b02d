"""Judges a room's claims from its results whenever the book is printed. No verdict is stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from measured_book.evidence import records
from measured_book.evidence.declarations import parse_values
from measured_book.evidence.expressions import Scope
from measured_book.evidence.grammar import ExpressionError, nearest, split_format
from measured_book.evidence.registry import Claim, Written, claims
from measured_book.evidence.results import Result, chapters_folder
from measured_book.evidence.rules import Judgement, further_details, judge, numbers
from measured_book.evidence.schema import Evidence, Rule
from measured_book.evidence.verdicts import (
    LEVELS,
    Verdict,
    chapter_verdicts,
    combine,
    named,
    parts_of,
)
from measured_book.measuring.dependencies import claim_of, reads_of, results_of, statistic_in
from measured_book.measuring.judged import Judged, Shown
from measured_book.measuring.measurement import (
    Reading,
    measure_module,
    measurements_of,
    readings_of,
)
from measured_book.measuring.state import (
    CURRENT,
    MISSING,
    Status,
    status,
)


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
        at: Status = status(one)
        result = (replaced or {}).get(name, at.result)
        shown[name] = Shown(name, one.what, at.state, at.why, result)
    return _judged_room(room, shown)


def judge_again(
    judged: Judged, replaced: Mapping[str, Result], *, only: Collection[str] | None = None
) -> Judged:
    """Judge a room once more with other results, without looking at files.

    Args:
        judged: the room as it was judged before.
        replaced: results that take the place of others, by name.
        only: the claims and numbers that are wanted; all when not given.

    Raises:
        ValueError: as `judge_room`.
    """
    shown = {
        name: replace(one, result=replaced.get(name, one.result))
        for name, one in judged.results.items()
    }
    return _judged_room(judged.room, shown, only)


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


def _judged_room(
    room: str, shown: Mapping[str, Shown], only: Collection[str] | None = None
) -> Judged:
    datasets = {n: one.result.dataset for n, one in shown.items() if one.result is not None}
    known = {c: claim for c, claim in claims().items() if room_of(claim) == room}
    found: dict[str, Any] = {}
    values: dict[str, Any] = {}
    reads: dict[str, tuple[str, ...]] = {}
    problems: dict[str, str] = {}
    asked: dict[str, tuple[Reading, Mapping[str, Any]]] = {}
    readings = {reading.name: reading for reading in readings_of(room)}
    for reading in readings.values():
        if only is not None and reading.name not in only:
            continue
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
            values[reading.name] = given
    written = _values_of(room, readings)
    scope = Scope(
        datasets,
        {name: one.text for name, one in written.items()},
        _numbers(values, asked),
        arguments={name: reading.asks for name, (reading, _) in asked.items()},
        constants={n: x for n, x in vars(measure_module(room)).items() if n.isupper()},
        written_at={name: one.where for name, one in written.items()},
    )
    judged = Judged(
        room,
        found,
        {name: _value(name, given) for name, given in values.items()},
        shown,
        reads,
        problems,
        asked,
        scope,
    )
    for name, one in written.items():
        reads[name] = () if only is not None else reads_of(judged, one)
    for claim in known.values():
        if claim.is_written and (only is None or claim.id in only):
            _judge_written(claim, judged, found)
    for name, one in written.items() if only is None else ():
        if _ready(judged, name):
            _evaluated(judged, one)
    judged = replace(judged, records=with_chapter_verdicts(found))
    scope.statistics = lambda path: _statistic(judged, path)
    return judged


def _values_of(room: str, readings: Mapping[str, Reading]) -> dict[str, Written]:
    """The expressions that a room's file of claims names."""
    path = chapters_folder() / room / "claims.toml"
    if not path.is_file():
        return {}
    found = parse_values(path.read_text("utf-8"), f"{room}/{path.name}")
    for name in found.keys() & readings.keys():
        raise ValueError(
            f"{found[name].where}: expected a name that no function of the room has, got {name}"
        )
    return found


def _numbers(
    values: Mapping[str, Any], asked: Mapping[str, tuple[Reading, Mapping[str, Any]]]
) -> dict[str, Callable[..., Any]]:
    """Functions of the room as expressions call them."""

    def fixed(value: Any) -> Callable[..., Any]:
        return lambda: value

    def called(reading: Reading, read: Mapping[str, Any]) -> Callable[..., Any]:
        return lambda *words: reading.function(**read, **reading.answered(words))

    return {
        **{name: fixed(value) for name, value in values.items()},
        **{name: called(*each) for name, each in asked.items()},
    }


def _ready(judged: Judged, name: str) -> bool:
    """Return whether all results that a claim or value stands on are there; else the problem is noted."""
    for one in judged.reads[name]:
        if judged.results[one].result is None:
            cast(dict[str, str], judged.problems)[name] = judged.results[one].why
            return False
    return True


def _judge_written(claim: Claim, judged: Judged, found: dict[str, Any]) -> None:
    """Judge a claim whose evidence stands in the file of claims."""
    if claim.id in judged.reads:
        raise ValueError(
            f"{judged.room}: expected evidence for {claim.id} from a function or in claims.toml, got both"
        )
    parts = {"": (claim.rule, claim.evidence)} if claim.rule is not None else {}
    parts |= {part.name: (part.rule, part.evidence) for part in claim.parts}
    lacking = [name for name, (_, evidence) in parts.items() if not evidence]
    if lacking:
        raise ValueError(
            f"{judged.room}/claims.toml: expected evidence for all parts of {claim.id}, got none for "
            f"{', '.join(lacking)}"
        )
    texts = [one for _, evidence in parts.values() for many in evidence.values() for one in many]
    reads = {name: None for one in texts for name in reads_of(judged, one)}
    order = tuple(name for name in judged.results if name in reads)
    cast(dict[str, tuple[str, ...]], judged.reads)[claim.id] = order
    if not _ready(judged, claim.id):
        return
    given = {
        name: _given(judged, rule, evidence)
        for name, (rule, evidence) in parts.items()
        if rule is not None
    }
    results = [judged.results[name] for name in order]
    found[claim.id] = _record(claim, given.get("", given), results)


def _given(judged: Judged, rule: Rule, evidence: Evidence) -> dict[str, Any]:
    """The values that a rule asks for, from expressions."""
    found: dict[str, np.ndarray] = {}
    for name, many in evidence.items():
        arrays = [_evaluated(judged, one) for one in many]
        for one, array in zip(many, arrays, strict=True):
            if rule.per_seed and array.ndim > 1:
                raise ValueError(
                    f"{one.where}: expected one value a seed from {one.text!r}, got the axes "
                    f"{', '.join(map(str, array.dims))}; choose along them, or reduce them"
                )
        found[name] = np.concatenate([np.ravel(array.values) for array in arrays])
    if rule.per_seed:  # a constant counts for every seed
        most = max(len(values) for values in found.values())
        found = {n: np.repeat(v, most) if len(v) == 1 else v for n, v in found.items()}
    if set(rule.value_names) == {"successes", "trials"} and "trials" not in found:
        runs = found["successes"]
        found = {"successes": np.array([int(runs.sum())]), "trials": np.array([runs.size])}
    return found


def judged_by(
    judged: Judged, where: str, rule: Rule, evidence: Evidence
) -> tuple[dict[str, Any] | None, str]:
    """Judge values of a room by a rule that none of its claims declares.

    Args:
        judged: the room.
        where: what is judged, for errors.
        rule: what it is judged by.
        evidence: the rule's values, as expressions over the room's results.

    Returns:
        Rule, values and statistics, as a part of a record has them; and nothing, or None and why there is none.

    Raises:
        ValueError: an expression names what is not there, or gives values that the rule does not take.
    """
    for one in (one for many in evidence.values() for one in many):
        for name in reads_of(judged, one):
            if judged.results[name].result is None:
                return None, judged.results[name].why
    return _part(where, rule, _given(judged, rule, evidence)), ""


def _evaluated(judged: Judged, written: Written) -> Any:
    try:
        return judged.scope.evaluate(written.text)
    except ExpressionError as error:
        raise ValueError(f"{written.where}: {error}") from None


def _statistic(judged: Judged, path: str) -> Any:
    """A value or statistic of a claim, for an expression."""
    known = dict(records.paths({"records": judged.records, "values": {}}))
    if path not in known:
        raise ExpressionError(f"no statistic {path!r}; {nearest(path, known)}")
    return known[path]


def with_chapter_verdicts(found: dict[str, Any]) -> dict[str, Any]:
    """Records with their verdicts after Holm's correction over all experiments of the chapter.

    ``verdict_alone`` is by the claim's own rule, ``verdict_own`` after the correction, and ``verdict`` after
    what a second set of seeds says of it.
    """
    for claim_id, (verdict, parts) in chapter_verdicts(found).items():
        record = found[claim_id]
        record["verdict_alone"], record["verdict"] = record["verdict"], verdict.value
        own = combine(
            {name: each for name, (each, _) in parts.items()}, record.get("combine", LEVELS)
        )
        record["verdict_own"] = named(own, record).value
        for name, part in parts_of(record).items():
            part["statistics"]["verdict_holm"] = parts[name][0].value
            part["statistics"]["p_holm"] = parts[name][1]
    return found


def verdicts_of(room: str, replaced: Mapping[str, Result] | None = None) -> dict[str, str]:
    """Claim -> verdict."""
    return {c: record["verdict"] for c, record in judge_room(room, replaced).records.items()}


def value_of(judged: Judged, text: str) -> str:
    """The words for an expression of the prose, and perhaps, behind a colon, a format.

    - ``reversal.accuracy[arm=random]|mean:.3f``: any expression, see `evidence.expressions`; where more than
      one value remains, their mean is shown;
    - ``floor:.2f``: a value that the room declares;
    - ``worth(lag):.0%``: one that takes arguments;
    - ``DA-2.8.random.effect:.3f``: values and statistics of a claim, see `evidence.records.format_value`.

    Raises:
        KeyError: a path that leads nowhere.
        ValueError: an expression that cannot be read or names what is not there, a format that does not fit, or
            a result that is missing.
    """
    expression, spec = split_format(text)
    if path := statistic_in(expression):
        if (why := judged.problems.get(claim_of(judged, path) or "")) is not None:
            raise ValueError(why)
        payload = {"records": judged.records, "values": {}}
        return records.format_value(payload, text)
    for name in results_of(judged, expression):
        if judged.results[name].result is None:
            raise ValueError(judged.results[name].why)
    values = judged.scope.evaluate(expression)
    flat = values.values.ravel()
    given = [v.item() for v in (flat.astype(np.int64) if flat.dtype.kind == "b" else flat)]
    if not given:
        raise ValueError(f"expected at least one value of {expression!r}, got none")
    if values.dims == ("end",):
        return " to ".join(records.number_text(end, spec) for end in given)
    return records.format_value({"records": {}, "values": {"it": given}}, f"it:{spec}")


# Records ------------------------------------------------------------------------------------------


def room_of(claim: Claim) -> str:
    """The room that judges a claim: the one whose file holds it, or else that of its chapter."""
    return claim.room or claim.chapter.rpartition("/")[2].replace("-", "_")


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
        "said_of": claim.said_of,
        "misprint": claim.misprint,
        "other_seeds": claim.other_seeds,
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
        "verdict": named(combine(verdicts, claim.combine), record).value,
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
