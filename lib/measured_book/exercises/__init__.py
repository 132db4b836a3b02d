"""Checks answers to the chapters' exercises, and says what is wrong without giving the solution away.

An exercise has a name, its chapter's subject and its own: `learning_rate.half_life`. `check` takes the name and
the answer: a function, a number, a tensor, a module or a word, as the exercise asks. A function is called on
inputs of several shapes, and the first property that it lacks is reported, with the input that showed it. The
checkers stand in `exercises.py` of the chapters' rooms; their docstrings say what is asked.

>>> import math
>>> from measured_book.exercises import check
>>> result = check("learning_rate.half_life", lambda beta: 1 / (1 - beta))
not yet: learning_rate.half_life
    1 / (1 - beta) steps is how far the average reaches: where a weight is 1/e, not a half
    input: beta = 0.5
>>> result.passed
False
>>> bool(check("learning_rate.half_life", lambda beta: math.log(0.5) / math.log(beta)))
passed: learning_rate.half_life, on 4 inputs
True

`draw` gives an exercise with other numbers, and for a folder of submissions there is a command::

    python -m measured_book.exercises grade submissions --out grades.csv
"""

from __future__ import annotations

import sys
from typing import Any

from measured_book.exercises.draws import Drawn, demand_drawable, draw
from measured_book.exercises.judging import judge
from measured_book.exercises.processes import Limits
from measured_book.exercises.registry import find
from measured_book.exercises.results import Result
from measured_book.exercises.submissions import note

__all__ = ["Drawn", "Limits", "Result", "check", "draw"]


def check(
    name: str | Drawn,
    answer: Any,
    *,
    draw: str | None = None,
    seconds: float = 60.0,
    show: bool = True,
) -> Result:
    """Say whether an answer is right and, if not, what is wrong first; the verdict is shown at once.

    The same answer always gets the same verdict: whatever it draws at random is drawn from the same seed, with
    gradients and in the usual precision, and the program's own settings and random numbers are left as they
    were. A function is called in a copy of the program, which has limits of time, memory and output: one that
    never ends, ends the program, or changes what is not its own does no harm and does not pass. (Only Linux
    can copy a program like this; elsewhere the verdict notes that it ran without these limits.)

    Args:
        name: which exercise, such as `learning_rate.half_life`; or one that was drawn.
        answer: what it asks for: a function itself (not called), a number, a tensor, a module, a word.
        draw: what the exercise was drawn from; None for the numbers of the page.
        seconds: how long all calls together may take.
        show: whether the verdict is printed, or shown in a notebook, at once.

    Returns:
        A result that is true when the answer is right, and whose text says what is wrong.

    Raises:
        ValueError: when no exercise has this name (the nearest names are given), or it cannot be drawn.
    """
    if isinstance(name, Drawn):
        draw = name.key
        name = name.name
    exercise = find(name)
    if note(name, answer):  # a submission is being read
        return Result(name, True, "handed in, to be judged later")
    if draw is not None:
        demand_drawable(exercise)
    judged = judge(exercise, answer, limits=Limits(seconds=seconds), key=draw)
    if judged.printed:
        sys.stdout.write(judged.printed)
    if show:
        judged.result.show()
    return judged.result
