"""The differences between two sets of results: values, intervals and verdicts.

A set lies in a folder, `<room>/results/<measurement>.json`, as the chapters' own does and that of a GPU
(`MEASURED_RESULTS_DIR`), or in a commit of the repository. Both sets are judged by the rules of the code as it
is now, so that a difference comes from the values alone.
"""

from __future__ import annotations

import io
import math
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from measured_book.evidence.results import (
    Result,
    chapters_folder,
    differing,
    read_result,
    result_files,
)
from measured_book.evidence.verdicts import parts_of
from measured_book.measuring.comparing import Comparison, compare
from measured_book.measuring.judged import Judged
from measured_book.measuring.judging import judge_results
from measured_book.measuring.measurement import Measurement, measurements_of, rooms
from measured_book.measuring.trials import Trial

Set = Mapping[str, Mapping[str, Result]]
"""A set of results: room -> measurement -> result."""
_KEPT = "lib/measured_book/rooms"
"""Where the results that pages show lie in a commit."""
STEADY, NOISE = 1e-3, 1e-5
"""By what share of itself, and beside that by how much, rounding may move an effect."""
SHOWN = 60
"""How many rows of a table are shown; what is left is counted."""


@dataclass(frozen=True)
class Outcome:
    """What a set of results says about a claim, or one part of it.

    Attributes:
        verdict: after Holm's correction over the chapter.
        effect, interval: None where the rule gives none.
    """

    verdict: str
    effect: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Move:
    """A claim, or one part of it, on which the two sets disagree.

    Attributes:
        room, claim, part: which; the part is empty for a claim of one rule and for the claim as a whole.
        before, after: what the sets say.
    """

    room: str
    claim: str
    part: str
    before: Outcome
    after: Outcome


@dataclass(frozen=True)
class Compared:
    """One measurement that both sets have.

    Attributes:
        measurement: which.
        before, after: its results.
        comparison: how many of the values are equal, within the spread of the seeds, and outside; None where
            the results differ in form or have no seed in common.
        why: what cannot be compared; empty where all can.
    """

    measurement: Measurement
    before: Result
    after: Result
    comparison: Comparison | None
    why: str = ""


@dataclass
class Changes:
    """What differs between two sets of results.

    Attributes:
        compared: the measurements that both have.
        only_before, only_after: those that one of them has.
        pairs: what both say about each claim, and each part of one.
        verdicts: claims with another verdict.
        intervals: claims, or parts, whose interval moved: the effect of one set lies outside of the other's.
        declared: how many measurements there are, in either set or in none.
        judged: how many claims were judged in both sets.
        unjudged: rooms that could not be judged, and why.
    """

    compared: list[Compared] = field(default_factory=list)
    only_before: list[str] = field(default_factory=list)
    only_after: list[str] = field(default_factory=list)
    pairs: list[Move] = field(default_factory=list)
    verdicts: list[Move] = field(default_factory=list)
    intervals: list[Move] = field(default_factory=list)
    declared: int = 0
    judged: int = 0
    unjudged: dict[str, str] = field(default_factory=dict)

    def count(self, what: str) -> int:
        """How many values are 'equal', 'within' the spread of the seeds, or 'outside'."""
        told = (one.comparison for one in self.compared)
        return sum(getattr(each, what) for each in told if each is not None)


# Sets of results ----------------------------------------------------------------------------------


def results_in(folder: Path) -> dict[str, dict[str, Result]]:
    """The results in a folder, room by room; none where there is no such folder.

    What lies in the folder of a room that measures nothing, such as tables of a comparison, is no result.

    Raises:
        DamagedResultError: a file cannot be trusted.
    """
    found = {}
    for own in sorted(folder.glob("*/results")):
        room = chapters_folder() / own.parent.name
        if room.is_dir() and not (room / "measure.py").is_file():
            continue
        if files := result_files(own):
            found[own.parent.name] = {path.stem: read_result(path) for path in files}
    return found


