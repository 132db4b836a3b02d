"""Measuring the first seeds again: to show that results come back, and to attest them for changed code."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from measured_transformer.tasks.corpora import missing_files
from measured_transformer.training.store import Store
from measured_transformer.training.tuning import Arm, renew_rates

from measured_book.evidence.results import Result, write_result
from measured_book.evidence.seeds import seeds_of
from measured_book.measuring.comparing import Comparison, compare, compare_first
from measured_book.measuring.jobs import fingerprint, kept_choices
from measured_book.measuring.judging import verdicts_of
from measured_book.measuring.measurement import Measurement
from measured_book.measuring.progress import Progress, Shown
from measured_book.measuring.scheduler import locked, said
from measured_book.measuring.state import (
    UNATTESTED,
    Standing,
    here,
    note_stale,
    same_kind,
    standing,
)
from measured_book.measuring.trials import Trial
from measured_book.measuring.work import Wanted, Workers

Say = Callable[[str], None]


@dataclass
class Repeated:
    """One measurement, measured again.

    Attributes:
        measurement: which.
        seeds: those that were measured again.
        slice: what of it: 'all', or 'opening' for the first steps of its trainings alone.
        kept: its result; None where it is missing or damaged.
        exact: whether this is the kind of machine that the result was measured on.
        comparison: how many values came back; None where there is nothing to compare with.
        seconds: what it took, added up over processes.
        problem: why it could not be repeated; empty where it was.
        lacks: fetched files that it reads and that do not lie here, so that it was left out.
        trials: what was measured.
    """

    measurement: Measurement
    seeds: Sequence[int]
    slice: str
    kept: Result | None = None
    exact: bool = False
    comparison: Comparison | None = None
    seconds: float = 0.0
    problem: str = ""
    lacks: Sequence[str] = ()
    trials: list[Trial] = field(default_factory=list)
    failed: dict[int, Exception] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether all values came back, and there were any."""
        told = self.comparison
        return told is not None and told.total > 0 and not told.outside and not self.problem

    @property
    def is_complete(self) -> bool:
        """Whether all seeds have ended."""
        return len(self.trials) + len(self.failed) == len(self.seeds)

    def take(self, seed: int, outcome: Trial | Exception) -> None:
        """Take what came of a seed."""
        if isinstance(outcome, Trial):
            self.trials.append(outcome)
        else:
            self.failed[seed] = outcome

    def compare(self) -> None:
        """Compare with what is kept, when all seeds have ended."""
        self.trials.sort(key=lambda trial: self.seeds.index(trial.seed))
        self.seconds = sum(trial.seconds for trial in self.trials)
        if self.failed:
            self.problem = said(self.failed)
        elif self.kept is not None:
            values = self.slice == "all"
            self.comparison = compare(
                self.measurement, self.kept, self.trials, exact=self.exact, values=values
            )
            if not self.comparison.total:
                room = self.measurement.room
                self.problem = f"nothing is kept to compare with; run make attest CHAPTER={room}"


def repeat(
    measurements: Iterable[Measurement],
    *,
    executor: Executor | None = None,
    whole: bool = False,
    progress: Shown = "nothing",
    say: Say = print,
) -> list[Repeated]:
    """Measure the first seeds of each again, from nothing, and compare with what is kept. Writes nothing.

    Args:
        measurements: what to repeat; what has no result, or a damaged one, fails; what reads a fetched file
            that is not here is left out.
        executor: what trains and looks; the cores of this machine when not given.
        whole: whether to measure seeds in full also where a measurement asks for the openings alone, to
            add the first losses in double precision, for results that lack them, and to leave nothing out.
        progress: how to show how far it is.
        say: takes a line on each measurement as it ends.
    """
    items, now = [], here()
    for one in measurements:
        at = standing(one)
        item = _planned(
            one, at, same_kind(at.result.provenance, now) if at.result else False, whole
        )
        if item.seeds and (missing := _missing_data(one)):
            item.seeds, item.problem = [], missing
        if item.seeds and (lacking := missing_files(one.corpora)):
            item.seeds, item.lacks = [], lacking
            item.problem = _to_fetch(lacking) if whole else ""
        items.append(item)
    wanted = [
        Wanted(
            item.measurement,
            seed,
            item.measurement.settings(),
            item.measurement.digest(),
            "all" if item.slice == "all" else "single" if item.exact else "double",
            doubles=whole or not item.exact,
            again=True,
        )
        for item in items
        for seed in item.seeds
    ]
    for item in items:
        if not item.seeds:
            say(line_of(item))
    _measure(items, wanted, Repeated.compare, executor, progress, say)
    return items


