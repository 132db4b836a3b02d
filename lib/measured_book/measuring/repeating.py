"""Measuring again: fingerprints, and a share of everything in full.

Each repeat takes fingerprints, which any change of what is computed alters on any processor, and measures the
first seeds of a share in full. A measurement whose code is not attested always has both; of the others a run
of `make test` takes those whose turn it is (see `shares`). It fails for what rounding cannot explain: another
fingerprint, a verdict that changes and is not fragile (see `printed`), a printed number that leaves its own
interval, and, on the kind of machine that a result was measured on, any value that is not equal to the last
bit. All else is counted and reported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path

from measured_transformer.training.store import Store

from measured_book.evidence.results import Result
from measured_book.evidence.seeds import seeds_of
from measured_book.measuring.comparing import Comparison, compare
from measured_book.measuring.inputs import how_to_get, missing_inputs
from measured_book.measuring.judging import judge_again, judge_room
from measured_book.measuring.measurement import Measurement
from measured_book.measuring.printed import Left, fragile, left
from measured_book.measuring.progress import Progress, Shown
from measured_book.measuring.scheduler import error_summary
from measured_book.measuring.state import Status, environment, same_kind, status
from measured_book.measuring.taking import fingerprints
from measured_book.measuring.trials import Trial
from measured_book.measuring.work import Wanted, Workers

Say = Callable[[str], None]


@dataclass
class Repeated:
    """One measurement, measured again.

    Attributes:
        measurement: which.
        status: its result, and whether that is valid.
        seeds: those that were measured again in full; none where the fingerprint alone was taken.
        exact: whether this is the kind of machine that the result was measured on.
        comparison: how many values came back; None where none were compared.
        differences: in what its fingerprint differs from the kept one, in words.
        seconds: what it took, added up over processes.
        problem: why it could not be repeated; empty where it was.
        lacks: fetched files that it reads and that do not lie here, so that it was left out.
        in_turn: whether its fingerprint is taken; of the others only what is kept is looked at.
        trials: what was measured in full.
    """

    measurement: Measurement
    status: Status
    seeds: Sequence[int] = ()
    exact: bool = False
    comparison: Comparison | None = None
    differences: Sequence[str] = ()
    seconds: float = 0.0
    problem: str = ""
    lacks: Sequence[str] = ()
    in_turn: bool = True
    trials: list[Trial] = field(default_factory=list)
    failed: dict[int, Exception] = field(default_factory=dict)

    @property
    def failures(self) -> list[str]:
        """What fails of it, in words."""
        of_values = [] if self.comparison is None else self.comparison.failures
        return [*([self.problem] if self.problem else []), *self.differences, *of_values]

    @property
    def passed(self) -> bool:
        """True if nothing of it fails."""
        return not self.failures

    @property
    def is_complete(self) -> bool:
        """True if all seeds have ended."""
        return len(self.trials) + len(self.failed) == len(self.seeds)

    def take(self, seed: int, outcome: Trial | Exception) -> None:
        """Take what came of a seed, and compare when it was the last."""
        if isinstance(outcome, Trial):
            self.trials.append(outcome)
        else:
            self.failed[seed] = outcome
        if not self.is_complete:
            return
        self.trials.sort(key=lambda trial: self.seeds.index(trial.seed))
        self.seconds += sum(trial.seconds for trial in self.trials)
        if self.failed:
            self.problem = error_summary(self.failed)
        elif self.status.result is not None:
            self.comparison = compare(self.status.result, self.trials, exact=self.exact)


@dataclass
class Report:
    """What a repeat found.

    Attributes:
        items: each measurement.
        verdicts: claims that get another verdict with what was measured now: the kept one and the new one.
        numbers: printed numbers that leave their intervals, by room.
        fragile: claims that get another verdict too, but one that another draw of a seed can give.
    """

    items: list[Repeated]
    verdicts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    numbers: Mapping[str, Sequence[Left]] = field(default_factory=dict)
    fragile: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True if nothing fails; what was left out does not count as failed, nor does a fragile verdict."""
        return not self.verdicts and not self.numbers and all(item.passed for item in self.items)