@contextmanager
def set_at(place: str, repository: Path | None = None) -> Iterator[Path]:
    """The folder of a set of results: an existing folder, or a temporary one with the files of a commit.

    Args:
        place: a folder; a commit, for the results that pages show; or `COMMIT:FOLDER`.
        repository: a folder in the repository; the working directory when not given.

    Raises:
        ValueError: there is neither such a folder nor such a commit.
    """
    if (folder := Path(place)).is_dir():
        yield folder
        return
    ref, _, within = place.partition(":")
    within = within.strip("/") or _KEPT
    command = ["git", "archive", "--format=tar", f"{ref}:{within}"]
    try:
        done = subprocess.run(command, cwd=repository, capture_output=True, check=False)
        said = done.stderr.decode(errors="replace").strip()
    except OSError as error:
        raise ValueError(f"expected a folder or git to read {place!r} with, got {error}") from None
    if done.returncode:
        raise ValueError(f"expected a folder, a commit or COMMIT:FOLDER, got {place!r} ({said})")
    with tempfile.TemporaryDirectory() as folder_name:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            for member in archive:
                if member.isfile() and "/results/" in member.name:
                    archive.extract(member, folder_name, filter="data")
        yield Path(folder_name)


def kept() -> dict[str, dict[str, Result]]:
    """The results that pages show."""
    return results_in(chapters_folder())


# Comparing ----------------------------------------------------------------------------------------


def changes(before: Set, after: Set, chosen: Sequence[str] = ()) -> Changes:
    """Compare two sets of results.

    Where one of them lacks a measurement that claims of a room are judged by, the other's stands in for it.

    Args:
        before, after: the sets.
        chosen: rooms; all that declare measurements when none is named.
    """
    found = Changes()
    for room in chosen or rooms():
        old, new = before.get(room, {}), after.get(room, {})
        declared = measurements_of(room)
        found.declared += len(declared)
        found.only_before += [f"{room}.{name}" for name in old if name in declared.keys() - new]
        found.only_after += [f"{room}.{name}" for name in new if name in declared.keys() - old]
        both = [name for name in declared if name in old and name in new]
        found.compared += [_compared(declared[name], old[name], new[name]) for name in both]
        if both:
            _judge(room, {**new, **old}, {**old, **new}, found)
    return found


def _compared(measurement: Measurement, old: Result, new: Result) -> Compared:
    if names := differing(old, new.variables):
        why = f"other names or shapes: {', '.join(names)}"
        return Compared(measurement, old, new, None, why)
    common = [seed for seed in new.seeds if seed in old.seeds]
    if not common:
        return Compared(measurement, old, new, None, "no seed in common")
    trials = []
    for seed in common:
        index = new.seeds.index(seed)
        values = {n: (a[1:], np.asarray(v[index])) for n, (a, v) in new.variables.items()}
        trials.append(Trial(seed, values))
    bare = Result(
        old.room, old.name, old.what, old.variables, old.coords
    )  # values, no first losses
    return Compared(measurement, old, new, compare(bare, trials, exact=False))


def _judge(
    room: str, before: Mapping[str, Result], after: Mapping[str, Result], found: Changes
) -> None:
    try:
        old, new = (outcomes(judge_results(room, each)) for each in (before, after))
    except Exception as error:  # results of another form do not fit the functions that read them
        found.unjudged[room] = f"{type(error).__name__}: {error}"
        return
    for claim, parts in old.items():
        if claim not in new:
            continue
        found.judged += 1
        for part, one in parts.items():
            other = new[claim].get(part)
            if other is None:
                continue
            move = Move(room, claim, part, one, other)
            found.pairs.append(move)
            if not part and one.verdict != other.verdict:
                found.verdicts.append(move)
            if moved(one, other):
                found.intervals.append(move)


def outcomes(judged: Judged) -> dict[str, dict[str, Outcome]]:
    """Claim -> part -> what came out; the part named "" has the verdict of the whole claim."""
    found: dict[str, dict[str, Outcome]] = {}
    for claim, record in judged.records.items():
        found[claim] = {"": Outcome(record["verdict"])}
        for name, part in parts_of(record).items():
            told = part["statistics"]
            verdict = told.get("verdict_holm", told["verdict"]) if name else record["verdict"]
            found[claim][name] = Outcome(verdict, _number(told["effect"]), _pair(told["interval"]))
    return found


def moved(before: Outcome, after: Outcome) -> bool:
    """Return whether the effect of one lies outside the interval of the other by more than rounding.

    Where a rule gives no interval, the effects themselves are compared.
    """
    if before.effect is None or after.effect is None:
        return False
    slack = STEADY * max(abs(before.effect), abs(after.effect)) + NOISE
    if not math.isfinite(slack):
        return before.effect != after.effect
    if before.interval is None or after.interval is None:
        return abs(before.effect - after.effect) > slack
    pairs = ((before.effect, after.interval), (after.effect, before.interval))
    return any(not low - slack <= effect <= high + slack for effect, (low, high) in pairs)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _pair(value: Any) -> tuple[float, float] | None:
    if value is None or any(one is None for one in value):
        return None
    low, high = value
    return float(low), float(high)


