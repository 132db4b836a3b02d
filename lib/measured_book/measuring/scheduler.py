"""Measures what is missing and writes the results.

Everything that is done is kept at once: runs in the store, trials in `_build/measuring`. Whatever interrupts a
measurement, the next call goes on from there. A result is written when all of its seeds are there.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout
from measured_transformer.training import tuned_table
from measured_transformer.training.folders import build_folder
from measured_transformer.training.store import Store, found_store

from measured_book.evidence.results import (
    Result,
    chapters_folder,
    check,
    differing,
    other_form,
    remove_parts,
    write_result,
)
from measured_book.evidence.seeds import seeds_of
from measured_book.measuring.attestations import code_of
from measured_book.measuring.measurement import Measurement
from measured_book.measuring.progress import Progress, Shown
from measured_book.measuring.slices import Slice, TimeUpError
from measured_book.measuring.state import (
    DAMAGED,
    environment,
    folder_for,
    same_versions,
    status,
)
from measured_book.measuring.trials import Trial, read_trial, write_trial
from measured_book.measuring.work import Outcome, Wanted, Workers

if TYPE_CHECKING:
    import xarray

Say = Callable[[str], None]


@dataclass
class Report:
    """The outcome of measuring.

    Attributes:
        written: the measurements whose results were written.
        held: those whose results were valid already.
        failed: what went wrong, by measurement.
        needed: the stored runs that unfinished measurements still need: key -> measurements; None where that
            is unknown, since their work was not planned to its end.
        time_is_up: whether a slice ended before everything was done.
    """

    written: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    needed: dict[str, set[str]] | None = None
    time_is_up: bool = False


def measure(
    measurement: Measurement,
    *,
    seeds: int | Sequence[int] = 2,
    executor: Executor | None = None,
    progress: bool = True,
    **settings: Any,
) -> xarray.Dataset:
    """Measure now, in this process, and return the values; only runs are written, to the store.

    Args:
        measurement: what to measure.
        seeds: how many seeds, or which.
        executor: what trains and looks, such as a process pool or dask's `client.get_executor()`; the cores of
            this machine when not given.
        progress: whether to show a progress bar.
        settings: of the measurement, where they should be others than its defaults.

    Raises:
        RuntimeError: a seed failed; the message says which, and how.
    """
    wanted = seeds_of(seeds) if isinstance(seeds, int) else list(seeds)
    own = measurement.settings(**settings)
    digest = measurement.code(**own).whole if measurement.room else ""
    asked = [Wanted(measurement, seed, own, digest) for seed in wanted]
    with (
        a_store() as store,
        Progress("bar" if progress else "nothing") as shown,
        Workers(executor, shown) as work,
    ):
        found = {one.seed: outcome for one, outcome in work.outcomes(asked, store)}
    failed = {seed: error for seed, error in found.items() if isinstance(error, Exception)}
    if failed:
        raise RuntimeError(error_summary(failed))
    return result_of(measurement, [found[seed] for seed in wanted]).dataset  # type: ignore[misc]


def measure_all(
    measurements: Iterable[Measurement],
    *,
    executor: Executor | None = None,
    renew: bool = False,
    progress: Shown = "lines",
    say: Say = print,
    limit: Slice | None = None,
    report: Report | None = None,
) -> Report:
    """Measure everything without a valid result, with all seeds, and write the results.

    The trainings of all measurements are done together, each once. A measurement that another process is at
    work on comes last, when that has finished; what it wrote meanwhile is not measured again.

    Args:
        measurements: what to look at.
        executor: as for `measure`.
        renew: whether to measure again what holds, and to take a result's new form where it has changed. In a
            slice what was measured longest ago comes first.
        progress: how to show how far it is.
        say: takes a line on each measurement.
        limit: the time that there is. What another process is at work on is then left to that.
        report: where to write what was done, for whoever wants it after an interruption too.
    """
    report, elsewhere = report or Report(), dict[Measurement, int | None]()
    try:
        with (
            _choices_kept(),
            a_store() as store,
            Progress(progress, say) as shown,
            Workers(executor, shown, tuned_table.PACKAGED, limit) as work,
        ):
            with ExitStack() as locks:
                mine = []
                for one in measurements:
                    if locks.enter_context(locked(one, wait=False)):
                        mine += _planned(one, renew, report, shown.note)
                    elif limit is None:
                        say(f"{one.label}: another process is measuring it; it comes last")
                        elsewhere[one] = _written(one)
                    else:
                        say(f"{one.label}: another process is measuring it; it is left to that")
                if limit is not None:
                    limit.ranks = {task.one.label: task.date for task in mine} if renew else {}
                _do(mine, work, store, report)
            for one, before in elsewhere.items():
                with locked(one, wait=True):
                    again = renew and _written(one) == before
                    _do(_planned(one, again, report, shown.note), work, store, report)
    except TimeUpError:
        report.time_is_up = True
    return report


@contextmanager
def _choices_kept() -> Iterator[None]:
    """Copy learning rates that measurements choose during evaluation into the library's table.

    What is chosen, also before an interruption, is noted in the table of `chosen_table`.
    """
    here, noted = tuned_table.build_table(), chosen_table()
    tables = [] if here is None else [here, tuned_table.PACKAGED]
    before = [tuned_table.lines_of(table) for table in tables]
    try:
        yield
    finally:
        new = [
            [line for line in tuned_table.lines_of(table) if line not in lines]
            for table, lines in zip(tables, before, strict=True)
        ]
        if new and new[0]:
            tuned_table.add_lines(new[0], tuned_table.PACKAGED)
        if noted is not None and any(new):
            tuned_table.add_lines([line for lines in new for line in lines], noted)


def chosen_table() -> Path | None:
    """The table of the learning rates that were chosen here with the code as it is now; None outside a book."""
    build = build_folder()
    return None if build is None else build / "measuring" / f"tuned-{all_code()[:16]}.jsonl"


def all_code() -> str:
    """A digest of all code of the library and of the chapters' rooms."""
    told = hashlib.sha256()
    for folder in (Path(tuned_table.__file__).parents[1], chapters_folder()):
        for file in sorted(folder.rglob("*.py")):
            told.update(f"{file.relative_to(folder)} {file.stat().st_size}\n".encode())
            told.update(file.read_bytes())
    return told.hexdigest()


