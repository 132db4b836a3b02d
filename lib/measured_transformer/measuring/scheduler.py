"""Running what is missing: trainings first, each once however many measurements ask for it, then looks.

Everything that is done is kept at once: runs in the store, trials in `_build/measuring`. Whatever interrupts a
measurement, the next call goes on from there. A result is written when all of its seeds are there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from measured_transformer.evidence.results import Result, check, write_result
from measured_transformer.measuring.jobs import Search, wanted_searches
from measured_transformer.measuring.measurement import Measurement, seeds_of
from measured_transformer.measuring.state import HOLDS, folder_for, here, standing
from measured_transformer.measuring.trials import (
    Trial,
    read_trial,
    take,
    take_by_name,
    train_one,
    write_trial,
)
from measured_transformer.training.device import find_device
from measured_transformer.training.ensemble import arrivals, available_cores
from measured_transformer.training.folders import build_folder
from measured_transformer.training.jobs import Job
from measured_transformer.training.processes import LocalProcesses
from measured_transformer.training.store import Store, found_store
from measured_transformer.training.tuning import keep_rates

if TYPE_CHECKING:
    import xarray

Say = Callable[[str], None]


@dataclass
class Report:
    """What came of measuring: results written, results that held already, and what failed, in words."""

    written: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def measure(
    measurement: Measurement,
    *,
    seeds: int | Sequence[int] = 2,
    executor: Executor | None = None,
    progress: bool = True,
    **settings: Any,
) -> xarray.Dataset:
    """Measure, here and now, and give the values; nothing is written but runs in the store.

    Args:
        measurement: what to measure.
        seeds: how many seeds, or which.
        executor: what trains and looks, such as a process pool; the cores of this machine when not given.
        progress: whether to show a progress bar.
        settings: of the measurement, where they should be others than its defaults.

    Raises:
        RuntimeError: a seed failed; the message says which, and how.
    """
    wanted = seeds_of(seeds) if isinstance(seeds, int) else list(seeds)
    own = measurement.settings(**settings)
    with _a_store() as store, _workers(executor, progress) as work:
        done, failed = work.trials(measurement, wanted, own, store)
    if failed:
        raise RuntimeError("; ".join(f"seed {seed}: {why}" for seed, why in failed.items()))
    return result_of(measurement, [done[seed] for seed in wanted]).dataset


def measure_all(
    measurements: Iterable[Measurement],
    *,
    executor: Executor | None = None,
    renew: bool = False,
    progress: bool = True,
    say: Say = print,
) -> Report:
    """Measure what does not hold, with all seeds, and write the results.

    A measurement that another process is at work on comes last, when that has finished.

    Args:
        measurements: what to look at.
        executor: as for `measure`.
        renew: whether to measure again what holds.
        progress: whether to show a progress bar.
        say: takes a line on each measurement.
    """
    report, waiting = Report(), list(measurements)
    with _a_store() as store, _workers(executor, progress) as work:
        for wait in (False, True):
            elsewhere = []
            for one in waiting:
                with _locked(one, wait) as held:
                    if held:
                        _renew(one, work, store, renew, report, say)
                    else:
                        say(f"{one.label}: another process is measuring it; it comes last")
                        elsewhere.append(one)
            waiting = elsewhere
    return report


def _renew(
    one: Measurement, work: Workers, store: Store, renew: bool, report: Report, say: Say
) -> None:
    now = standing(one)
    if now.state in HOLDS and not renew:
        report.held.append(one.label)
        return
    folder = folder_for(one.room)
    wanted, here_now = seeds_of(one.seeds), here()
    known = {} if renew else _known(one, now.result, here_now)
    trials = trials_folder(one, here_now)
    say(f"{one.label}: {len(wanted) - len(known)} of {len(wanted)} seeds to measure. {one.what}")
    missing = [seed for seed in wanted if seed not in known]
    done, failed = work.trials(one, missing, one.settings(), store, trials)
    if failed:
        said = "; ".join(f"seed {seed}: {why}" for seed, why in failed.items())
        report.failed[one.label] = (
            f"{len(failed)} of {len(wanted)} seeds failed ({said}); the others are kept"
        )
        return
    result = result_of(one, [(known | done)[seed] for seed in wanted], here_now)
    try:
        write_result(result, folder / f"{one.name}.json")
    except (OSError, ValueError) as error:
        report.failed[one.label] = f"{error}; all {len(wanted)} seeds are kept in {trials}"
        return
    report.written.append(one.label)
    if trials is not None:
        shutil.rmtree(trials, ignore_errors=True)


def result_of(
    measurement: Measurement, trials: Sequence[Trial], provenance: Mapping[str, Any] | None = None
) -> Result:
    """The result that these trials make, one a seed.

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
        told["digest"] = measurement.digest()
        told["settings"] = {name: str(value) for name, value in measurement.settings().items()}
        told["seconds"] = round(sum(trial.seconds for trial in trials), 1)
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
    """Where trials of a measurement are kept until its result is written; None outside a book.

    Code, settings, data and kind of machine are in its name.
    """
    build = build_folder()
    if build is None or not measurement.room:
        return None
    kind = "".join(c if c.isalnum() else "-" for c in str(provenance.get("kind", "")))
    return build / "measuring" / measurement.label / f"{measurement.digest()[:24]}-{kind}"


