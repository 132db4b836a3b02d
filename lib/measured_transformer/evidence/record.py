"""Recording measurements: judge values by their declared rule and leave the result where it was made.

In a notebook the result becomes the output of its cell: a few lines for the reader, and the whole
record as JSON in the output's metadata under ``measured``, from where `records.payloads` gathers it
once the chapter has passed. In a plain Python script the lines are printed.

Metadata of `record`, all values in full precision::

    {"kind": "record", "id": ..., "chapter": ..., "claim": {...}, "combine": ..., "axis": ...,
     "verdict": ..., "seeds": [...],
     "rule": {...}, "values": {name: [...]}, "statistics": {...},         # a claim with one rule
     "parts": [{"name", "label", "rule", "values", "statistics"}, ...],   # or a claim with parts
     "profile", "seed_offset", "device", "versions", "seconds", "date"}

where ``statistics`` holds ``verdict``, ``effect``, ``interval`` and ``p`` (null for exact rules)
and ``details``. What the profile leaves to the full run has no values, the verdict *inconclusive*
and ``"left": true`` among its statistics, without effect and interval. Metadata of `report` is
``{"kind": "report", "values": {name: number or list}, ...}`` with the same last line.
"""

from __future__ import annotations

import html
import math
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from measured_transformer.evidence.profile import Profile, profile
from measured_transformer.evidence.records import number_text
from measured_transformer.evidence.registry import Claim, Rule
from measured_transformer.evidence.registry import claim as find_claim
from measured_transformer.evidence.rules import further_details, judge, numbers, plain
from measured_transformer.evidence.verdicts import Verdict, combine, parts_of

LARGEST = 5000
_STARTED = time.perf_counter()


@dataclass(frozen=True)
class Recorded:
    """A judged claim: its verdict, and the record as plain data."""

    verdict: Verdict
    payload: Mapping[str, Any] = field(repr=False)

    def _ipython_display_(self) -> None:
        """Show nothing: `record` has shown it already, wherever in the cell it was called."""


@dataclass(frozen=True)
class Reported:
    """Measured values that belong to no claim."""

    values: Mapping[str, Any]

    def _ipython_display_(self) -> None:
        """Show nothing: `report` has shown it already."""


def record(
    claim_id: str,
    parts: Mapping[str, Mapping[str, object]] | None = None,
    /,
    *,
    seeds: Sequence[int] | None = None,
    **values: object,
) -> Recorded:
    """Judge values by the rule that the registry declares for a claim, and show and keep the result.

    Args:
        claim_id: an id of the registry.
        parts: for a claim with parts, the values of each part by its name; of those only that
            this profile measures.
        seeds: the seeds behind the values; by default the profile's evaluation seeds, as many as
            the claim declares.
        **values: for a claim with one rule, numbers or 1-d arrays (Python, numpy, torch) by the
            names that the rule asks for; none where this profile leaves the claim to the full run.

    Raises:
        KeyError: the registry has no such claim.
        ValueError: a cited or planned claim, values or parts other than the rule asks for, another
            number of values than the seeds declared, values that are not finite.
    """
    found = find_claim(claim_id)
    now = profile()
    if found.kind == "cited":
        raise ValueError(f"claim {claim_id} is cited, so there is nothing to record for it")
    if found.status == "planned":
        raise ValueError(
            f"expected a covered claim, got {claim_id}, which is planned; "
            'give it status = "covered" and the verdict that the prose discusses first'
        )
    used = _seeds(found, now, seeds)
    payload: dict[str, Any] = {
        "kind": "record",
        "id": found.id,
        "chapter": found.chapter,
        "claim": _about(found, now),
        "combine": found.combine,
        "axis": found.axis,
        "seeds": used,
    }
    payload |= (
        _one_rule(found, now, parts, values, used)
        if found.rule is not None
        else {"parts": _several_rules(found, now, parts, values, used)}
    )
    verdict = combine(
        {n: Verdict(part["statistics"]["verdict"]) for n, part in parts_of(payload).items()},
        found.combine,
    )
    payload |= {"verdict": verdict.value, **_circumstances(now)}
    _show(_record_text(payload), _record_html(payload), payload)
    return Recorded(verdict, payload)


def _one_rule(
    found: Claim,
    now: Profile,
    parts: object,
    values: Mapping[str, object],
    used: list[int] | None,
) -> dict[str, Any]:
    """Rule, values and statistics of a claim with one rule."""
    assert found.rule is not None
    if parts is not None:
        raise ValueError(
            f"claim {found.id} has one rule: expected the values "
            f"{', '.join(found.rule.value_names)} by name, got parts"
        )
    if not found.left_at(now.name):
        return _measured(found.id, found.rule, values, used if found.seeds else None)
    if values:
        raise ValueError(
            f"claim {found.id} is left to the full run: expected no value at profile "
            f"{now.name}, got {', '.join(values)}"
        )
    return _left(found.rule)