def _written(one: Measurement) -> int | None:
    """The time at which the result was written; None when there is no result."""
    path = folder_for(one.room) / f"{one.name}.json"
    return path.stat().st_mtime_ns if path.is_file() else None


def _planned(one: Measurement, renew: bool, report: Report, say: Say) -> list[Task]:
    """The task for a measurement; empty when its result is valid or it cannot be measured."""
    try:
        now = status(one)
        if now.is_valid and not renew:
            report.held.append(one.label)
            return []
        if now.state == DAMAGED:  # nothing is put in the place of what may be of worth
            report.failed[one.label] = now.why
            return []
        task = Task(one, now.result, renew, say)
    except (OSError, ValueError) as error:
        report.failed[one.label] = str(error)
        return []
    missing = len(task.missing)
    say(f"{one.label}: {missing} of {one.seeds} seeds to measure. {one.what}")
    return [task]


def _do(tasks: Sequence[Task], work: Workers, store: Store, report: Report) -> None:
    """Run all tasks together and finish each as soon as its last seed is in."""
    by_one = {id(task.one): task for task in tasks}
    for task in tasks:
        if not task.missing:
            task.finish(report)
    wanted = [one for task in tasks for one in task.wanted()]
    try:
        for one, outcome in work.outcomes(wanted, store):
            task = by_one[id(one.measurement)]
            task.take((one, outcome))
            if not task.missing:
                task.finish(report)
    except TimeUpError:
        for task in tasks:
            task.stop(report)
        raise
    finally:
        report.needed = work.needed()


