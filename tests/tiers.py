"""Which tests `make test` leaves to `make test-all`, and why: one place to look, and to argue with.

`make test` runs on every change and is to take minutes; `make test-all` runs everything, each week and before a
release. What stands here tells nothing that a faster check of `make test` does not tell first, or concerns what
seldom changes; and of many cases of one kind `make test` runs a share. A bare `pytest`, or one with the name
of a file, runs what it is asked for.
"""

from __future__ import annotations

import os
import zlib
from fnmatch import fnmatch
from functools import cache

from measured_book.measuring.shares import SHARES, due_share

NIGHTLY = {
    "tests/measuring/test_rooms_on_the_accelerator.py::test_every_*": (
        "every measurement and live cell on a device that is not there: device errors in the library show in "
        "tests/test_on_the_accelerator.py, and a GPU's own runs find the rest"
    ),
    "tests/rooms/*::test_figure*_drawn_for_*": (
        "the pages draw the same figures in both themes when their cells are executed"
    ),
    "tests/rooms/*::test_every_figure_draws_in_both_themes*": "the same",
    "tests/exercises/test_every_exercise.py::test_no_answer_at_all_fails*": (
        "six kinds of nothing for each of 231 exercises: the start of each, which is one of them, stays"
    ),
    "tests/exercises/test_draws.py::test_wrong_functions*": "every mistake once more, on other inputs",
    "tests/exercises/zoo/test_zoo.py::test_good_tests_catch_every_bug_each_run*": (
        "a thousand processes; that the tests notice every bug is tested in one"
    ),
    "tests/exercises/test_every_exercise.py::test_no_message_holds_the_number*": (
        "runs every solution and every mistake a second time"
    ),
    "tests/evidence/test_power.py*": "simulations of statistics that have not changed since they were written",
    "tests/evidence/test_verdict_rates.py*": "the same",
    "tests/test_wheel.py*": "builds and installs the wheel; packaging.py's own declarations are tested",
    "tests/measuring/test_settings.py*": "repeats in processes of their own, under each kind of kernels",
}

IN_TURN = {
    "tests/exercises/test_every_exercise.py::test_a_wrong_answer_fails*": (
        "a thousand mistakes, each in a process of its own: they change with an exercise, and `make check` "
        "runs all of them for those that a change reaches"
    ),
    "tests/exercises/test_draws.py::test_a_function_that_is_right*": "the same, of solutions on other inputs",
}
"""Of which cases `make test` runs a tenth, another one after each commit, so that ten commits run all."""


def is_quick() -> bool:
    """Return whether this run leaves out what is nightly."""
    return os.environ.get("MEASURED_TIER", "all") in ("test", "check")


def is_another_turn(nodeid: str) -> bool:
    """Return whether this run leaves a case to the runs of other commits."""
    if os.environ.get("MEASURED_TIER", "all") != "test":
        return False
    return any(fnmatch(nodeid, pattern) for pattern in IN_TURN) and turn_of(nodeid) != _due()


def turn_of(nodeid: str) -> int:
    """In which share a case is, from its name alone."""
    return zlib.crc32(nodeid.encode()) % SHARES


@cache
def _due() -> int:
    return due_share()


def reason(nodeid: str) -> str:
    """Why a test is nightly; empty where it is not."""
    return next((why for pattern, why in NIGHTLY.items() if fnmatch(nodeid, pattern)), "")
