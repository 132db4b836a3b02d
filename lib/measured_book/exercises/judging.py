"""Judges one answer: the answer runs in a process of its own, and the checker in this one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from measured_book.exercises.answers import Answer, Fault
from measured_book.exercises.draws import drawing
from measured_book.exercises.processes import Limits, Process, can_copy
from measured_book.exercises.registry import Exercise
from measured_book.exercises.results import Result
from measured_book.exercises.solver import Elsewhere, serve
from measured_book.exercises.state import settled, untouched
from measured_book.exercises.wire import is_plain

UNPROTECTED = (
    "checked in the program's own process, without limits of time, memory and output, since "
    "only Linux can copy "
    "a process"
)


@dataclass(frozen=True)
class Judged:
    """A result, and the beginning of what the answer printed meanwhile."""

    result: Result
    printed: str = ""


def judge(
    exercise: Exercise, value: Any, *, limits: Limits | None = None, key: str | None = None
) -> Judged:
    """Judge an answer; a function is called in a copy of this process.

    Args:
        exercise: what was asked.
        value: the answer. Numbers, words and tensors need no process of their own.
        limits: of time, memory and output, for everything together.
        key: whose draw of the exercise it is; None for the numbers of the page.
    """
    if is_plain(value) or not can_copy():
        with settled(), untouched():
            note = "" if is_plain(value) else UNPROTECTED
            return Judged(verdict(exercise, lambda: Answer(value), key, note))
    with settled(), Process(lambda line: serve(line, lambda _: value), limits) as process:
        with untouched():  # the copy has what the program replaced, the checker has not
            result = verdict(exercise, lambda: Elsewhere(process), key)
        process.close()
    printed = process.printed + ("\n(it printed more than this)\n" if process.cut else "")
    return Judged(result, printed)


def verdict(
    exercise: Exercise, answer: Callable[[], Answer], key: str | None = None, note: str = ""
) -> Result:
    """Run the checker of an exercise on an answer, and put what it finds into words.

    Args:
        exercise: what was asked.
        answer: returns the answer; a `Fault` that it raises is the verdict.
        key: whose draw of the exercise it is.
        note: for the result.
    """
    name, given = exercise.name, Answer(None)
    try:
        given = answer()
        with drawing(exercise, key) as numbers:
            given.demand_a_start(exercise.asked_of(numbers))
            exercise.checker(given, **numbers)
    except Fault as fault:
        shown = given.input if fault.at_an_input else ""
        return Result(name, False, str(fault), shown, key, note)
    except Exception as error:  # the checker met something that it was not written for
        told = f"{type(error).__name__}: {error}"
        message = f"this answer cannot be checked ({told}). Asked for: {exercise.asked}"
        return Result(name, False, message, given.input, key, note)
    inputs = {0: "", 1: "on one input"}.get(given.calls, f"on {given.calls} inputs")
    return Result(name, True, inputs, "", key, note)
