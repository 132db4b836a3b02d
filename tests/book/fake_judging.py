"""A room that is judged without any measuring: what pages need of `measured_book.measuring.judging`.

`keep` writes its results, as files of the form that rooms have, and says whether they hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from measured_book.evidence import records, registry
from measured_book.evidence.results import Result, read_result, write_result
from measured_book.evidence.rules import further_details, judge
from measured_book.evidence.verdicts import Verdict, chapter_verdicts, combine, parts_of

ROOM = "some_room"
FURTHER = "another_room"
"""A second room, which has a result, a number and a claim, and may feed the same page."""
ARMS = ["none", "random", "sinusoidal"]
READS = {
    "CS-1.3": ("identity",),
    "CS-1.5": ("identity",),
    "DD-7.7": ("reversal",),
    "CS-2.9": ("identity",),
    "floor": ("reversal",),
}
PROVENANCE = {
    "commit": "0123456789abcdef",
    "digest": "d",
    "device": "cpu, Some Processor, 2 cores",
    "kind": "cpu",
    "date": "2026-02-03T04:05:06+00:00",
    "seconds": 3.0,
}
_PATH = re.compile(r"(\w+)\.(\w+)(?:\[(\w+)=(\w+)\])?")


@dataclass
class _Kept:
    folder: Path = Path()
    claims: Path = Path()
    states: dict[str, tuple[str, str]] = field(default_factory=dict)


_kept = _Kept()


def keep(root: Path, states: Mapping[str, tuple[str, str]] | None = None) -> None:
    """Write the room's results into a book's folder; `states` says of which results they do not hold."""
    _kept.folder, _kept.claims = root / "rooms" / ROOM / "results", root / "claims"
    _kept.states = dict(states or {})
    rng = np.random.default_rng(0)
    accuracy = np.array([0.3, 0.93, 0.95]) + rng.normal(0, 0.01, (10, 3))
    _write(
        "reversal",
        "How well a small model reverses a sequence",
        {"accuracy": (("seed", "arm"), accuracy), "loss": (("seed",), rng.uniform(1, 2, 10))},
    )
    _write(
        "identity",
        "Deviation of the similarity from a function of the offset",
        {
            "error": (("seed",), rng.normal(0, 1e-14, 10)),
            "control": (("seed",), rng.uniform(0.2, 0.4, 10)),
        },
    )


def _write(name: str, what: str, variables: Any) -> None:
    coords = {"seed": list(range(10)), "arm": ARMS}
    used = {axis for axes, _ in variables.values() for axis in axes}
    coords = {axis: labels for axis, labels in coords.items() if axis in used}
    path = _kept.folder / f"{name}.json"
    if not path.exists():
        write_result(Result(ROOM, name, what, variables, coords, PROVENANCE), path)


def measure_again(root: Path, error: float) -> None:
    """Put a result in the place of the kept one in which the largest error is another."""
    path = root / "rooms" / ROOM / "results" / "identity.json"
    then = read_result(path)
    axes, values = then.variables["error"]
    changed = values * (error / np.abs(values).max())
    variables = {**then.variables, "error": (axes, changed)}
    write_result(Result(ROOM, then.name, then.what, variables, then.coords, PROVENANCE), path)


def _shown(name: str) -> Any:
    state, why = _kept.states.get(name, ("current", ""))
    result = None if state == "damaged" else read_result(_kept.folder / f"{name}.json")
    return SimpleNamespace(
        name=name,
        what="What was kept of it is damaged" if result is None else result.what,
        state=state,
        why=why,
        result=result,
        seeds=[] if result is None else result.seeds,
        provenance={} if result is None else result.provenance,
        path=None if result is None else result.path,
    )


def judge_room(room: str) -> Any:
    """Judge the claims that the tiny book's pages hold."""
    if room == FURTHER:
        return _judge_further()
    if room != ROOM:
        raise ValueError(f"expected a chapter that declares measurements ({ROOM}), got {room!r}")
    results = {name: _shown(name) for name in ("reversal", "identity")}
    found: dict[str, Any] = {}
    given: dict[str, Any] = {}
    values: dict[str, Any] = {}
    if (one := results["identity"].result) is not None:
        variables = {name: values for name, (_, values) in one.variables.items()}
        given |= {"CS-1.3": variables, "CS-1.5": {"value": np.array([0.0, 3.0, -1.0])}}
        given["CS-2.9"] = {f"part{number}": {"value": np.array([1.0])} for number in range(3)}
    if (one := results["reversal"].result) is not None:
        accuracy = one.variables["accuracy"][1]
        values["floor"] = float(one.variables["loss"][1].min())
        given["DD-7.7"] = {
            "sinusoidal": {"treatment": -accuracy[:, 2], "baseline": -accuracy[:, 0]},
            "alibi": {"treatment": accuracy[:, 1], "baseline": accuracy[:, 0]},
        }
    for claim_id, claim in registry.read_claims(_kept.claims).items():
        if claim_id in given:
            found[claim_id] = _record(claim, given[claim_id])
    for claim_id, (verdict, parts) in chapter_verdicts(found).items():
        found[claim_id]["verdict_alone"] = found[claim_id]["verdict"]
        found[claim_id]["verdict"] = verdict.value
        for name, part in parts_of(found[claim_id]).items():
            part["statistics"] |= {"verdict_holm": parts[name][0].value, "p_holm": parts[name][1]}
    return SimpleNamespace(records=found, values=values, results=results)


