"""`python -m measured_book.measuring`: measure, attest or repeat what the chapters declare."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measured_transformer.provenance import unchanging

from measured_book.evidence.grammar import nearest
from measured_book.evidence.results import chapters_folder
from measured_book.measuring.archives import Archive
from measured_book.measuring.attesting import attest, keep_fingerprints
from measured_book.measuring.changes import as_markdown, changes, results_in, set_at
from measured_book.measuring.machine import device_in_words, restart_with_kernels
from measured_book.measuring.measurement import Measurement, measurements_of, rooms
from measured_book.measuring.progress import Shown
from measured_book.measuring.repeating import Report, repeat
from measured_book.measuring.scheduler import Report as Measured
from measured_book.measuring.scheduler import measure_all
from measured_book.measuring.shares import SHARES, TURNS, divided, due_share
from measured_book.measuring.slices import Slice, TimeUpError, positive
from measured_book.measuring.state import check_folder_is_there, status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 for success, 1 for failures, 2 for bad arguments."""
    options = _parser().parse_args(arguments)
    try:
        if options.diff is not None:
            return _diff(options)
        options.limit, options.archived = _limits(options)
        chosen = _measurements(options.chapters)
        with cluster(options.cluster) as options.executor:
            status: int = options.command(chosen, options)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "interrupted: what is done is kept; the same command goes on from there",
            file=sys.stderr,
        )
        return 130
    return status


@contextmanager
def cluster(address: str | None) -> Iterator[Executor | None]:
    """The executor that trains and evaluates: the workers of a dask cluster, or None for this machine's cores.

    Raises:
        ValueError: dask is not installed, or nothing answers at that address.
    """
    if address is None:
        yield None
        return
    try:
        from dask.distributed import Client
    except ModuleNotFoundError:
        raise ValueError(
            "expected the package dask[distributed] for --cluster: install measured-transformer[cluster]"
        ) from None
    try:
        client: Any = Client(address, timeout=20)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ValueError(f"expected a dask scheduler at {address}, got {error}") from None
    with client:
        yield client.get_executor(pure=False)


def _limits(options: argparse.Namespace) -> tuple[Slice | None, Archive | None]:
    """The time that there is, and the archive that is gone on from."""
    limit = None if options.minutes is None else Slice(options.minutes)
    size = positive(options.archive_limit, "megabytes of an archive")
    archive = None if options.archive is None else Archive(Path(options.archive), size, _say)
    if options.command is not _measure and (limit or archive):
        raise ValueError("expected --minutes and --archive with measuring alone")
    return limit, archive


def _measure(chosen: Sequence[Measurement], options: argparse.Namespace) -> int:
    """Measure what is missing or stale, with all seeds."""
    start, report = time.monotonic(), Measured()
    archive: Archive | None = options.archived
    if archive is not None:
        archive.unpack(chosen)
    try:
        _in_time(chosen, options, report)
    finally:
        if archive is not None:
            archive.pack(chosen, report)
    for label, why in report.failed.items():
        print(f"{label}: {why}", file=sys.stderr)
    _say(
        f"{len(report.written)} measured, {len(report.held)} held, {len(report.failed)} failed, in "
        f"{time.monotonic() - start:.0f} s"
    )
    if report.time_is_up:
        there = len({*report.written} if options.renew else {*report.written, *report.held})
        left = len(chosen) - there
        rest = f"{left} left" if left else "fingerprints are left"
        _say(
            f"time is up: {there} of {len(chosen)} measured, {len(report.written)} of them in this slice, "
            f"{rest}; the same command goes on from there"
        )
    if report.failed:
        print("run make measure again: only what is missing is measured", file=sys.stderr)
    return int(bool(report.failed))


def _in_time(chosen: Sequence[Measurement], options: argparse.Namespace, report: Measured) -> None:
    """Measure, and keep the fingerprint of each result that has none; a slice begins with those left over."""
    limit: Slice | None = options.limit

    def keep(those: Sequence[Measurement]) -> None:
        report.failed.update(
            keep_fingerprints(those, executor=options.executor, say=_say, limit=limit)
        )

    try:
        if limit is not None:
            keep(chosen)
        measure_all(
            chosen,
            executor=options.executor,
            renew=options.renew,
            progress=_shown(options),
            say=_say,
            limit=limit,
            report=report,
        )
        if not report.time_is_up:
            done = {*report.written, *report.held}
            keep([one for one in chosen if one.label in done])
    except TimeUpError:
        report.time_is_up = True