class Task:
    """A measurement in progress: its finished, failed and missing seeds.

    Args:
        one: the measurement.
        kept: its result as it is, which does not hold.
        renew: whether nothing of that is taken over, and its form may change.
        say: takes a line on what cannot be kept.
    """

    def __init__(self, one: Measurement, kept: Result | None, renew: bool, say: Say) -> None:
        self.one, self._kept, self._renew, self._say = one, kept, renew, say
        self._folder, self._here = folder_for(one.room), environment()
        self._code, self._seeds = one.code(), seeds_of(one.seeds)
        self._trials = trials_folder(one, self._here)
        self._done = {} if renew else _known(one, kept, self._here)
        self._failed: dict[int, Exception] = {}
        self._refused: list[Exception] = []
        remove_parts(self._folder / f"{one.name}.json")
        for seed in self.missing:
            found = None if self._trials is None else read_trial(self._trials / f"{seed}.json")
            if found is not None:
                self._done[seed] = found

    @property
    def missing(self) -> list[int]:
        """The seeds still to be measured."""
        return [s for s in self._seeds if s not in self._done and s not in self._failed]

    def wanted(self) -> list[Wanted]:
        """What is to be done for them."""
        settings, digest = self.one.settings(), self._code.whole
        return [
            Wanted(self.one, seed, settings, digest, refused=self._refused) for seed in self.missing
        ]

    @property
    def date(self) -> float:
        """When the kept result was measured, in seconds; 0 where there is none or nobody knows."""
        try:
            told = "" if self._kept is None else str(self._kept.provenance.get("date", ""))
            return datetime.fromisoformat(told).timestamp()
        except ValueError:
            return 0.0

    def stop(self, report: Report) -> None:
        """Report what went wrong where the time was up before all seeds were in."""
        if self.missing and (self._failed or self._refused):
            self.finish(report)

    def take(self, outcome: Outcome) -> None:
        """Keep the outcome of a seed."""
        wanted, found = outcome
        if isinstance(found, Trial) and self.one.code() != self._code:
            found = RuntimeError(
                "the code was changed while it was measured; run make measure again"
            )
        if isinstance(found, Exception):
            self._failed[wanted.seed] = found
            return
        self._done[wanted.seed] = found
        try:
            if self._trials is not None:
                write_trial(found, self._trials / f"{wanted.seed}.json")
        except OSError as error:
            self._say(f"{self.one.label}: seed {wanted.seed} is not kept on its own: {error}")
        self._refuse_another_form(found)

    def _refuse_another_form(self, trial: Trial) -> None:
        """Check with the first seed that the result can be written, and stop measuring otherwise.

        A whole number where fractions are kept is no other form: other seeds may give fractions.
        """
        if self._kept is None or self._renew:
            return
        variables = {}
        for name, (axes, values) in trial.variables.items():
            kept = self._kept.variables.get(name)
            fractions = kept is not None and kept[1].dtype.kind == "f" and values.dtype.kind in "iu"
            found = values.astype(kept[1].dtype) if kept is not None and fractions else values
            variables[name] = (("seed", *axes), found[None])
        if names := differing(self._kept, variables):
            path = self._folder / f"{self.one.name}.json"
            self._refused.append(other_form(self.one.room, self.one.name, names, path))

    def finish(self, report: Report) -> None:
        """Write the result when all seeds are in; otherwise report what is missing."""
        label, path = self.one.label, self._folder / f"{self.one.name}.json"
        count = len(self._seeds)
        if self._refused:
            report.failed[label] = str(self._refused[0])
            return
        if self._failed:
            report.failed[label] = (
                f"{len(self._failed)} of {count} seeds failed ({error_summary(self._failed)}); the others "
                "are kept"
            )
            return
        try:
            result = result_of(self.one, [self._done[s] for s in self._seeds], self._here)
            write_result(result, path, renew=self._renew)
        except (OSError, ValueError) as error:
            kept = "" if self._trials is None else f"; all {count} seeds are kept in {self._trials}"
            report.failed[label] = f"{error}{kept}"
            return
        report.written.append(label)
        if self._trials is not None:
            shutil.rmtree(self._trials, ignore_errors=True)


def error_summary(failed: Mapping[int, Exception]) -> str:
    """What failed, in words: each reason once."""
    reasons: dict[str, list[str]] = {}
    for seed, error in failed.items():
        reasons.setdefault(f"{type(error).__name__}: {error}", []).append(str(seed))
    return "; ".join(
        f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}: {why}"
        for why, seeds in reasons.items()
    )


