"""Showing that changed code computes what the kept results were measured with, and writing that down.

Where the code of a measurement has changed, its fingerprint is taken again: where that is the kept one, the
code as it is now is attested, and no seed is trained again. Each attestation is written as soon as it is there,
so an interrupted `make attest` goes on where it was; a second one waits for the first and finds its work done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from filelock import FileLock, Timeout
from measured_transformer.training.folders import build_folder
from measured_transformer.training.tuned_table import PACKAGED, add_lines
from measured_transformer.training.tuning import Arm, renew_rates

from measured_book.evidence.seeds import seed_offset, seeds_of
from measured_book.measuring.attestations import Attestation, code_of, keep_attestation
from measured_book.measuring.fingerprints import Fingerprint, Taken
from measured_book.measuring.inputs import how_to_get, missing_inputs
from measured_book.measuring.jobs import kept_choices, search_key
from measured_book.measuring.measurement import Measurement
from measured_book.measuring.progress import Progress, Shown
from measured_book.measuring.repeating import measured_in_full
from measured_book.measuring.scheduler import locked
from measured_book.measuring.slices import Slice, TimeUpError
from measured_book.measuring.state import (
    ATTESTED,
    CURRENT,
    RESULTS_VARIABLE,
    UNATTESTED,
    Status,
    environment,
    note_stale,
    status,
)
from measured_book.measuring.taking import fingerprints, fresh_fingerprints
from measured_book.measuring.work import Workers

Say = Callable[[str], None]


@dataclass
class Attested:
    """One measurement whose code was to be attested.

    Attributes:
        measurement: which.
        problem: why it is not; empty where it is.
    """

    measurement: Measurement
    problem: str = ""


def attest(
    measurements: Iterable[Measurement],
    *,
    executor: Executor | None = None,
    progress: Shown = "nothing",
    say: Say = print,
) -> list[Attested]:
    """Attest the code of each measurement whose result is not known to be what the code computes.

    - A fingerprint is kept: it is taken again. Where it is the same, the code as it is now is attested; where
      it is another, the result is stale.
    - The result was measured with this very code, and no fingerprint is kept: it is taken and kept.
    - Neither: the first seeds are measured again in full and compared as in a repeat; then it is taken.

    What another process is measuring is left to that.

    Raises:
        ValueError: the results are another set than the book's own, beside which fingerprints are kept.
    """
    if other := _other_set():
        raise ValueError(
            f"expected the book's own results to attest, got another set ({other}); unset that, or run make "
            "measure, which measures again what the code no longer gives"
        )
    with _alone(say), ExitStack() as locks:
        mine: dict[Measurement, Status] = {}
        for one in measurements:
            at = status(one)
            if not _lacks_something(at):
                continue
            if locks.enter_context(locked(one, wait=False)):
                mine[one] = at
            else:
                say(f"{one.label}: another process is measuring it")
        found = {one: Attested(one) for one in mine}
        for one in mine:
            if lacking := missing_inputs(one):
                found[one].problem = how_to_get(lacking)
        with Progress(progress, say) as shown, Workers(executor, shown) as work:
            _attest_by_fingerprint(mine, found, work, shown)
            _measure_anew(mine, found, executor, progress, shown.note)
            _keep_fingerprints(mine, found, work, shown)
    return list(found.values())


def keep_fingerprints(
    measurements: Iterable[Measurement],
    *,
    executor: Executor | None = None,
    progress: Shown = "nothing",
    say: Say = print,
    limit: Slice | None = None,
) -> dict[str, str]:
    """Keep the fingerprints of measurements whose results were measured with the code as it is now.

    Of results with other seeds, or in a folder of their own, nothing is kept: the book's own have them. Of
    those that have one nothing is taken.

    Args:
        measurements, executor, progress, say: as for `attest`.
        limit: the time that there is.

    Returns:
        what went wrong, by label.

    Raises:
        TimeUpError: the time is up; fingerprints that were taken are kept.
    """
    if _other_set():
        return {}
    if not (lacking := list(_without_fingerprint(measurements))):
        return {}
    with _alone(say, limit):
        mine = _without_fingerprint(lacking)  # another process may have taken it meanwhile
        found = {one: Attested(one) for one in mine}
        with Progress(progress, say) as shown, Workers(executor, shown, limit=limit) as work:
            _keep_fingerprints(mine, found, work, shown)
    return {one.label: item.problem for one, item in found.items() if item.problem}


def _other_set() -> str:
    """The setting by which results are others than the book's own; empty where they are these."""
    if offset := seed_offset():
        return f"MEASURED_SEED_OFFSET={offset}"
    elsewhere = os.environ.get(RESULTS_VARIABLE, "")
    return f"{RESULTS_VARIABLE}={elsewhere}" if elsewhere else ""