def _attest(chosen: Sequence[Measurement], options: argparse.Namespace) -> int:
    """Show that changed code computes what the kept results were measured with."""
    check_folder_is_there()
    start = time.monotonic()
    found = attest(chosen, executor=options.executor, progress=_shown(options), say=_say)
    failed = [item for item in found if item.problem]
    for item in failed:
        print(f"{item.measurement.label}: {item.problem}", file=sys.stderr)
    _say(f"{len(found) - len(failed)} of {len(found)} attested in {time.monotonic() - start:.0f} s")
    return int(bool(failed)) or _status(chosen, options)


def _repeat(chosen: Sequence[Measurement], options: argparse.Namespace) -> int:
    """Take fingerprints again, measure the first seeds of a share in full, and compare."""
    check_folder_is_there()
    start = time.monotonic()
    due = _due(chosen, options.share)
    _say(due.words)
    report = repeat(
        chosen,
        full=due.full,
        in_turn=due.in_turn,
        executor=options.executor,
        progress=_shown(options),
        say=_say,
    )
    for claim, (before, after) in report.verdicts.items():
        print(f"{claim}: {before} becomes {after} with the values measured now", file=sys.stderr)
    for claim, (before, after) in report.fragile.items():
        _say(
            f"{claim}: {before} becomes {after}; it is fragile: another draw of a seed does that too"
        )
    for room, gone in report.numbers.items():
        for one in gone:
            print(f"{room}: {one}", file=sys.stderr)
    for item in report.items:
        for why in item.failures:
            print(f"{item.measurement.label}: {why}", file=sys.stderr)
    _say(_summary(report, time.monotonic() - start))
    return int(not report.passed)


def _summary(report: Report, seconds: float) -> str:
    """What a repeat found, in a few lines: all that lies far from what is kept, the farthest first."""
    told = [item for item in report.items if item.comparison is not None]
    equal, within, outside = (
        sum(getattr(item.comparison, what) for item in told)
        for what in ("equal", "within", "outside")
    )
    places = [
        (distance, f"{item.measurement.label} {words}")
        for item in told
        if item.comparison is not None
        for distance, words in item.comparison.where
    ]
    lines = [words for _, words in sorted(places, key=lambda one: -one[0])[:10]]
    left_out = [item for item in report.items if item.lacks]
    due = [item for item in report.items if item.in_turn]
    taken = len([item for item in due if not item.problem and not item.lacks])
    other = len([item for item in report.items if item.differences])
    gone = sum(map(len, report.numbers.values()))
    fragile = f" and {len(report.fragile)} fragile ones" if report.fragile else ""
    found = [
        *(["farthest from what is kept:", *(f"  {line}" for line in lines)] if lines else []),
        *([f"{len(left_out)} left out, whose corpus is not here; see above"] if left_out else []),
        f"{taken} fingerprints taken, {other} of them others than those kept; of {equal + within + outside} "
        f"values of {len(told)} measurements {equal} came back equal, {within} within the spread of the seeds, "
        f"{outside} outside; {len(report.verdicts)} verdicts changed{fragile}, {gone} printed numbers left "
        f"their intervals; {seconds:.0f} s",
    ]
    return "\n".join(found)


@dataclass(frozen=True)
class _Due:
    """What a repeat measures again.

    Attributes:
        full: what it measures in full.
        in_turn: of what it takes the fingerprint.
        words: both, said in a line.
    """

    full: Sequence[Measurement]
    in_turn: Sequence[Measurement]
    words: str


