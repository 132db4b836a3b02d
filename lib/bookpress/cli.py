"""The press from the command line: `python -m bookpress execute | build | status`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bookpress import disk
from bookpress.printed import PAGES

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from there", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        folder = options.root / disk.BUILD
        refused = disk.refusal(error, folder) or (error if isinstance(error, OSError) else None)
        if refused is None:
            raise
        print(f"error: {disk.in_words(refused, folder)}", file=sys.stderr)
        return 2
    return status


def execute(options: argparse.Namespace) -> int:
    """Run the chapters that are stale."""
    from bookpress.chapters import load_book
    from bookpress.lock import alone

    load_book(options.root)  # before anything is written: is this a book's folder?
    with alone(options.root):
        return _execute(options)


def _execute(options: argparse.Namespace) -> int:
    from bookpress.execute import execute

    only = [Path(name) for name in options.chapters] or None
    start = time.monotonic()
    result = execute(options.root, only=only, jobs=options.jobs, force=options.force)
    _conclude(result.failed, len(result.ran), time.monotonic() - start)
    return result.status


def build(options: argparse.Namespace) -> int:
    """Run the chapters that are stale, then print the pages; any warning is an error."""
    from measured_book.evidence.registry import claims

    from bookpress import printed
    from bookpress.chapters import load_book
    from bookpress.lock import alone

    pages = (options.root / PAGES / "index.html").resolve()
    if not options.force and printed.is_current(options.root):
        print(f"nothing changed since the book was printed: {pages}")
        return 0
    claims()  # a registry that cannot be read is said in a line here, and by Sphinx in a hundred
    load_book(options.root)
    with alone(options.root) as waited:
        fresh = waited and not options.force and printed.is_current(options.root)
        if not fresh and (status := _print(options)):
            return status
    print(f"the book: {pages}")
    return 0


def _print(options: argparse.Namespace) -> int:
    from bookpress import printed
    from bookpress.printing import print_pages

    before = printed.sources(options.root)
    options.chapters = []
    if status := _execute(options):
        return status
    if printed.is_cut_short(options.root):
        print("the last print did not come to its end; all pages will be printed again")
    for name in printed.mend(options.root):
        print(f"{PAGES}/{name} is not what was printed; it will be printed again")
    quiet = ["-q"] if options.quiet else []
    printed.begin(options.root)
    if status := print_pages([str(options.root), "-n", "-W", "--keep-going", *quiet]):
        print("the pages could not be printed; see above", file=sys.stderr)
        return status
    printed.end(options.root)
    printed.remember(options.root, before)
    return 0


def status(options: argparse.Namespace) -> int:
    """Say for each chapter whether it is up to date; exits 1 when one is stale."""
    from bookpress.chapters import load_book
    from bookpress.jobs import open_cache
    from bookpress.survey import survey

    book = load_book(options.root)
    states = survey(book, open_cache(book.root))
    for state in states:
        done = f"up to date, ran {state.entry.seconds:.1f} s" if state.entry else state.reason
        print(f"{'  ' if state.entry else '* '}{state.chapter.source}: {done}")
    return int(any(state.entry is None for state in states))


def _conclude(failed: list[str], passed: int, seconds: float) -> None:
    if failed:
        print(f"{len(failed)} failed: {', '.join(sorted(failed))}", file=sys.stderr, flush=True)
    elif passed:
        print(f"{passed} executed in {seconds:.1f} s", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bookpress", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="command")
    for command in (execute, build, status):
        described = (command.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(command.__name__, help=described, description=described)
        sub.set_defaults(command=command)
        sub.add_argument(
            "--root", type=Path, default=Path(), help="the book's root folder (default: here)"
        )
        if command in (execute, build):
            sub.add_argument(
                "--jobs", type=int, help="chapters side by side (cores + 1, at most 4; on a GPU 1)"
            )
            sub.add_argument("--force", action="store_true", help="run every chapter")
        if command is build:
            sub.add_argument("--quiet", "-q", action="store_true", help="warnings only from Sphinx")
        if command is execute:
            sub.add_argument("chapters", nargs="*", help="files to look at (default: all)")
    return parser