def result_of(
    measurement: Measurement, trials: Sequence[Trial], provenance: Mapping[str, Any] | None = None
) -> Result:
    """The result made of these trials, one for each seed.

    Raises:
        ValueError: trials that differ in the names or shapes of what they gave.
    """
    forms = [
        {name: (axes, values.shape) for name, (axes, values) in trial.variables.items()}
        for trial in trials
    ]
    for trial, form in zip(trials, forms, strict=True):
        if form != forms[0]:
            raise ValueError(
                f"{measurement.label}: expected the same names and shapes from every seed, got {forms[0]} from "
                f"seed {trials[0].seed} and {form} from seed {trial.seed}"
            )
    variables = {
        name: (("seed", *axes), np.stack([trial.variables[name][1] for trial in trials]))
        for name, (axes, _) in trials[0].variables.items()
    }
    used = {axis for axes, _ in variables.values() for axis in axes}
    coords = {axis: list(labels) for axis, labels in measurement.coords.items() if axis in used}
    repeated = trials[: measurement.repeated]
    openings = {
        name: {str(t.seed): t.openings[name] for t in repeated if name in t.openings}
        for name in repeated[0].openings
    }
    told = dict(provenance or {})
    if provenance is not None:
        code = measurement.code()
        told |= {"digest": code.whole, "training": code.training, "reading": code.reading}
        told["settings"] = {name: str(value) for name, value in measurement.settings().items()}
        told["seconds"] = round(sum(trial.seconds for trial in trials), 1)
        told["versions"] = {**told.get("versions", {}), **measurement.versions()}
        kinds = sorted({kind for trial in trials for kind in trial.kinds})
        if kinds and kinds != [told["kind"]]:  # other machines of a cluster
            told["kind"] = told["device"] = " and ".join(kinds)
    result = Result(
        measurement.room,
        measurement.name,
        measurement.what,
        variables,
        {"seed": [trial.seed for trial in trials], **coords},
        told,
        openings,
    )
    check(result)
    return result


def trials_folder(measurement: Measurement, provenance: Mapping[str, Any]) -> Path | None:
    """The folder that keeps a measurement's trials until its result is written; None outside a book.

    Code, settings, data, versions and kind of machine are in its name.
    """
    build = build_folder()
    if build is None or not measurement.room:
        return None
    kind = str(provenance.get("kind", ""))
    kind += "".join(f" {name} {one}" for name, one in sorted(measurement.versions().items()))
    words = "".join(c if c.isalnum() else "-" for c in kind)
    return build / "measuring" / measurement.label / f"{measurement.code().whole[:24]}-{words}"


def _known(one: Measurement, result: Result | None, now: Mapping[str, Any]) -> dict[int, Trial]:
    """The trials of an existing result from the same code, versions and kind of machine."""
    if result is None or result.provenance.get("kind") != now.get("kind"):
        return {}
    same = same_versions(one, result.provenance.get("versions", {}))
    if code_of(result) != one.code().whole or not same:
        return {}
    found = {}
    seconds = float(result.provenance.get("seconds", 0.0)) / len(result.seeds)
    for index, seed in enumerate(result.seeds):
        values = {n: (axes[1:], v[index]) for n, (axes, v) in result.variables.items()}
        opened = {
            name: list(map(float, each[str(seed)]))
            for name, each in result.openings.items()
            if str(seed) in each
        }
        found[seed] = Trial(seed, values, opened, seconds, (str(now["kind"]),))
    return found


@contextmanager
def a_store() -> Iterator[Store]:
    """The book's store, or a temporary one when there is none."""
    found = found_store()
    with nullcontext() if found else tempfile.TemporaryDirectory() as folder:
        yield found or Store(Path(str(folder)))


@contextmanager
def locked(one: Measurement, *, wait: bool) -> Iterator[bool]:
    """Hold a measurement's lock; the operating system releases the lock of a process that dies.

    Where there is no folder for locks, or it cannot be written to, the block runs without one.
    """
    build, lock = build_folder(), None
    if build is not None:
        file = build / "measuring" / "locks" / f"{one.label}.lock"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(file, timeout=-1 if wait else 0)
            lock.acquire()
        except Timeout:
            yield False
            return
        except (OSError, NotImplementedError) as error:
            warnings.warn(f"{one.label} is not locked while it is measured: {error}", stacklevel=3)
            lock = None
    try:
        yield True
    finally:
        if lock is not None:
            lock.release()
