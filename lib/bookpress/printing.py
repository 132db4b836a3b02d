"""Print the pages with Jupyter Book, as a program of its own: `python -m bookpress.printing ROOT ...`.

What `jupyter-book build` does, in three quarters of its time. A print makes tens of millions of objects
that stay until its end. Python's garbage collector looks through them again and again, and at the end
of the process once more to free them one by one. Here it looks seldom, which costs a fifth more memory
(1.2 GB), and what is left at the end is given back to the system as a whole.
"""

from __future__ import annotations

import gc
import logging
import os
import sys

SELDOM = (100_000, 20, 50)
"""Thresholds of the collector: objects until a look at the newest, and looks until one at the older."""


def main() -> None:
    """Run `jupyter-book build` with the arguments of this program; never returns."""
    gc.set_threshold(*SELDOM)
    from jupyter_book.cli.main import main as jupyter_book  # type: ignore[import-untyped]

    sys.argv[1:1] = ["build"]
    try:
        jupyter_book(prog_name="jupyter-book", standalone_mode=True)
        status = 0
    except SystemExit as end:
        status = _status(end)
    _leave(status)


def _status(end: SystemExit) -> int:
    """The number that Python would leave with; a message is printed as Python would print it."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _leave(status: int) -> None:
    """End the process at once, with everything written that was printed or logged."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