def _without_fingerprint(measurements: Iterable[Measurement]) -> dict[Measurement, Status]:
    """Those that were measured with the code as it is now, of which no fingerprint is kept."""
    found = {}
    for one in measurements:
        with suppress(OSError, ValueError):  # which measuring it says
            at = status(one)
            if at.state == CURRENT and at.attestation is None:
                found[one] = at
    return found


def _lacks_something(at: Status) -> bool:
    if at.result is None or at.code is None:
        return False
    return at.state == UNATTESTED or (at.state in (CURRENT, ATTESTED) and at.attestation is None)


@contextmanager
def _alone(say: Say, limit: Slice | None = None) -> Iterator[None]:
    """Wait until no other process takes fingerprints. Raises `TimeUpError` where there is no time for that."""
    build = build_folder()
    if build is None:
        yield
        return
    folder = build / "measuring" / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "attest.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("another process attests; this one waits for it")
        try:
            lock.acquire(timeout=-1 if limit is None else limit.left)
        except Timeout:
            raise TimeUpError from None
    try:
        yield
    finally:
        lock.release()


def _attest_by_fingerprint(
    mine: dict[Measurement, Status],
    found: dict[Measurement, Attested],
    work: Workers,
    shown: Progress,
) -> None:
    """Take the fingerprints that are kept again; where one is the same, the code as it is now is attested."""
    wanted = {
        one: at.attestation.fingerprint.has_values
        for one, at in mine.items()
        if at.attestation is not None and not found[one].problem
    }
    for one, taken in fingerprints(wanted, work, shown):
        known = mine[one].attestation
        assert known is not None
        item = found[one]
        if isinstance(taken, Exception):
            item.problem = f"no fingerprint: {type(taken).__name__}: {taken}"
        elif differences := known.fingerprint.differences(taken.fingerprint):
            note_stale(one)
            item.problem = f"{'; '.join(differences)}: run make measure CHAPTER={one.room}"
        else:
            item.problem = _keep(one, mine[one], known.fingerprint, taken)
        shown.note(f"{one.label}: {item.problem or 'attested'}")


def _measure_anew(
    mine: dict[Measurement, Status],
    found: dict[Measurement, Attested],
    executor: Executor | None,
    progress: Shown,
    say: Say,
) -> None:
    """Measure first seeds in full where neither the code nor a fingerprint says what the result is of."""
    unknown = [
        one
        for one, at in mine.items()
        if at.attestation is None and at.state == UNATTESTED and not found[one].problem
    ]
    if not unknown:
        return
    for one, problem in measured_in_full(unknown, executor=executor, progress=progress, say=say):
        if problem:
            note_stale(one)
            found[one].problem = f"{problem}: run make measure CHAPTER={one.room}"


def _keep_fingerprints(
    mine: dict[Measurement, Status],
    found: dict[Measurement, Attested],
    work: Workers,
    shown: Progress,
) -> None:
    """Take and keep the fingerprints that nobody has kept yet."""
    lacking = [one for one, at in mine.items() if at.attestation is None and not found[one].problem]
    for one, fingerprint in fresh_fingerprints(lacking, work, shown):
        if isinstance(fingerprint, Exception):
            why = f"no fingerprint: {type(fingerprint).__name__}: {fingerprint}"
            found[one].problem = why
        else:
            found[one].problem = _keep(one, mine[one], fingerprint, None)
        shown.note(f"{one.label}: {found[one].problem or 'fingerprint kept'}")


def _keep(one: Measurement, at: Status, fingerprint: Fingerprint, taken: Taken | None) -> str:
    """Write an attestation down; gives what went wrong."""
    assert at.result is not None
    assert at.code is not None
    try:
        _renew_choices(one, [] if taken is None else taken.choices)
        date = str(environment()["date"])
        kept = Attestation(code_of(at.result), at.code, one.versions(), fingerprint, date)
        keep_attestation(one.room, one.name, kept)
    except OSError as error:
        return f"its fingerprint is the same, but that could not be written down: {error}"
    return ""


def _renew_choices(one: Measurement, lines: Sequence[Mapping[str, Any]]) -> None:
    """Have learning rates that were chosen with other code hold for this."""
    with kept_choices() as taken:
        one.jobs(seeds_of(1)[0], **one.settings())
    for search in {search_key(search): search for search in taken}.values():
        renew_rates(
            search.name,
            Arm(search.config, search.options),
            search.task,
            rates=search.rates,
            seeds=search.seeds,
            steps=search.steps,
        )
    if lines:
        add_lines([dict(line) for line in lines], PACKAGED)
