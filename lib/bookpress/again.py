"""Executing chapters of the first edition again, and comparing what their cells report with what is kept.

A test run does so for a share of them, another share with each commit, so that all have their turn.

On the same kind of machine values come back equal, but for the last bits of float64 sums whose order depends
on where in memory their numbers lie (`BITS`). Elsewhere rounding differs, and a training amplifies it: of two
seeds, as most of these chapters have, either may end anywhere among what such trainings give. There a value
counts as within rounding up to `SHARE` of the largest of its name and `SPREADS` times what lies between its
seeds; of a chapter's values one in `FEW` may lie outside, and no verdict may turn into another. That two seeds
decide there what they left open here, or the other way about, is told and is no fault: measured on processors
with AVX2, executed on one with AVX512, up to 6 % of a chapter's values lay outside, and 4 of 191 verdicts of
two seeds became open or stopped being so.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measured_transformer.evidence.verdicts import parts_of

from bookpress import kept, machine, records
from bookpress.chapters import Book, Chapter
from bookpress.jobs import ChapterFailedError, Job
from bookpress.kept import Kept
from bookpress.kernel import Failure, Run

BITS = 1e-9
"""By what share of the largest of its name a value may differ on the same kind of machine."""
ZERO = 1e-12
"""What is nothing but rounding, whatever its size."""
SHARE = 0.01
SPREADS = 3
FEW = 10
OPEN = "inconclusive"


@dataclass
class Repeated:
    """What became of a chapter's values.

    Attributes:
        source: the chapter.
        seconds: what executing it took.
        exact: whether this is the kind of machine that the kept values are of.
        equal: values equal to the last bit.
        within: values that rounding explains.
        outside: all others.
        where: which those are; also names that have no values, or another number of them.
        flipped: claims with another verdict, with both.
    """

    source: str
    seconds: float
    exact: bool
    equal: int = 0
    within: int = 0
    outside: int = 0
    where: list[str] = field(default_factory=list)
    flipped: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All values compared."""
        return self.equal + self.within + self.outside

    @property
    def problem(self) -> str:
        """What is wrong, in words; empty where nothing is."""
        told = [
            f"{claim}: {then} becomes {now}"
            for claim, (then, now) in sorted(self.flipped.items())
            if self.exact or OPEN not in (then, now)
        ]
        if self.outside * FEW > (0 if self.exact else self.total):
            told.append(f"{self.outside} of {self.total} values outside: {', '.join(self.where)}")
        return "; ".join(told)

    @property
    def line(self) -> str:
        """A line of the table."""
        told = f"{self.source:<42} {'executed again':<20} {self.equal:>8} equal {self.within:>7} within"
        told += f" {self.outside:>5} outside {self.seconds:>7.1f} s"
        changed = [f"{claim}: {then} becomes {now}" for claim, (then, now) in self.flipped.items()]
        return f"{told}  {'; '.join([*self.where[:3], *changed])}".rstrip()


def turn_of(book: Book, shares: int) -> dict[Chapter, Kept]:
    """Choose the chapters whose turn it is: of as many shares, equal in seconds, the one for this commit."""
    heads = {c: kept.head(kept.path_of(book.root, c)) for c in book.chapters if c.room is None}
    known = {chapter: head for chapter, head in heads.items() if head is not None}
    longest_first = sorted(known, key=lambda chapter: (-known[chapter].seconds, chapter.source))
    groups: list[list[Chapter]] = [[] for _ in range(shares)]
    for chapter in longest_first:
        least = min(groups, key=lambda group: sum(known[one].seconds for one in group))
        least.append(chapter)
    return {chapter: known[chapter] for chapter in groups[_commits(book.root) % shares]}


def _commits(root: Path) -> int:
    """How many commits led to this one; none where git does not know."""
    command = ["git", "rev-list", "--count", "HEAD"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(done.stdout)


def compare(job: Job, run: Run, before: Kept) -> Repeated:
    """Compare what a chapter's cells reported now with what is kept.

    Raises:
        ChapterFailedError: the run failed, its values are others, or those that are kept cannot be read.
    """
    if run.failure is not None:
        raise ChapterFailedError(run.failure)
    exact = machine.same_kind(before.told["machine"], machine.here())
    found = Repeated(job.chapter.source, run.seconds, exact)
    try:
        then = records.payloads(kept.read(before.path).fill(job.notebook))
        now = records.payloads(run.notebook)
    except (OSError, ValueError) as error:
        raise ChapterFailedError(Failure(job.chapter.source, str(error))) from error
    _compare(then, now, found)
    return found


def _compare(then: Mapping[str, Any], now: Mapping[str, Any], found: Repeated) -> None:
    old, new = values_of(then), values_of(now)
    for name in old | new:
        before, after = old.get(name, []), new.get(name, [])
        if len(before) != len(after):
            found.outside += max(len(before), len(after))
            found.where.append(f"{name} ({len(after)} in place of {len(before)})")
            continue
        equal = [a == b for a, b in zip(before, after, strict=True)]
        near = _near(before, after, found.exact)
        outside = sum(not (same or close) for same, close in zip(equal, near, strict=True))
        found.equal += sum(equal)
        found.outside += outside
        found.within += len(before) - sum(equal) - outside
        if outside:
            found.where.append(f"{name} ({outside} of {len(before)})")
    for claim in then["records"].keys() & now["records"].keys():
        verdicts = then["records"][claim]["verdict"], now["records"][claim]["verdict"]
        if verdicts[0] != verdicts[1]:
            found.flipped[claim] = verdicts


def _near(before: list[float], after: list[float], exact: bool) -> list[bool]:
    largest, spread = max(map(abs, before)), max(before) - min(before)
    allowed = ZERO + (BITS * largest if exact else SHARE * largest + SPREADS * spread)
    return [abs(a - b) <= allowed for a, b in zip(before, after, strict=True)]


def values_of(payload: Mapping[str, Any]) -> dict[str, list[float]]:
    """All numbers that a chapter's cells reported or recorded, by name."""
    found: dict[str, Any] = dict(payload["values"])
    for claim, record in payload["records"].items():
        for part, told in parts_of(record).items():
            stem = f"{claim}.{part}" if part else claim
            found |= {f"{stem}.{name}": value for name, value in told["values"].items()}
    return {n: value if isinstance(value, list) else [value] for n, value in found.items()}


def summary(repeated: Iterable[Repeated]) -> str:
    """The table's closing line."""
    items = list(repeated)
    equal, within, outside, flipped = (
        sum(numbers)
        for numbers in zip(
            *((one.equal, one.within, one.outside, len(one.flipped)) for one in items), strict=True
        )
    )
    return (
        f"{len(items)} chapters executed again: of {equal + within + outside} values {equal} came back equal, "
        f"{within} within what rounding explains, {outside} outside; {flipped} verdicts changed"
    )