def _judge_further() -> Any:
    claims = registry.read_claims(_kept.claims)
    given = {"CS-2.8": {"value": np.array([0.0])}}
    found = {name: _record(claims[name], given[name]) for name in given.keys() & claims.keys()}
    shown = _shown("identity")
    shown.state, shown.why = _kept.states.get(f"{FURTHER}/identity", ("current", ""))
    return SimpleNamespace(records=found, values={"ceiling": 4.0}, results={"identity": shown})


def _record(claim: registry.Claim, given: Any) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": claim.id,
        "combine": claim.combine,
        "axis": claim.axis,
        "seeds": list(range(10)) if claim.seeds else None,
    }
    if claim.rule is not None:
        record |= _part(claim.rule, given)
    else:
        record["parts"] = [
            {"name": part.name, "label": part.label, **_part(part.rule, given[part.name])}
            for part in claim.parts
        ]
    verdicts = {n: Verdict(p["statistics"]["verdict"]) for n, p in parts_of(record).items()}
    told = {"device": "cpu, Some Processor, 2 cores", "date": "2026-02-03T04:05:06+00:00"}
    return record | told | {"verdict": combine(verdicts, claim.combine).value}


def _part(rule: Any, given: Any) -> dict[str, Any]:
    one = judge(rule, given)
    return {
        "rule": rule.as_dict(),
        "values": {name: np.asarray(value).tolist() for name, value in given.items()},
        "statistics": {
            "verdict": one.verdict.value,
            "effect": one.effect,
            "interval": None if one.interval is None else list(one.interval),
            "p": one.p,
            "details": {**one.details, **further_details(rule, given)},
        },
    }


def value_of(judged: Any, expression: str) -> str:
    """Format a value as the real module does, for one label at most."""
    names = results_of(judged, expression)
    for name in names:
        if judged.results[name].result is None:
            raise ValueError(judged.results[name].why)
    path, rest = re.fullmatch(r"([^|:\[]+(?:\[[^\]]*\])?)(.*)", expression).groups()  # type: ignore[union-attr]
    match = _PATH.fullmatch(path)
    if match is None or match[1] not in judged.results:
        return records.format_value(
            {"records": judged.records, "values": judged.values}, expression
        )
    result = judged.results[match[1]].result
    axes, values = result.variables[match[2]]
    if match[3]:
        values = np.take(values, result.coords[match[3]].index(match[4]), axes.index(match[3]))
    return records.format_value(
        {"records": {}, "values": {"it": values.ravel().tolist()}}, f"it{rest}"
    )


def results_of(judged: Any, expression: str) -> tuple[str, ...]:
    """Say what an expression stands on."""
    name = re.split(r"[|:\[]", expression)[0]
    first = name.partition(".")[0]
    if first in judged.results:
        return (first,)
    return next((READS[one] for one in READS if name == one or name.startswith(f"{one}.")), ())
