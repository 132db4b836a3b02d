"""Taking the fingerprints of many measurements, on all cores, and of each twice where it is to be kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, as_completed
from contextlib import ExitStack
from functools import partial

from measured_transformer.training.ensemble import available_cores
from measured_transformer.training.processes import LocalProcesses

from measured_book.evidence.seeds import seeds_of
from measured_book.measuring.fingerprints import (
    OTHERS,
    SLOW,
    Fingerprint,
    Taken,
    take_by_label,
    take_fingerprint,
)
from measured_book.measuring.measurement import Measurement
from measured_book.measuring.progress import A_LOOK, Progress
from measured_book.measuring.slices import TimeUpError
from measured_book.measuring.work import Workers

Outcome = tuple[Measurement, Taken | Exception]


def fingerprints(
    wanted: Mapping[Measurement, bool],
    work: Workers,
    shown: Progress,
    *,
    most: float = math.inf,
) -> Iterator[Outcome]:
    """The fingerprint of each measurement from its first seed, or the error that it ended with, as they come.

    Args:
        wanted: the measurements, and of each whether to read values.
        work: what computes.
        shown: what is told of it.
        most: seconds of reading after which values are left out.

    Raises:
        TimeUpError: the time that `work` has is up.
    """
    for one in wanted:
        shown.expect("fingerprints", one.label, A_LOOK)
    asked: dict[Future[Taken], Measurement] = {}
    for one, values in sorted(wanted.items(), key=lambda each: -_weight(each[0])):
        if one.room:
            call = partial(take_by_label, (one.room, one.name), seeds_of(1)[0], values=values)
            asked[work.submit(partial(call, most=most))] = one
        else:  # defined in a notebook: no other process can find it
            asked[_done(one, values)] = one
    for future in _as_completed(asked, work):
        one = asked[future]
        shown.advance("fingerprints", one.label, A_LOOK)
        error = future.exception()
        if error is None:
            yield one, future.result()
        elif isinstance(error, Exception):
            yield one, error
        else:
            raise error


def fresh_fingerprints(
    measurements: Iterable[Measurement], work: Workers, shown: Progress
) -> Iterator[tuple[Measurement, Fingerprint | Exception]]:
    """Fingerprints to be kept: of each what two takings agree in, the second as unlike as rounding can be.

    On this machine the second is taken with other kernels of its processor and from nudged weights; an executor
    that was given nudges weights alone. Values whose reading takes longer than `SLOW` are left out.

    Args:
        measurements, work, shown: as for `fingerprints`.
    """
    with ExitStack() as processes:
        submit: Callable[[partial[Taken]], Future[Taken]] = work.submit
        if work.is_local:
            number = max(1, available_cores())
            submit = processes.enter_context(LocalProcesses(number, OTHERS)).submit
        first: dict[Measurement, Fingerprint] = {}
        second: dict[Future[Taken], Measurement] = {}
        for one, taken in fingerprints(dict.fromkeys(measurements, True), work, shown, most=SLOW):
            if isinstance(taken, Exception):
                yield one, taken
                continue
            first[one] = taken.fingerprint
            values = taken.fingerprint.has_values
            call = partial(take_by_label, (one.room, one.name), seeds_of(1)[0], values=values)
            second[submit(partial(call, nudged=True))] = one
            for future in [future for future in second if future.done()]:
                yield _kept(second.pop(future), future, first)
        for future in _as_completed(second, work):
            yield _kept(second[future], future, first)


def _as_completed(futures: Iterable[Future[Taken]], work: Workers) -> Iterator[Future[Taken]]:
    """As `concurrent.futures.as_completed`, until the time is up."""
    try:
        yield from as_completed(futures, None if work.limit is None else work.limit.left)
    except TimeoutError:
        raise TimeUpError from None


def _kept(
    one: Measurement, future: Future[Taken], first: Mapping[Measurement, Fingerprint]
) -> tuple[Measurement, Fingerprint | Exception]:
    error = future.exception()
    if error is None:
        return one, first[one].agreeing(future.result().fingerprint)
    return one, error if isinstance(error, Exception) else RuntimeError(str(error))


def _weight(one: Measurement) -> float:
    """What takes longest comes first, as far as one can tell without planning it."""
    return float(one.trainings is not None)


def _done(one: Measurement, values: bool) -> Future[Taken]:
    future: Future[Taken] = Future()
    try:
        future.set_result(take_fingerprint(one, seeds_of(1)[0], values=values))
    except Exception as error:
        future.set_exception(error)
    return future
