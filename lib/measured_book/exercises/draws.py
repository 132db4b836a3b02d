"""Exercises with other numbers: each student's own, drawn from a key such as a name.

An exercise that asks for numbers is drawn with other numbers in its statement where its checker says how; one
that asks for a function keeps its statement, and is tried on other inputs. The same key draws the same
exercise, on every machine.

>>> from measured_book.exercises import check, draw
>>> draw("learning_rate.edge", "Ada")
learning_rate.edge, drawn for Ada
    Two numbers for the curvatures 5, 12 and 100: the rate above which descent diverges, and the best rate.
>>> bool(check(draw("learning_rate.edge", "Ada"), (2 / 100, 2 / 105), show=False))
True
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any

from measured_book.exercises.answers import drawn_from
from measured_book.exercises.registry import Exercise, exercises, find


@dataclass(frozen=True)
class Drawn:
    """An exercise with numbers of its own.

    Attributes:
        name: the exercise.
        key: what it was drawn from.
        asked: the statement, with these numbers.
        numbers: the numbers by name; none where a function is asked for.
    """

    name: str
    key: str
    asked: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.name}, drawn for {self.key}\n    {self.asked}"

    def _repr_html_(self) -> str:
        head = f"<strong>Drawn for {escape(self.key)}</strong>: <code>{escape(self.name)}</code>"
        return f"<div>{head}<br>{escape(self.asked)}</div>"


def draw(name: str, key: str) -> Drawn:
    """Draw an exercise.

    Args:
        name: which one, such as `learning_rate.edge`.
        key: any word, such as a student's name.

    Raises:
        ValueError: when no exercise has this name, or it has the numbers of its page alone; those of the same
            chapter that can be drawn are given.
    """
    exercise = find(name)
    demand_drawable(exercise)
    numbers = _numbers(exercise, key)
    return Drawn(name, key, exercise.asked_of(numbers), numbers)


def demand_drawable(exercise: Exercise) -> None:
    """Raise a `ValueError` when an exercise has the numbers of its page alone."""
    if not can_be_drawn(exercise):
        subject = f"{exercise.name.partition('.')[0]}."
        others = [
            one.name for one in exercises() if one.name.startswith(subject) and can_be_drawn(one)
        ]
        raise ValueError(
            f"expected an exercise that can be drawn, got {exercise.name}, which has the numbers of its page "
            f"alone; of the same chapter can be drawn: {', '.join(others) or 'none'}"
        )


def can_be_drawn(exercise: Exercise) -> bool:
    """Return whether an exercise has numbers to draw, or asks for a function, tried on other inputs."""
    return exercise.drawing is not None or exercise.asked.startswith("Write `")


@contextmanager
def drawing(exercise: Exercise, key: str | None) -> Iterator[Mapping[str, Any]]:
    """Give the numbers of a draw, and its inputs to checkers, while a block runs; the page's without a key."""
    if key is None:
        yield {}
        return
    if exercise.chosen_inputs:
        yield _numbers(exercise, key)
        return
    token = drawn_from.set(1000 * (1 + _seed(exercise, key) % 10**6))
    try:
        yield _numbers(exercise, key)
    finally:
        drawn_from.reset(token)


def _numbers(exercise: Exercise, key: str) -> Mapping[str, Any]:
    if exercise.drawing is None:
        return {}
    return exercise.drawing.numbers(random.Random(_seed(exercise, key)))


def _seed(exercise: Exercise, key: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{exercise.name}|{key}".encode()).digest()[:8], "big")
