"""Checks answers to the chapters' exercises, and says what is wrong without giving the solution away.

An exercise has a name, its chapter's subject and its own: `learning_rate.half_life`. `check` takes the name and
the answer: a function, a number, a tensor, a module or a word, as the exercise asks. A function is called on
inputs of several shapes, and the first property that it lacks is reported, with the input that showed it. The
checkers stand in `exercises.py` of the chapters' rooms; their docstrings say what is asked.

>>> import math
>>> from measured_book.exercises import check
>>> check("learning_rate.half_life", lambda beta: 1 / (1 - beta))
not yet: learning_rate.half_life
    1 / (1 - beta) steps is how far the average reaches: where a weight is 1/e, not a half
    input: beta = 0.5
>>> bool(check("learning_rate.half_life", lambda beta: math.log(0.5) / math.log(beta)))
True
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from measured_book.exercises.answers import Answer, Fault
from measured_book.exercises.registry import Exercise, find
from measured_book.exercises.results import Result

__all__ = ["Result", "check"]


def check(name: str, answer: Any) -> Result:
    """Say whether an answer is right and, if not, what is wrong first.

    The same answer always gets the same verdict: whatever it draws at random is drawn from the same seed, and
    the program's own random numbers go on afterwards as if nothing had happened.

    Args:
        name: which exercise, such as `learning_rate.half_life`.
        answer: what it asks for: a function itself (not called), a number, a tensor, a module, a word.

    Returns:
        A result that is true when the answer is right, and whose text a notebook shows.

    Raises:
        ValueError: when no exercise has this name; the nearest names are given.
    """
    exercise = find(name)
    given = Answer(answer)
    try:
        with _repeatable():
            given.demand_a_start(exercise.asked)
            exercise.checker(given)
    except Fault as fault:
        return Result(name, False, str(fault), given.input if fault.at_an_input else "")
    except Exception as error:  # the checker met something that it was not written for
        message = (
            f"this answer cannot be checked ({type(error).__name__}: {error}). {_asked(exercise)}"
        )
        return Result(name, False, message, given.input)
    inputs = {0: "", 1: "on one input"}.get(given.calls, f"on {given.calls} inputs")
    return Result(name, True, inputs)


def _asked(exercise: Exercise) -> str:
    return f"Asked for: {exercise.asked}"


@contextmanager
def _repeatable() -> Iterator[None]:
    """Draw the same random numbers inside the block, and leave the program's generators unchanged."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            random.seed(0)
            np.random.seed(0)
            torch.manual_seed(0)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