def repeat(
    measurements: Iterable[Measurement],
    *,
    full: Iterable[Measurement] | None = None,
    in_turn: Iterable[Measurement] | None = None,
    executor: Executor | None = None,
    progress: Shown = "nothing",
    say: Say = print,
) -> Report:
    """Take the fingerprints of measurements, measure some in full, and compare with what is kept.

    Writes nothing. What has no result, or a damaged one, or no fingerprint, fails; what reads a fetched file
    or a checkpoint that is not here is left out.

    Args:
        measurements: what to repeat.
        full: those whose first seeds are measured again in full; all when not given.
        in_turn: those whose fingerprints are taken, beside those of `full`; all when not given. The others
            still fail where nothing valid is kept of them.
        executor: what computes; the cores of this machine when not given.
        progress: how to show how far it is.
        say: takes a line on each measurement as it ends.
    """
    wanted = list(measurements)
    in_full = set(wanted if full is None else full)
    taken = set(wanted if in_turn is None else in_turn) | in_full
    items = [_planned(one, in_full) for one in wanted]
    for item in items:
        item.in_turn = item.measurement in taken
    with Progress(progress, say) as shown, Workers(executor, shown) as work:
        due = [i for i in items if i.in_turn and not i.problem and not i.lacks]
        _take_fingerprints(due, work, shown)
        again = [item for item in items if item.seeds and not item.failures]
        _measure(again, work, shown)
    for item in items:
        if (item.problem or item.lacks) and not item.failed:  # all others were told as they ended
            say(line_of(item))
    return Report(items, *consequences(items))


def measured_in_full(
    measurements: Iterable[Measurement],
    *,
    executor: Executor | None = None,
    progress: Shown = "nothing",
    say: Say = print,
) -> list[tuple[Measurement, str]]:
    """Measure the first seeds of each in full and compare, whatever fingerprint is kept; of each what fails."""
    items = []
    for one in measurements:
        item = Repeated(one, status(one), seeds_of(one.seeds)[: one.repeated])
        assert item.status.result is not None
        item.exact = same_kind(item.status.result.provenance, environment())
        items.append(item)
    with Progress(progress, say) as shown, Workers(executor, shown) as work:
        _measure(items, work, shown, whole=True)
    verdicts, numbers, _ = consequences(items)
    changed = [f"{claim} becomes {after}" for claim, (_, after) in verdicts.items()]
    gone = [str(one) for each in numbers.values() for one in each]
    return [(item.measurement, "; ".join([*item.failures, *changed, *gone])) for item in items]


def _planned(one: Measurement, in_full: set[Measurement]) -> Repeated:
    found = Repeated(one, status(one))
    at, seeds = found.status, seeds_of(one.seeds)[: one.repeated]
    if at.result is None or at.code is None:
        found.problem = at.why
    elif missing := [str(seed) for seed in seeds if seed not in at.result.seeds]:
        found.problem = f"expected seeds {', '.join(missing)} among those kept; {at.why}"
    elif lacking := missing_inputs(one):
        found.lacks = lacking
    elif at.attestation is None:
        found.problem = f"no fingerprint is kept; run make attest CHAPTER={one.room}"
    else:
        found.exact = same_kind(at.result.provenance, environment())
        # the first losses of a training that takes too long are compared where they must be equal
        found.seeds = seeds if one in in_full and (one.repeat != "opening" or found.exact) else ()
    return found


def _take_fingerprints(items: Sequence[Repeated], work: Workers, shown: Progress) -> None:
    by_one = {item.measurement: item for item in items}
    kept = {one: item.status.attestation for one, item in by_one.items()}
    wanted = {one: at.fingerprint.has_values for one, at in kept.items() if at is not None}
    for one, taken in fingerprints(wanted, work, shown):
        item, attested = by_one[one], kept[one]
        assert attested is not None
        if isinstance(taken, Exception):
            item.problem = f"no fingerprint: {type(taken).__name__}: {taken}"
            continue
        item.seconds = taken.seconds
        item.differences = attested.fingerprint.differences(taken.fingerprint)
        if not item.seeds or item.differences:
            shown.note(line_of(item))