def _measure(
    items: Sequence[Repeated],
    wanted: Sequence[Wanted],
    conclude: Callable[[Repeated], None],
    executor: Executor | None,
    progress: Shown,
    say: Say,
) -> None:
    """Measure, and conclude on each item as soon as all of its seeds have ended, however they did."""
    by_one = {id(item.measurement): item for item in items}
    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(progress, say) as shown,
        Workers(executor, shown) as work,
    ):
        store = Store(Path(folder))  # its own: what is there already would not be measured again
        for asked, outcome in work.outcomes(wanted, store):
            item = by_one[id(asked.measurement)]
            item.take(asked.seed, outcome)
            if item.is_complete:
                conclude(item)
                shown.note(line_of(item))


def _missing_data(one: Measurement) -> str:
    """What is said of a measurement whose data cannot be read; nothing where all of it can."""
    try:
        one.digest()
    except OSError as error:
        return f"expected its data, got {error.strerror} ({error.filename}); restore that file"
    return ""


def _to_fetch(names: Sequence[str]) -> str:
    return (
        f"its corpus is not here ({names[0]}); python -m measured_transformer.tasks.corpora fetches it, or "
        "set MEASURED_DATA_DIR to where it lies"
    )


def _planned(one: Measurement, at: Standing, exact: bool, whole: bool) -> Repeated:
    part = "opening" if one.repeat == "opening" and not whole else "all"
    seeds = seeds_of(one.seeds)[: one.repeated]
    kept, problem = at.result, at.why
    if kept is not None:
        missing = [str(seed) for seed in seeds if seed not in kept.seeds]
        problem = (
            f"expected seeds {', '.join(missing)} among those kept; {at.why}" if missing else ""
        )
    return Repeated(one, [] if problem else seeds, part, kept, exact=exact, problem=problem)


def attest(
    measurements: Iterable[Measurement],
    *,
    executor: Executor | None = None,
    progress: Shown = "nothing",
    say: Say = print,
) -> list[Repeated]:
    """Show that changed code gives the values that are kept, and write that down.

    Of each measurement whose result was measured with other code or versions, the first seeds are measured
    again in full. If they come back (equal on the same kind of machine, elsewhere within the spread, with no
    verdict changed), the result is attested for the code as it is now; if not, it is stale. A result of this
    very code that lacks first losses in double precision gets these, and nothing else is measured. What
    another process is at work on is left to that.
    """
    with ExitStack() as locks:
        mine = []
        for one in measurements:
            if standing(one).state == UNATTESTED:
                if locks.enter_context(locked(one, wait=False)):
                    mine.append(one)
                else:
                    say(f"{one.label}: another process is measuring it")
        lacking = [one for one in mine if standing(one).of_this_code]
        found = _completed(lacking, executor, progress, say)
        changed = [one for one in mine if one not in lacking]
        again = repeat(changed, executor=executor, whole=True, progress=progress, say=say)
        for item in again:
            if item.kept is not None and not item.problem:
                _conclude(item, item.kept)
    return found + again


def _completed(
    measurements: Sequence[Measurement], executor: Executor | None, progress: Shown, say: Say
) -> list[Repeated]:
    """Add first losses in double precision to results of this very code."""
    items, now = [], here()
    for one in measurements:
        kept = standing(one).result
        assert kept is not None
        exact = same_kind(kept.provenance, now)
        items.append(Repeated(one, kept.seeds[: one.repeated], "opening", kept, exact))
    wanted = [
        Wanted(
            item.measurement,
            seed,
            item.measurement.settings(),
            item.measurement.digest(),
            "both",
            again=True,
        )
        for item in items
        for seed in item.seeds
    ]
    _measure(items, wanted, _complete, executor, progress, say)
    return items


