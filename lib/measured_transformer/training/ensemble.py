"""Trains many seeds of one config: each as if alone, all of them as fast as the machine allows."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, as_completed
from contextlib import ExitStack
from typing import Any

import torch
from tqdm import tqdm

from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.device import find_device
from measured_transformer.training.jobs import Job, make_jobs, obtain, perform
from measured_transformer.training.loop import Run, train
from measured_transformer.training.processes import LocalProcesses, ProcessDiedError
from measured_transformer.training.stacked import CannotStackError, train_stacked
from measured_transformer.training.store import Store, Where, as_store, contents, pack

LARGEST_STACK = 64
_TRIAL_STEPS = 3
_SECONDS_TO_START = 8.0  # what processes must save, at least, to be worth their start
Arrival = tuple[Job, Run | Exception]


def train_ensemble(
    config: Config,
    task: Task,
    seeds: Sequence[int],
    *,
    executor: Executor | None = None,
    store: Where = "found",
    stacked: bool | None = None,
    checkpoint_every: int | None = None,
    progress: bool = False,
    **options: Any,
) -> list[Run]:
    """Train one model from each seed; runs in the store are reused.

    On a CPU the runs are those of `train`, bit for bit. They are trained in as many processes of one thread
    as PyTorch has threads (`torch.get_num_threads`), when that saves more than starting processes costs;
    otherwise one after another. On an accelerator they are stacked where that is possible, and equal to those
    of `train` up to rounding.

    Args:
        config, task: as for `train`.
        seeds: of the runs.
        executor: where to train instead, such as a process pool; see `sweep`.
        store: where runs are looked up and kept: a `Store` or its folder, None for nowhere, 'found' for the
            one that `found_store` finds.
        stacked: True to stack on any device, False never to stack.
        checkpoint_every: after how many steps the state of an unfinished run is kept beside the store, so
            that it goes on from there when it was interrupted; None for never. Not for stacks.
        progress: whether to show a progress bar over the runs.
        options: the other arguments of `train`; `steps` and `learning_rate` are needed.

    Returns:
        one `Run` a seed, in the order of the seeds.

    Raises:
        ValueError: as `train`, and when a checkpoint is named; a `CannotStackError` when `stacked` is True
            and the models cannot be stacked.
        TypeError: when `train` has no such option, or needs one that is missing.

    >>> from measured_transformer.tasks.reversal import Reversal
    >>> config, task = Config(vocab=4, d_model=16, n_layers=1), Reversal(vocab=4, length=4)
    >>> runs = train_ensemble(config, task, [0, 1], steps=2, learning_rate=0.01, store=None)
    >>> [run.seed for run in runs]
    [0, 1]
    """
    jobs = make_jobs(
        config, task, list(dict.fromkeys(seeds)), options, checkpoint_every=checkpoint_every
    )
    found: dict[int, Run] = {}
    arriving = arrivals(jobs, executor=executor, store=as_store(store), stacked=stacked)
    for job, run in tqdm(arriving, total=len(jobs)) if progress else arriving:
        if isinstance(run, Exception):
            arriving.close()
            raise run
        found[job.seed] = run
    return [found[seed] for seed in seeds]


def arrivals(
    jobs: Sequence[Job],
    *,
    executor: Executor | None = None,
    store: Store | None = None,
    stacked: bool | None = None,
) -> Generator[Arrival, None, None]:
    """Yield each job once, with its run or error, in order of completion.

    What the store has comes first. Jobs of one arm stand next to one another and share their settings.

    Args:
        jobs: what is asked for.
        executor: trains what is missing; when not given, this machine does.
        store: where runs are looked up and kept.
        stacked: as for `train_ensemble`.

    Raises:
        ValueError: when runs shall be stacked and an executor is given: it trains them one by one.
    """
    if stacked and executor is not None:
        raise ValueError("an executor trains runs one by one: give either executor or stacked=True")
    missing = []
    for job in jobs:
        run = _stored(job, store, stacked)
        if run is None:
            missing.append(job)
        else:
            yield job, run
    if not missing:
        return
    on_device = find_device().type != "cpu"
    if executor is not None:
        yield from _through(executor, missing, store)
    elif stacked or (stacked is None and on_device):
        for _, arm in itertools.groupby(missing, key=lambda job: id(job.settings)):
            yield from _as_a_stack(list(arm), store, insist=bool(stacked))
    elif (number := 1 if on_device else _processes_worth(missing)) > 1:
        with LocalProcesses(number) as own:
            yield from _through(own, missing, store)
    else:
        yield from _here(missing, store)


def _stored(job: Job, store: Store | None, stacked: bool | None) -> Run | None:
    if store is None:
        return None
    forms = [True] if stacked else [False]
    if stacked is None and find_device().type != "cpu":
        forms = [True, False]  # equal up to rounding, which no accelerator promises anyway
    for form in forms:
        key = job.key(stacked=form)
        data = None if key is None else store.read(key)
        if data is not None:
            return job.unpacked(data)
    return None


def _here(jobs: Sequence[Job], store: Store | None) -> Iterator[Arrival]:
    """Train one after another; runs that another process is training come last."""
    for wait in (False, True):
        elsewhere = []
        for job in jobs:
            try:
                found = obtain(job, store, wait=wait)
                if found is None:
                    elsewhere.append(job)
                else:
                    yield job, job.unpacked(found) if isinstance(found, bytes) else found
            except Exception as error:
                yield job, error
        jobs = elsewhere


def _through(executor: Executor, jobs: Sequence[Job], store: Store | None) -> Iterator[Arrival]:
    """Train through the executor; calls that break with it are retried once on this machine."""
    broken = []
    for job, found in _futures(executor, jobs, store):
        if isinstance(found, BrokenExecutor | ProcessDiedError):
            broken.append(job)
        else:
            yield _arrived(job, found, store)
    if broken:
        with LocalProcesses(max(1, min(available_cores(), len(broken)))) as own:
            for job, found in _futures(own, broken, store):
                yield _arrived(job, found, store)


def _futures(
    executor: Executor, jobs: Sequence[Job], store: Store | None
) -> Iterator[tuple[Job, bytes | Exception]]:
    futures = {}
    try:
        for job in jobs:
            try:
                futures[executor.submit(perform, job, store)] = job
            except BrokenExecutor as error:
                yield job, error
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except Exception as error:
                yield futures[future], error
    finally:
        for future in futures:
            future.cancel()


def _arrived(job: Job, found: bytes | Exception, store: Store | None) -> Arrival:
    if isinstance(found, Exception):
        return job, found
    try:
        _, about = contents(found)
        key = about.get("key")
        if store is not None and key is not None and not store.file(key).exists():
            store.write(key, found)  # trained on a machine with another store
        return job, job.unpacked(found)
    except ValueError as error:
        return job, error


def _as_a_stack(jobs: list[Job], store: Store | None, *, insist: bool) -> Iterator[Arrival]:
    """Train in stacks as large as memory allows, or one by one where stacking is impossible."""
    if len(jobs) == 1 and not insist:
        yield from _here(jobs, store)
        return
    keys = {id(job): None if store is None else job.key(stacked=True) for job in jobs}
    with ExitStack() as locks:
        if store is not None:
            for known in sorted(key for key in keys.values() if key is not None):
                locks.enter_context(store.locked(known))
        missing = []
        for job in jobs:
            run = _stored(job, store, True)  # by another process, while this one waited
            if run is None:
                missing.append(job)
            else:
                yield job, run
        for job, found in _stacks(missing, insist):
            missing.remove(job)
            if isinstance(found, Run):
                found.model.zero_grad()
                key = keys[id(job)]
                if store is not None and key is not None:
                    store.write(key, pack(found, job.about(key, stacked=True)))
            yield job, found
    yield from _here(missing, store)


def _stacks(jobs: Sequence[Job], insist: bool) -> Iterator[Arrival]:
    """Train in stacks that shrink when memory runs out; yields nothing for what cannot be stacked.

    Args:
        jobs: of one arm.
        insist: whether that they cannot be stacked is the error that each of them ends with.
    """
    rest, size = list(jobs), LARGEST_STACK
    while rest:
        stack = rest[:size]
        first, seeds = stack[0], [job.seed for job in stack]
        try:
            runs = train_stacked(first.config, first.task, seeds, **first.settings)
        except Exception as error:
            if isinstance(error, CannotStackError) and not insist:
                return
            if isinstance(error, torch.OutOfMemoryError) and size > 1:
                size = max(1, len(stack) // 2)
                continue
            yield from ((job, error) for job in rest)
            return
        yield from zip(stack, runs, strict=True)
        rest = rest[size:]


def _processes_worth(jobs: Sequence[Job]) -> int:
    """The number of training processes; 1 when more would not pay or could not receive the jobs."""
    threads = jobs[0].settings["threads"]
    if threads is None or torch.get_default_dtype() != torch.float32:
        return 1  # other processes would compute otherwise
    number = min(available_cores() // threads, len(jobs))
    if number < 2 or not all(map(_travels, jobs)):
        return 1
    start = time.perf_counter()
    shorter = {"steps": _TRIAL_STEPS, "evaluate_every": None, "after_step": None}
    trial = {**jobs[0].settings, **shorter}
    train(jobs[0].config, jobs[0].task, seed=jobs[0].seed, **trial)
    a_step = (time.perf_counter() - start) / _TRIAL_STEPS
    alone = a_step * sum(job.settings["steps"] for job in jobs)
    return number if alone * (1 - 1 / number) > _SECONDS_TO_START else 1


def available_cores() -> int:
    """The number of cores that this process may use and PyTorch was given."""
    if hasattr(os, "sched_getaffinity"):
        return min(torch.get_num_threads(), len(os.sched_getaffinity(0)))
    return min(torch.get_num_threads(), os.cpu_count() or 1)


def _travels(job: Job) -> bool:
    """Return whether another process can rebuild the job; false for code defined in a notebook or script."""
    try:
        return b"__main__" not in pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
