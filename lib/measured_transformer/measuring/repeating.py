"""Measuring the first seeds again: to show that results come back, and to attest them for changed code."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from measured_transformer.evidence.results import Result, write_result
from measured_transformer.measuring.comparing import Comparison, compare, compare_openings
from measured_transformer.measuring.judging import verdicts_of
from measured_transformer.measuring.measurement import Measurement
from measured_transformer.measuring.state import (
    HOLDS,
    UNATTESTED,
    Standing,
    here,
    note_stale,
    same_kind,
    standing,
)
from measured_transformer.measuring.trials import Trial, name_of, open_one, take_by_name
from measured_transformer.training.ensemble import available_cores
from measured_transformer.training.processes import LocalProcesses
from measured_transformer.training.store import Store

Say = Callable[[str], None]


@dataclass
class Repeated:
    """One measurement, measured again.

    Attributes:
        measurement: which.
        seeds: those that were measured again.
        slice: what of it: 'all', or 'opening' for the first steps of its trainings alone.
        comparison: how many values got back; None where there is nothing to compare with.
        seconds: what it took, added up over processes.
        problem: why it could not be repeated; empty where it was.
        trials: what was measured.
        exact: whether this is the kind of machine that the result was measured on.
    """

    measurement: Measurement
    seeds: Sequence[int]
    slice: str
    comparison: Comparison | None = None
    seconds: float = 0.0
    problem: str = ""
    trials: list[Trial] = field(default_factory=list)
    exact: bool = False

    @property
    def passed(self) -> bool:
        """Whether all values got back."""
        return self.comparison is not None and not self.comparison.outside and not self.problem


def repeat(
    measurements: Iterable[Measurement],
    *,
    executor: Executor | None = None,
    whole: bool = False,
    say: Say = print,
) -> list[Repeated]:
    """Measure the first seeds of each again, from nothing, and compare with what is kept. Writes nothing.

    Args:
        measurements: what to repeat; what has no result, or a damaged one, fails.
        executor: what trains and looks; the cores of this machine when not given.
        whole: whether to measure seeds in full also where a measurement asks for the openings alone.
        say: takes a line on each measurement as it ends.
    """
    wanted, now = list(measurements), here()
    standings = {one.label: standing(one) for one in wanted}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))  # its own: what is there already would not be measured again
        if executor is not None:
            return _repeat(wanted, standings, now, executor, store, whole, say)
        with LocalProcesses(max(1, available_cores())) as own:
            return _repeat(wanted, standings, now, own, store, whole, say)


def _repeat(
    wanted: Sequence[Measurement],
    standings: Mapping[str, Standing],
    now: Mapping[str, Any],
    executor: Executor,
    store: Store,
    whole: bool,
    say: Say,
) -> list[Repeated]:
    futures: dict[Future[Any], tuple[Repeated, int]] = {}
    found = []
    for one in wanted:
        at = standings[one.label]
        opening = one.repeat == "opening" and not whole
        seeds = [] if at.result is None else at.result.seeds[: one.repeated]
        item = Repeated(
            one, seeds, "opening" if opening else "all", problem="" if seeds else at.why
        )
        item.exact = at.result is not None and same_kind(dict(at.result.provenance), dict(now))
        found.append(item)
        call = open_by_name if opening else take_by_name
        for seed in seeds:
            future = executor.submit(call, one.room, one.name, seed, one.settings(), store)
            futures[future] = (item, seed)
    left = {id(item): len(item.seeds) for item in found}
    for future in as_completed(futures):
        item, seed = futures[future]
        try:
            item.trials.append(future.result())
        except Exception as error:
            item.problem = f"seed {seed}: {type(error).__name__}: {error}"
        left[id(item)] -= 1
        if not left[id(item)]:
            _conclude(item, standings[item.measurement.label].result, say)
    return found


def open_by_name(
    room: str, name: str, seed: int, settings: Mapping[str, Any], store: Store
) -> Trial:
    """The openings of a measurement's trainings from one seed, and nothing else. What a worker process does."""
    del store  # openings are trained anew, and too short to be kept
    from measured_transformer.measuring.measurement import measurements_of

    start = time.perf_counter()
    jobs = measurements_of(room)[name].jobs(seed, **settings)
    openings = {name_of(key): open_one(job) for key, job in jobs.items()}
    return Trial(seed, {}, openings, time.perf_counter() - start)


def _conclude(item: Repeated, kept: Result | None, say: Say) -> None:
    item.trials.sort(key=lambda trial: item.seeds.index(trial.seed))
    item.seconds = sum(trial.seconds for trial in item.trials)
    if kept is not None and not item.problem:
        if item.slice == "all":
            item.comparison = compare(item.measurement, kept, item.trials, exact=item.exact)
        else:
            item.comparison = Comparison()
            for trial in item.trials:
                compare_openings(
                    kept, trial.seed, trial.openings, item.comparison, exact=item.exact
                )
    say(line_of(item))


def attest(
    measurements: Iterable[Measurement], *, executor: Executor | None = None, say: Say = print
) -> list[Repeated]:
    """Show that changed code gives the values that are kept, and write that down.

    Of each measurement whose result was measured with other code, the first seeds are measured again in full.
    If they come back (equal on the same kind of machine, elsewhere within the spread, with no verdict
    changed), the result is attested for the code as it is now; if not, it is stale.
    """
    open_ones = [one for one in measurements if standing(one).state == UNATTESTED]
    found = repeat(open_ones, executor=executor, whole=True, say=say)
    for item in found:
        kept = standing(item.measurement).result
        if kept is None or item.problem:
            continue
        if not item.passed or flipped([item]):
            note_stale(item.measurement)
            item.problem = item.problem or "other values than those kept: run make measure"
            continue
        told = here()
        attested = {
            "digest": item.measurement.digest(),
            "seeds": list(item.seeds),
            "exact": item.exact,
            **{name: told[name] for name in ("commit", "date", "device", "kind")},
        }
        assert kept.path is not None
        write_result(replace(kept, provenance={**kept.provenance, "attested": attested}), kept.path)
    return found


def flipped(items: Iterable[Repeated]) -> dict[str, tuple[str, str]]:
    """The claims that get another verdict when the values measured again replace the kept ones."""
    rooms: dict[str, dict[str, Result]] = {}
    for item in items:
        kept = standing(item.measurement).result
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
    if item.comparison is None:
        return f"{name} not repeated: {item.problem}"
    told = item.comparison
    seeds = f"{len(item.seeds)} {'seed' if len(item.seeds) == 1 else 'seeds'}"
    what = seeds if item.slice == "all" else f"{seeds}, first steps"
    line = (
        f"{name} {what:<20} {told.equal:>8} equal {told.within:>7} within {told.outside:>5} outside "
        f"{item.seconds:>7.1f} s"
    )
    return f"{line}  {'; '.join(told.where)}" if told.where else line


def still_holds(standing_now: Standing) -> bool:
    """Whether a page may show a result without a mark."""
    return standing_now.state in HOLDS
