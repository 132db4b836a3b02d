"""`python -m measured_book.measuring`: measure, attest or repeat what the chapters declare."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from measured_book.evidence.results import chapters_folder
from measured_book.measuring.changes import as_markdown, changes, results_in, set_at
from measured_book.measuring.machine import device_in_words, restart_with_kernels
from measured_book.measuring.measurement import Measurement, measurements_of, rooms
from measured_book.measuring.progress import Shown
from measured_book.measuring.repeating import attest, flipped, repeat
from measured_book.measuring.scheduler import measure_all
from measured_book.measuring.state import HOLDS, standing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 for success, 1 for failures, 2 for bad arguments."""
    options = _parser().parse_args(arguments)
    try:
        if options.diff is not None:
            return _diff(options)
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


def _measure(chosen: Sequence[Measurement], options: argparse.Namespace) -> int:
    """Measure what is missing or stale, with all seeds."""
    start = time.monotonic()
    report = measure_all(
        chosen, executor=options.executor, renew=options.renew, progress=_shown(options), say=_say
    )
    for label, why in report.failed.items():
        print(f"{label}: {why}", file=sys.stderr)
    _say(
        f"{len(report.written)} measured, {len(report.held)} held, {len(report.failed)} failed, in "
        f"{time.monotonic() - start:.0f} s"
    )
    if report.failed:
        print("run make measure again: only what is missing is measured", file=sys.stderr)
    return int(bool(report.failed))


def _attest(chosen: Sequence[Measurement], options: argparse.Namespace) -> int:
    """Show that changed code still gives the kept values."""
    found = attest(chosen, executor=options.executor, progress=_shown(options), say=_say)
    failed = [item for item in found if item.problem]
    for item in failed:
        print(f"{item.measurement.label}: {item.problem}", file=sys.stderr)
    _say(f"{len(found) - len(failed)} of {len(found)} attested")
    return int(bool(failed)) or _status(chosen, options)


def _repeat(chosen: Sequence[Measurement], options: argparse.Namespace) -> int:
    """Measure the first seeds of everything again and compare."""
    start = time.monotonic()
    found = repeat(chosen, executor=options.executor, progress=_shown(options), say=_say)
    changed = flipped(found)
    equal, within, outside = (
        sum(getattr(item.comparison, what) for item in found if item.comparison is not None)
        for what in ("equal", "within", "outside")
    )
    for claim, (before, after) in changed.items():
        print(f"{claim}: {before} becomes {after} with the values measured now", file=sys.stderr)
    there = [item for item in found if not item.lacks]
    if len(there) < len(found):
        _say(f"{len(found) - len(there)} left out, whose corpus is not here; see above")
    _say(
        f"{len(there)} measurements repeated in {time.monotonic() - start:.0f} s: of "
        f"{equal + within + outside} values {equal} came back equal, {within} within the spread of the "
        f"seeds, {outside} outside; {len(changed)} verdicts changed"
    )
    return int(bool(changed) or not all(item.passed for item in there))


def _status(chosen: Sequence[Measurement], options: argparse.Namespace) -> int:
    """Print for each measurement whether its result is valid for the current code."""
    del options
    wrong = 0
    for one in chosen:
        now = standing(one)
        wrong += now.state not in HOLDS
        print(f"{'  ' if now.state in HOLDS else '* '}{one.label}: {now.why or now.state}")
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
        _say(as_markdown(changes(results_in(before), results_in(after), chosen)))
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
        "--cluster", metavar="ADDRESS", help="of a dask scheduler, whose workers do all"
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