def _several_rules(
    found: Claim,
    now: Profile,
    parts: Mapping[str, Mapping[str, object]] | None,
    values: Mapping[str, object],
    used: list[int] | None,
) -> list[dict[str, Any]]:
    """Name, rule, values and statistics of each part of a claim."""
    left = found.left_at(now.name)
    expected = [part.name for part in found.parts if part.name not in left]
    given = {} if parts is None and not expected else parts
    if values or given is None or set(given) != set(expected):
        got = ", ".join(list(parts or {}) + list(values)) or "none"
        others = f"; {now.name} leaves {', '.join(left)} to the full run" if left else ""
        raise ValueError(
            f"claim {found.id} has parts: expected the values of "
            f"{', '.join(expected) or 'none'} in a dictionary, got {got}{others}"
        )
    seeds = used if found.seeds else None
    return [
        {
            "name": part.name,
            "label": part.label,
            **(
                _left(part.rule)
                if part.name in left
                else _measured(f"{found.id}, part {part.name}", part.rule, given[part.name], seeds)
            ),
        }
        for part in found.parts
    ]


def report(**values: object) -> Reported:
    """Show and keep measured values that the prose mentions and that belong to no claim.

    Args:
        **values: numbers or 1-d arrays (Python, numpy, torch); booleans count as 0 and 1.

    Raises:
        ValueError: no value, a name that is not an identifier, more than one axis, values that are
            no real numbers or not finite.
    """
    if not values:
        raise ValueError("expected at least one value to report, got none")
    kept: dict[str, Any] = {}
    for name, value in values.items():
        if not name.isidentifier():
            raise ValueError(f"expected an identifier such as min_distance as name, got {name!r}")
        numbers(name, value)  # raises where the values are not usable
        array = plain(name, value)
        if array.dtype.kind == "b":
            array = array.astype(int)
        kept[name] = array.tolist()
        _check_size(name, kept[name])
    payload = {"kind": "report", "values": kept, **_circumstances(profile())}
    lines = [f"{name} = {_short(value)}" for name, value in kept.items()]
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    _show("\n".join(lines), _box("Measured values", f"<ul>{items}</ul>"), payload)
    return Reported(kept)


def _seeds(found: Claim, now: Profile, seeds: Sequence[int] | None) -> list[int] | None:
    if seeds is None:
        return (
            None
            if found.seeds is None
            else now.seeds(quick=found.seeds["quick"], full=found.seeds["full"])
        )
    listed = [int(seed) for seed in seeds]
    if len(set(listed)) != len(listed):
        raise ValueError(f"claim {found.id}: expected each seed once, got {listed}")
    if found.seeds is not None and len(listed) != found.seeds[now.name]:
        raise ValueError(
            f"claim {found.id} declares {found.seeds[now.name]} seeds for profile {now.name}, "
            f"got {len(listed)}"
        )
    return listed