# In words -----------------------------------------------------------------------------------------


def as_markdown(found: Changes) -> str:
    """The differences as Markdown, for the text of a pull request."""
    intervals, verdicts = len(found.intervals), len(found.verdicts)
    lines = [
        f"**{_counted(intervals, 'interval')} moved, {_counted(verdicts, 'verdict')} flipped** "
        f"(of {_counted(found.judged, 'claim')} judged with both).",
        "",
    ]
    total = sum(found.count(what) for what in ("equal", "within", "outside"))
    lines += [
        f"{_counted(len(found.compared), 'measurement')} compared: of {total:,} values "
        f"{found.count('equal'):,} are equal, {found.count('within'):,} lie within the spread of the seeds, "
        f"{found.count('outside'):,} outside.",
        "",
    ]
    for word, results in (("Before", "before"), ("After", "after")):
        if told := where_from(getattr(one, results) for one in found.compared):
            lines.append(f"- {word}: {told}")
    lines.append("")
    if found.verdicts:
        lines += ["### Verdicts that flipped", ""]
        lines += _table(
            ("claim", "chapter", "before", "after"),
            [(m.claim, m.room, m.before.verdict, m.after.verdict) for m in found.verdicts],
        )
    if found.intervals:
        lines += ["### Intervals that moved", ""]
        lines += _table(
            ("claim", "part", "chapter", "before", "after"),
            [
                (m.claim, m.part, m.room, effect_text(m.before), effect_text(m.after))
                for m in found.intervals
            ],
        )
    outside = [one for one in found.compared if one.comparison and one.comparison.outside]
    if outside:
        rows = [
            (one.measurement.label, one.comparison.farthest if one.comparison else "")
            for one in outside
        ]
        lines += ["### Values outside the spread of the seeds", ""]
        lines += _table(("measurement", "values"), rows)
    for title, names in (
        ("Not compared", [f"{o.measurement.label}: {o.why}" for o in found.compared if o.why]),
        ("Not judged", [f"{room}: {why}" for room, why in found.unjudged.items()]),
        ("Only before", found.only_before),
        ("Only after", found.only_after),
    ):
        if names:
            lines += [f"### {title}", "", *_listed(names), ""]
    return "\n".join(lines).rstrip() + "\n"


def effect_text(outcome: Outcome) -> str:
    """An effect and its interval as text."""
    if outcome.effect is None:
        return outcome.verdict
    effect = f"{outcome.effect:.4g}"
    if outcome.interval is None:
        return effect
    return f"{effect} [{outcome.interval[0]:.4g}, {outcome.interval[1]:.4g}]"


def where_from(results: Iterable[Result]) -> str:
    """Where and when the results were measured, as text; empty without results."""
    devices: dict[str, int] = {}
    torches, pythons, dates = set(), set(), set()
    seconds = 0.0
    for one in results:
        told = one.provenance
        device = str(told.get("device", "an unknown device"))
        devices[device] = devices.get(device, 0) + 1
        versions = told.get("versions", {})
        torches.add(str(versions.get("torch", "?")))
        pythons.add(str(versions.get("python", "?")))
        dates.add(str(told.get("date", ""))[:10])
        seconds += float(told.get("seconds", 0.0))
    if not devices:
        return ""
    first, last = min(dates), max(dates)
    when = first if first == last else f"{first} to {last}"
    return (
        f"{', '.join(f'{name} ({count})' for name, count in sorted(devices.items()))}; torch "
        f"{', '.join(sorted(torches))}; Python {', '.join(sorted(pythons))}; {when}; {seconds / 3600:.1f} h of "
        "computing in all"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    shown = [line(head), line(["---"] * len(head)), *map(line, rows[:SHOWN]), ""]
    return shown + _rest(len(rows))


def _listed(names: Sequence[str]) -> list[str]:
    return [f"- {name}" for name in names[:SHOWN]] + _rest(len(names))


def _rest(count: int) -> list[str]:
    return [f"... and {count - SHOWN} more.", ""] if count > SHOWN else []


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
