"""Print the pages with Jupyter Book: as `jupyter-book build` does, but sooner.

A print makes millions of objects that stay until its end. Python's garbage collector looks through them again
and again, and when the process ends they are freed one by one. Here the collector looks seldom, which costs
some memory, and what is left at the end is given back to the system as a whole.
`python -m bookpress.printing ROOT ...` takes the arguments of `jupyter-book build`.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from bookpress import disk

SELDOM = (100_000, 20, 50)
"""Thresholds of the collector: objects until a look at the newest, and looks until one at the older."""


def print_pages(arguments: Sequence[str]) -> int:
    """Run `jupyter-book build` with these arguments in this process; returns its exit status.

    Raises:
        OSError: the disk is full, or cannot be written to.
        KeyboardInterrupt: it was interrupted.
    """
    gc.set_threshold(*SELDOM)
    folder = Path(arguments[0], disk.BUILD) if arguments else Path(disk.BUILD)
    _leave_refusals_to_us(folder)
    from jupyter_book.cli.main import main as jupyter_book  # type: ignore[import-untyped]

    sys.argv[1:] = ["build", *arguments]
    try:
        jupyter_book(prog_name="jupyter-book", standalone_mode=True)
    except SystemExit as end:
        return _status(end)
    except Exception as error:
        if refused := disk.refusal(error, folder):
            raise refused from error
        traceback.print_exc()
        return 1
    return 0


def _leave_refusals_to_us(folder: Path) -> None:
    """Keep Sphinx from saying in a report of its own what the disk refused."""
    from sphinx.cmd import build

    report = build.handle_exception

    def handle(app: Any, args: Any, exception: BaseException, *rest: Any, **more: Any) -> None:
        if disk.refusal(exception, folder) is None:
            report(app, args, exception, *rest, **more)

    build.handle_exception = handle


def leave(status: int) -> NoReturn:
    """End the process at once, but only after what was to be done, printed and logged at its end."""
    atexit._run_exitfuncs()  # logging.shutdown among them
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _status(end: SystemExit) -> int:
    """The number that Python would leave with; a message is printed as Python would print it.

    Raises:
        KeyboardInterrupt: Sphinx was interrupted, which Jupyter Book hands on as a status.
    """
    if isinstance(end.code, KeyboardInterrupt):
        raise end.code
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _main(arguments: Sequence[str]) -> int:
    try:
        return print_pages(arguments)
    except OSError as error:
        print(f"error: {disk.in_words(error, Path(disk.BUILD))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    leave(_main(sys.argv[1:]))