def _measured(
    where: str, rule: Rule, values: Mapping[str, object], seeds: list[int] | None
) -> dict[str, Any]:
    """Return rule, values and statistics of one rule as plain data."""
    try:
        judgement = judge(rule, values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    kept = {name: numbers(name, value).tolist() for name, value in values.items()}
    for name, value in kept.items():
        _check_size(f"{where}: {name}", value)
        if rule.per_seed and seeds is not None and len(value) != len(seeds):
            raise ValueError(
                f"{where}: {name}: expected {len(seeds)} values, one for each seed declared at "
                f"this profile, got {len(value)}"
            )
    return {
        "rule": rule.as_dict(),
        "values": kept,
        "statistics": {
            "verdict": judgement.verdict.value,
            "effect": judgement.effect,
            "interval": None if judgement.interval is None else list(judgement.interval),
            "p": judgement.p,
            "details": {**judgement.details, **further_details(rule, values)},
        },
    }


def _left(rule: Rule) -> dict[str, Any]:
    """Return rule, values and statistics of what this profile leaves to the full run."""
    return {
        "rule": rule.as_dict(),
        "values": {},
        "statistics": {
            "verdict": Verdict.INCONCLUSIVE.value,
            "p": None,
            "details": {},
            "left": True,
        },
    }


def _check_size(name: str, value: object) -> None:
    if isinstance(value, list) and len(value) > LARGEST:
        raise ValueError(
            f"{name}: expected at most {LARGEST} numbers, got {len(value)}; "
            "record the largest of each draw, or another summary, instead"
        )


def _about(found: Claim, now: Profile) -> dict[str, Any]:
    expected = found.expected_at(now.name)
    return {
        "source": found.source,
        "place": found.place,
        "statement": found.statement,
        "kind": found.kind,
        "scope": found.scope,
        "test": found.test,
        "section": found.section,
        "references": list(found.references),
        "expected": None if expected is None else expected.value,
    }


def _circumstances(now: Profile) -> dict[str, Any]:
    return {
        "profile": now.name,
        "seed_offset": now.seed_offset,
        "device": device_name(),
        "versions": _versions(),
        "seconds": round(time.perf_counter() - _STARTED, 3),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name, package in (
        ("torch", "torch"),
        ("numpy", "numpy"),
        ("measured_transformer", "measured-transformer"),
    ):
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def device_name() -> str:
    """Return what this process computes on in words, such as ``cpu, AMD EPYC 7B13, 2 cores``."""
    torch = sys.modules.get("torch")
    asked = os.environ.get("MEASURED_DEVICE", "").strip().lower()
    if torch is not None and asked != "cpu" and torch.cuda.is_available():
        return f"cuda, {torch.cuda.get_device_name(0)}"
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            named = (line.partition(":")[2].strip() for line in lines if "model name" in line)
            model = next(named, model)
    except OSError:
        pass  # not Linux: the platform's own name has to do
    cores = os.cpu_count() or 1
    return f"cpu, {model}, {cores} {'core' if cores == 1 else 'cores'}"


def _show(text: str, markup: str, payload: Mapping[str, Any]) -> None:
    """Publish an output with its metadata in a notebook; print the text anywhere else."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        print(text)
        return
    # Reached through the loaded module: IPython is no dependency of the library.
    ipython.display.publish_display_data(
        data={"text/plain": text, "text/html": markup}, metadata={"measured": dict(payload)}
    )


def _short(value: float | int | list[float | int]) -> str:
    if isinstance(value, list):
        if len(value) == 1:
            return _short(value[0])
        middle = math.fsum(value) / len(value)
        low, high = min(value), max(value)
        return (
            f"{len(value)} values from {number_text(low)} to {number_text(high)}, "
            f"mean {number_text(middle)}"
        )
    return number_text(value)


def _lines(payload: Mapping[str, Any]) -> list[str]:
    """Return the key numbers of a record, a line for each value and part."""
    lines = []
    several = "parts" in payload
    for part in parts_of(payload).values():
        prefix = f"{part['label']}: " if several else ""
        for name, values in part["values"].items():
            lines.append(f"{prefix}{name} = {_short(values)}")
        statistics = part["statistics"]
        if statistics.get("left"):
            lines.append(f"{prefix}left to the full run ({statistics['verdict']})")
            continue
        line = f"{prefix}effect {number_text(statistics['effect'])}"
        if statistics["interval"] is not None:
            low, high = statistics["interval"]
            share = statistics["details"]["confidence"]
            line += f", {share:.0%} interval {number_text(low)} to {number_text(high)}"
        if statistics["p"] is not None:
            line += f", p = {number_text(statistics['p'], '.2g')}"
        if several:
            line += f" ({statistics['verdict']})"
        lines.append(line)
    return lines


def _heading(payload: Mapping[str, Any]) -> str:
    seeds = payload["seeds"]
    sample = "" if seeds is None else f", {len(seeds)} seeds"
    axis = f", by {payload['axis']}" if payload["verdict"] == "conditional" else ""
    return f"{payload['verdict']}{axis} (profile {payload['profile']}{sample})"


def _record_text(payload: Mapping[str, Any]) -> str:
    lines = [f"{payload['id']}  {payload['claim']['statement']}", f"  {_heading(payload)}"]
    return "\n".join([*lines, *(f"  {line}" for line in _lines(payload))])


def _record_html(payload: Mapping[str, Any]) -> str:
    statement = html.escape(payload["claim"]["statement"])
    items = "".join(f"<li>{html.escape(line)}</li>" for line in _lines(payload))
    return _box(
        f"Claim {payload['id']}",
        f"<p><strong>{html.escape(payload['id'])}</strong> {statement}</p>"
        f"<p>Verdict: <strong>{html.escape(_heading(payload))}</strong></p><ul>{items}</ul>",
    )


def _box(label: str, inner: str) -> str:
    """Return markup that takes its colours from the page, so that it reads in light and in dark."""
    style = "border-left: 3px solid currentColor; padding-left: 0.8em"
    return f'<div role="group" aria-label="{html.escape(label)}" style="{style}">{inner}</div>'