def _due(chosen: Sequence[Measurement], share: str | None) -> _Due:
    """What a repeat measures again: all, or the share that is named or due, and what is not attested."""
    if share is None:
        return _Due(chosen, chosen, "all measurements are repeated in full")
    if share != "due" and share not in map(str, range(SHARES)):
        raise ValueError(f"expected a share from 0 to {SHARES - 1}, or 'due', got {share!r}")
    which = due_share() if share == "due" else int(share)
    seconds = {}
    for one in chosen:
        at = status(one)
        if at.result is not None:
            took = float(at.result.provenance.get("seconds", 1.0)) / len(at.result.seeds)
            # of some the openings of their trainings are all that is measured again, and not everywhere
            seconds[one.label] = 1.0 if one.repeat == "opening" else took * one.repeated
    full = divided(chosen, seconds)[which]
    changed = [one for one in chosen if not status(one).is_valid]
    in_turn = divided(chosen, seconds, TURNS)[which % TURNS]
    words = (
        f"share {which} of {SHARES} is repeated in full: {len(full)} of {len(chosen)} measurements; "
        f"with a fifth of all, {len({*full, *changed, *in_turn})} fingerprints are taken"
    )
    if changed:
        words += f"; the code of {len(changed)} is not attested, and those are repeated in full"
    return _Due([*full, *(one for one in changed if one not in full)], in_turn, words)


def _status(chosen: Sequence[Measurement], options: argparse.Namespace) -> int:
    """Say of each measurement whether its result is valid."""
    check_folder_is_there()
    del options
    wrong = 0
    with unchanging():  # or the same modules are looked for again for each measurement
        found = [(one, status(one)) for one in chosen]
    for one, now in found:
        wrong += not now.is_valid
        print(f"{'  ' if now.is_valid else '* '}{one.label}: {now.why or now.state}")
    return int(bool(wrong))


def _device(chosen: Sequence[Measurement], options: argparse.Namespace) -> int:
    """Name the GPU that trains, or say why there is none."""
    del chosen, options
    _say(device_in_words())
    return 0


def _diff(options: argparse.Namespace) -> int:
    """Print the differences between two sets of results as Markdown."""
    chosen = [name.replace("-", "_") for name in options.chapters]
    with set_at(options.diff) as before, set_at(options.to or str(chapters_folder())) as after:
        sets = results_in(before), results_in(after)
        known = sorted({*sets[0], *sets[1]})
        for name in chosen:
            if name not in known:
                raise ValueError(
                    f"expected a chapter with results in one of the sets, got {name!r}; {nearest(name, known)}"
                )
        _say(as_markdown(changes(*sets, chosen)))
    return 0


def _measurements(names: Sequence[str]) -> list[Measurement]:
    chosen = [name.replace("-", "_") for name in names] or rooms()
    return [one for room in chosen for one in measurements_of(room).values()]


def _shown(options: argparse.Namespace) -> Shown:
    """Choose a progress bar for a terminal and lines for a log."""
    return "bar" if sys.stderr.isatty() or options.progress else "lines"


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m measured_book.measuring", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("chapters", nargs="*", help="rooms of chapters (default: all)")
    parser.set_defaults(command=_measure)
    parser.add_argument("--renew", action="store_true", help="measure again what holds, too")
    parser.add_argument(
        "--minutes",
        metavar="N",
        help="measure what can be done in so many minutes; the same command goes on from there",
    )
    parser.add_argument(
        "--archive",
        metavar="FILE",
        help="go on from what this tar file holds, and leave in it what is done at the end",
    )
    parser.add_argument(
        "--archive-limit",
        metavar="MB",
        default="60",
        help="no more runs in the archive than make this size (default: 60)",
    )
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help="of a dask scheduler, whose workers do all"
    )
    parser.add_argument(
        "--share",
        metavar="K",
        help=f"repeat in full only the K-th of {SHARES} shares; 'due': the one that follows from the commit",
    )
    parser.add_argument("--progress", action="store_true", help="show a bar in a log as well")
    for command in (_attest, _repeat, _status, _device):
        name = f"--{command.__name__.strip('_')}"
        told = (command.__doc__ or "").rstrip(".")
        parser.add_argument(name, dest="command", action="store_const", const=command, help=told)
    parser.add_argument(
        "--diff",
        metavar="SET",
        help="print as Markdown what changed since a set of results: a folder, a commit, or COMMIT:FOLDER",
    )
    parser.add_argument("--to", metavar="SET", help="what --diff compares with (default: as it is)")
    return parser


if __name__ == "__main__":
    restart_with_kernels()
    sys.exit(main())