def _known(one: Measurement, result: Result | None, now: Mapping[str, Any]) -> dict[int, Trial]:
    """The seeds that an existing result holds of the very same code and kind of machine."""
    if result is None or result.provenance.get("kind") != now.get("kind"):
        return {}
    if result.provenance["digest"] != one.digest():
        return {}
    found = {}
    for index, seed in enumerate(result.seeds):
        values = {n: (axes[1:], v[index]) for n, (axes, v) in result.variables.items()}
        opened = {
            name: list(map(float, each[str(seed)]))
            for name, each in result.openings.items()
            if str(seed) in each
        }
        found[seed] = Trial(seed, values, opened)
    return found


# Work ---------------------------------------------------------------------------------------------


class Workers:
    """Trains and looks: in processes on this machine, through an executor, or stacked on an accelerator."""

    def __init__(self, executor: Executor, progress: bool, *, given: bool) -> None:
        self._executor, self._progress, self._given = executor, progress, given

    def trials(
        self,
        one: Measurement,
        seeds: Sequence[int],
        settings: Mapping[str, Any],
        store: Store,
        folder: Path | None = None,
    ) -> tuple[dict[int, Trial], dict[int, str]]:
        """One trial a seed, and for each seed that failed why; what the folder has is taken from there."""
        done: dict[int, Trial] = {}
        for seed in seeds:
            kept = None if folder is None else read_trial(folder / f"{seed}.json")
            if kept is not None:
                done[seed] = kept
        missing = [seed for seed in seeds if seed not in done]
        failed: dict[int, str] = {}
        if not missing:
            return done, failed
        self._tune(one, missing, settings, store)
        jobs = {seed: list(one.jobs(seed, **settings).values()) for seed in missing}
        broken = self._train([job for each in jobs.values() for job in each], store, one.label)
        with tqdm(
            total=len(missing), desc=f"{one.label}: looking", disable=not self._progress
        ) as bar:
            futures = {self._look(one, seed, settings, store): seed for seed in missing}
            for future in as_completed(futures):
                seed = futures[future]
                try:
                    done[seed] = future.result()
                    if folder is not None:
                        write_trial(done[seed], folder / f"{seed}.json")
                except Exception as error:
                    failed[seed] = f"{type(error).__name__}: {error}"
                bar.update()
        if failed and broken:
            failed = {seed: f"{why} ({'; '.join(broken)})" for seed, why in failed.items()}
        return done, failed

    def _look(
        self, one: Measurement, seed: int, settings: Mapping[str, Any], store: Store
    ) -> Future[Trial]:
        if one.room:
            return self._executor.submit(
                take_by_name, one.room, one.name, seed, dict(settings), store
            )
        future: Future[Trial] = Future()  # defined in a notebook: no other process can find it
        try:
            future.set_result(take(one, seed, settings, store))
        except Exception as error:
            future.set_exception(error)
        return future

    def _train(self, jobs: Sequence[Job], store: Store, label: str) -> list[str]:
        """Have the store hold all runs, each trained once; gives what failed, in words."""
        missing: dict[str, Job] = {}
        for job in jobs:
            key = job.key()
            if key is not None and not store.file(key).exists():
                missing.setdefault(key, job)
        if not missing:
            return []
        broken = []
        steps = sum(job.settings["steps"] for job in missing.values())
        bar = tqdm(
            total=steps,
            desc=f"{label}: {len(missing)} trainings",
            unit="step",
            disable=not self._progress,
        )
        with bar:
            for job, error in self._finished(list(missing.values()), store):
                bar.update(job.settings["steps"])
                if error is not None:
                    broken.append(f"training from seed {job.seed}: {type(error).__name__}: {error}")
        return broken

    def _finished(
        self, jobs: list[Job], store: Store
    ) -> Iterator[tuple[Job, BaseException | None]]:
        if find_device().type != "cpu" and not self._given:
            arms = sorted(jobs, key=lambda job: repr((job.config, job.settings)))
            for job, run in arrivals(_sharing_settings(arms), store=store):
                yield job, run if isinstance(run, Exception) else None
            return
        futures = {self._executor.submit(train_one, job, store): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.exception()

    def _tune(
        self, one: Measurement, seeds: Sequence[int], settings: Mapping[str, Any], store: Store
    ) -> None:
        """Make the searches for learning rates that a measurement waits for, and keep what they find."""
        with wanted_searches() as wanted:
            for seed in seeds:
                one.jobs(seed, **settings)
        searches: dict[str, Search] = {search.name: search for search in wanted}
        trials = {name: search.trials() for name, search in searches.items()}
        jobs = [job for each in trials.values() for job in each.values()]
        self._train(jobs, store, f"{one.label}: tuning {len(searches)} arms")
        for name, search in searches.items():
            keep_rates(
                name,
                search.config,
                search.task,
                trials[name],
                rates=search.rates,
                seeds=search.seeds,
                steps=search.steps,
                options=search.options,
                store=store,
            )


def _sharing_settings(jobs: Sequence[Job]) -> list[Job]:
    """Jobs of one arm that share their settings object, by which `arrivals` knows what to stack."""
    shared: dict[str, Job] = {}
    found = []
    for job in jobs:
        first = shared.setdefault(repr((job.config, job.task, job.settings)), job)
        found.append(
            job if first is job else Job(first.config, first.task, job.seed, first.settings)
        )
    return found


@contextmanager
def _workers(executor: Executor | None, progress: bool) -> Iterator[Workers]:
    with ExitStack() as stack:
        if executor is None:
            own: Any = LocalProcesses(max(1, available_cores()))
            executor = stack.enter_context(own)
            yield Workers(executor, progress, given=False)
        else:
            yield Workers(executor, progress, given=True)


@contextmanager
def _a_store() -> Iterator[Store]:
    """The store of the book, else one for as long as it takes."""
    found = found_store()
    with nullcontext() if found else tempfile.TemporaryDirectory() as folder:
        yield found or Store(Path(str(folder)))


@contextmanager
def _locked(one: Measurement, wait: bool) -> Iterator[bool]:
    """Hold a measurement's lock; the operating system lifts that of a process that dies."""
    build = build_folder()
    if build is None:
        yield True
        return
    file = build / "measuring" / "locks" / f"{one.label}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
