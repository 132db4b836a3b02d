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

_MACHINERY = (
    "the laboratory's and the press's own machinery, in processes and books of their own: it changes seldom, "
    "`make check` runs all of it that a change reaches, and every run uses it to repeat, execute and print"
)
_EXERCISES = (
    "each in a process of its own: they change with an exercise, and `make check` runs all of those that a "
    "change reaches"
)
_CELLS = (
    "each asks a model of 135 million weights, and some train it: they change with a page or with what they "
    "call, and `make check` runs those that a change reaches"
)
_DERIVED = (
    "what is derived from kept results, once more: it changes with a room's results or claims alone"
)

IN_TURN = {
    "tests/exercises/test_every_exercise.py::*": _EXERCISES,
    "tests/exercises/test_draws.py::*": _EXERCISES,
    "tests/exercises/test_hostile_answers.py::*": _EXERCISES,
    "tests/exercises/zoo/*": _EXERCISES,
    "tests/measuring/test_changes.py::*": _MACHINERY,
    "tests/measuring/test_fingerprints.py::*": _MACHINERY,
    "tests/measuring/test_interrupted.py::*": _MACHINERY,
    "tests/measuring/test_judging.py::*": _MACHINERY,
    "tests/measuring/test_repeating.py::test_it_bites_on_any_machine*": (
        "five faults, each in full and by fingerprints, on two kinds of machine: one tells first"
    ),
    "tests/measuring/test_scheduler.py::*": _MACHINERY,
    "tests/measuring/test_work.py::*": _MACHINERY,
    "tests/measuring/test_one_device.py::*": _MACHINERY,
    "tests/book/test_live_lab.py::*": (
        "a whole JupyterLab: every run plays with a notebook's output in frames as strict as any notebook's"
    ),
    "tests/book/test_real_model_cells.py::test_these_lines_run*": _CELLS,
    "tests/bookpress/test_parallel_read.py::*": _MACHINERY,
    "tests/bookpress/test_staleness.py::*": _MACHINERY,
    "tests/training/test_device.py::*": _MACHINERY,
    "tests/training/test_store.py::*": _MACHINERY,
    "tests/benchmarks/*": _MACHINERY,
    "tests/test_packaging.py::*": _MACHINERY,
    "tests/measuring/test_printed_numbers.py::test_nothing_leaves_its_interval*": _DERIVED,
    "tests/rooms/test_moved_rooms.py::*": _DERIVED,
    "tests/rooms/test_own_sentences.py::test_a_cell_runs_with_another_model*": _CELLS,
    "tests/rooms/test_rooms.py::test_every_result_is_valid*": "the repeat says so of every result",
}
"""Of which cases `make test` runs a tenth, another one after each commit, so that ten commits run all."""

_PLAYED = (
    "one widget played through in a browser, case after case: every run opens pages that hold all widgets, and "
    "plays the live model through; `make check` plays those that a change reaches"
)

WHOLE = {
    "tests/book/test_filters.py": _PLAYED,
    "tests/book/test_roles.py": _MACHINERY,
    "tests/book/test_front.py": _PLAYED,
    "tests/book/test_live_served.py": (
        "parity of the models that are served: every run asks for it of models with random weights"
    ),
    "tests/exercises/test_grading.py": _EXERCISES,
    "tests/book/test_viewer_browser.py": _PLAYED,
    "tests/book/test_viewer_page.py": _MACHINERY,
    "tests/bookpress/test_numref.py": _MACHINERY,
    "tests/test_contributing.py": "the guide followed from its first line to its last: it changes seldom",
    "tests/bookpress/test_reached.py": _MACHINERY,
    "tests/book/test_published.py": _MACHINERY,
    "tests/book/test_workbench_browser.py": _PLAYED,
    "tests/measuring/test_attesting.py": _MACHINERY,
    "tests/evidence/test_rederived_verdicts.py": _DERIVED,
    "tests/bookpress/test_edition.py": _MACHINERY,
    "tests/book/test_finding.py": _PLAYED,
    "tests/book/test_live_levers.py": _PLAYED,
    "tests/rooms/test_tuned_table.py": _DERIVED,
    "tests/bookpress/test_cache.py": _MACHINERY,
    "tests/book/test_rooms.py": _MACHINERY,
    "tests/bookpress/test_troubles.py": _MACHINERY,
    "tests/bookpress/test_kernel_server.py": _MACHINERY,
    "tests/measuring/test_slices.py": _MACHINERY,
    "tests/bookpress/test_printed.py": _MACHINERY,
    "tests/bookpress/test_execute.py": _MACHINERY,
    "tests/bookpress/test_collect.py": _MACHINERY,
    "tests/book/test_scorecard.py": _MACHINERY,
}
"""Files whose cases share what takes longest, such as a printed book: a file's turn has all of its cases.

The heaviest first: they are dealt out one by one to ten turns and back, so that no turn has much more than
another.
"""


def is_quick() -> bool:
    """Return whether this run leaves out what is nightly."""
    return os.environ.get("MEASURED_TIER", "all") in ("test", "check")


def is_another_turn(nodeid: str) -> bool:
    """Return whether this run leaves a case to the runs of other commits."""
    if os.environ.get("MEASURED_TIER", "all") != "test":
        return False
    file = nodeid.partition("::")[0]
    if file in WHOLE:
        return turn_of_file(file) != _due()
    return any(fnmatch(nodeid, pattern) for pattern in IN_TURN) and not is_in_turn(nodeid)


def turn_of_file(file: str) -> int:
    """In which share a file of `WHOLE` is: dealt out there and back."""
    there_and_back, place = divmod(list(WHOLE).index(file), SHARES)
    return SHARES - 1 - place if there_and_back % 2 else place


def is_in_turn(name: str) -> bool:
    """Return whether this run is the one of ten that has this case."""
    return turn_of(name) == _due()


def turn_of(nodeid: str) -> int:
    """In which share a case is, from its name alone."""
    return zlib.crc32(nodeid.encode()) % SHARES


@cache
def _due() -> int:
    return due_share()


def reason(nodeid: str) -> str:
    """Why a test is nightly; empty where it is not."""
    return next((why for pattern, why in NIGHTLY.items() if fnmatch(nodeid, pattern)), "")