def _complete(item: Repeated) -> None:
    assert item.kept is not None
    item.seconds = sum(trial.seconds for trial in item.trials)
    item.problem = said(item.failed)
    if item.problem:
        return
    item.comparison = compare_first(item.kept, item.trials, exact=item.exact)
    if item.passed:
        _write(item, item.kept, {})
    else:
        command = f"make measure CHAPTER={item.measurement.room} RENEW=1"
        item.problem = f"other first losses than those kept: run {command}"


def _conclude(item: Repeated, kept: Result) -> None:
    one = item.measurement
    if not item.passed or flipped([item]):
        note_stale(one)
        item.problem = f"other values than those kept: run make measure CHAPTER={one.room}"
        return
    told = here()
    attested = {
        "digest": one.digest(),
        "seeds": list(item.seeds),
        "exact": item.exact,
        **{name: told[name] for name in ("commit", "date", "device", "kind")},
        "versions": {**told["versions"], **one.versions()},
    }
    try:
        _renew_choices(one, item.seeds)
    except OSError as error:
        item.problem = f"its values came back, but its learning rates cannot be kept: {error}"
        return
    _write(item, kept, {"attested": attested})


def _renew_choices(one: Measurement, seeds: Sequence[int]) -> None:
    """Have learning rates that were chosen with other code hold for this: trainings with them came back."""
    with kept_choices() as taken:
        for seed in seeds:
            one.jobs(seed, **one.settings())
    for search in {fingerprint(search): search for search in taken}.values():
        renew_rates(
            search.name,
            Arm(search.config, search.options),
            search.task,
            rates=search.rates,
            seeds=search.seeds,
            steps=search.steps,
        )


def _write(item: Repeated, kept: Result, told: Mapping[str, Any]) -> None:
    """Write a result again: with more in its provenance, and with first losses in double precision."""
    doubles = kept.doubles or {
        name: {str(trial.seed): trial.doubles[name] for trial in item.trials}
        for name in item.trials[0].doubles
    }
    assert kept.path is not None
    try:
        provenance = {**kept.provenance, **told}
        write_result(replace(kept, provenance=provenance, doubles=doubles), kept.path)
    except OSError as error:
        item.problem = f"its values came back, but that could not be written down: {error}"


def flipped(items: Iterable[Repeated]) -> dict[str, tuple[str, str]]:
    """The claims that get another verdict when the values measured again replace the kept ones."""
    rooms: dict[str, dict[str, Result]] = {}
    for item in items:
        kept = item.kept
        if kept is None or item.slice != "all" or item.problem or not item.trials:
            continue
        variables = {}
        for name, (axes, values) in kept.variables.items():
            changed = values.copy()
            for trial in item.trials:
                if name in trial.variables and trial.variables[name][1].shape == values.shape[1:]:
                    changed[kept.seeds.index(trial.seed)] = trial.variables[name][1]
            variables[name] = (axes, changed)
        measured = replace(kept, variables=variables)
        rooms.setdefault(item.measurement.room, {})[item.measurement.name] = measured
    found: dict[str, tuple[str, str]] = {}
    for room, results in rooms.items():
        before, after = verdicts_of(room), verdicts_of(room, results)
        found |= {c: (before[c], after[c]) for c in before if before[c] != after.get(c, before[c])}
    return found


def line_of(item: Repeated) -> str:
    """A line of the table."""
    name = f"{item.measurement.label:<42}"
    if item.lacks and not item.problem:
        return f"{name} left out: {_to_fetch(item.lacks)}"
    if item.comparison is None or item.problem:
        return f"{name} not repeated: {item.problem}"
    told = item.comparison
    seeds = f"{len(item.seeds)} {'seed' if len(item.seeds) == 1 else 'seeds'}"
    what = seeds if item.slice == "all" else f"{seeds}, first steps"
    line = (
        f"{name} {what:<20} {told.equal:>8} equal {told.within:>7} within {told.outside:>5} outside "
        f"{item.seconds:>7.1f} s"
    )
    return f"{line}  {'; '.join(told.where)}" if told.where else line