def _measure(
    items: Sequence[Repeated], work: Workers, shown: Progress, *, whole: bool = False
) -> None:
    """Measure the first seeds of some in full; says so of each as soon as all of its seeds have ended.

    Args:
        items, work, shown: what to measure, what computes, and what is told of it.
        whole: whether also of those that ask for the openings of their trainings alone.
    """
    by_one = {item.measurement: item for item in items}
    wanted = []
    for item in items:
        assert item.status.code is not None
        part = "openings" if item.measurement.repeat == "opening" and not whole else "all"
        asked = (item.measurement.settings(), item.status.code.whole)
        wanted += [
            Wanted(item.measurement, seed, *asked, part, again=True)  # type: ignore[arg-type]
            for seed in item.seeds
        ]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))  # its own: what is there already would not be measured again
        for asked_for, outcome in work.outcomes(wanted, store):
            item = by_one[asked_for.measurement]
            item.take(asked_for.seed, outcome)
            if item.is_complete:
                shown.note(line_of(item))


def consequences(
    items: Iterable[Repeated],
) -> tuple[dict[str, tuple[str, str]], dict[str, list[Left]], dict[str, tuple[str, str]]]:
    """What changes where the values measured again replace the kept ones.

    Returns:
        claims that get another verdict (the kept one, the new one), by room the printed numbers that leave
        their intervals, and claims with another verdict that are fragile.
    """
    rooms: dict[str, dict[str, Result]] = {}
    places: dict[str, dict[str, list[int]]] = {}
    for item in items:
        kept, name = item.status.result, item.measurement.name
        if kept is None or item.failures or not any(trial.variables for trial in item.trials):
            continue
        if item.comparison is not None and item.comparison.equal == item.comparison.total:
            continue
        variables = {}
        for variable, (axes, values) in kept.variables.items():
            changed = values.copy()
            for trial in item.trials:
                changed[kept.seeds.index(trial.seed)] = trial.variables[variable][1]
            variables[variable] = (axes, changed)
        rooms.setdefault(item.measurement.room, {})[name] = replace(kept, variables=variables)
        seeds = [kept.seeds.index(trial.seed) for trial in item.trials]
        places.setdefault(item.measurement.room, {})[name] = seeds
    verdicts: dict[str, tuple[str, str]] = {}
    numbers: dict[str, list[Left]] = {}
    explained: dict[str, tuple[str, str]] = {}
    for room, measured in rooms.items():
        before = judge_room(room)
        after = judge_again(before, measured)
        others = {
            claim: (record["verdict"], new["verdict"])
            for claim, record in before.records.items()
            if (new := after.records.get(claim, record))["verdict"] != record["verdict"]
        }
        by_chance = fragile(before, {one: new for one, (_, new) in others.items()}, places[room])
        for claim, both in others.items():
            (explained if claim in by_chance else verdicts)[claim] = both
        if gone := left(before, measured, places[room]):
            numbers[room] = gone
    return verdicts, numbers, explained


def line_of(item: Repeated) -> str:
    """A line of the table."""
    name = f"{item.measurement.label:<42}"
    if item.lacks:
        return f"{name} left out: {how_to_get(item.lacks)}"
    if item.problem:
        return f"{name} not repeated: {item.problem}"
    if item.differences:
        return f"{name} another fingerprint: {'; '.join(item.differences)}"
    told = item.comparison
    if told is None:
        return f"{name} {'same fingerprint':<47} {item.seconds:>7.1f} s"
    seeds = f"{len(item.seeds)} {'seed' if len(item.seeds) == 1 else 'seeds'}"
    line = (
        f"{name} {seeds:<8} {told.equal:>8} equal {told.within:>7} within {told.outside:>5} outside "
        f"{item.seconds:>8.1f} s"
    )
    rest = "; ".join(one for one in (*told.failures, told.farthest) if one)
    return f"{line}  {rest}" if rest else line
