"""The registry of exercises: a decorator registers a checker, and its name finds it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

_ROOMS = "measured_book.rooms"
_KNOWN: dict[str, Exercise] = {}

Checker = Callable[..., None]
"""A function of an answer and, where the exercise can be drawn, of its numbers by name."""


@dataclass(frozen=True)
class Drawing:
    """How an exercise is drawn with other numbers.

    Attributes:
        asked: the statement, with a name in braces where a number stands: `the curvatures {low} and {high}`.
        numbers: draws the numbers, by name; the checker takes them as keywords, whose defaults are those of the
            page.
    """

    asked: str
    numbers: Callable[[random.Random], Mapping[str, Any]]


@dataclass(frozen=True)
class Exercise:
    """One exercise that can be checked.

    Attributes:
        name: the subject and the checker's own name, such as `attention.causal_mask`. The subject is the room
            of the chapter, or what the module of the checkers calls its `SUBJECT`.
        chapter: the page on which it stands, such as `book/attention/attention`.
        asked: what an answer shall be: the checker's docstring, in one line.
        checker: raises a `Fault` at the first thing wrong with an answer.
        drawing: how other numbers are drawn; None where they are those of the page.
        chosen_inputs: whether its inputs were chosen to tell mistakes apart, so that a draw keeps them.
    """

    name: str
    chapter: str
    asked: str
    checker: Checker
    drawing: Drawing | None = None
    chosen_inputs: bool = False

    def asked_of(self, numbers: Mapping[str, Any]) -> str:
        """Return what is asked, with these numbers; with those of the page where there are none."""
        if self.drawing is None or not numbers:
            return self.asked
        return self.drawing.asked.format(**numbers)


def exercise(
    chapter: str, drawing: Drawing | None = None, *, chosen_inputs: bool = False
) -> Callable[[Checker], Checker]:
    """Register a checker, a function that raises a `Fault` when an answer is wrong, as an exercise.

    The exercise is named by the checker's subject and name; its docstring says what is asked.

    Args:
        chapter: the page on which the exercise stands, such as `book/attention/attention`.
        drawing: how other numbers are drawn, for an exercise that asks for numbers.
        chosen_inputs: whether its inputs were chosen to tell mistakes apart, so that a draw keeps them.

    Raises:
        ValueError: (from the decorator) when the checker has no docstring, or the name is taken.
    """

    def register(checker: Checker) -> Checker:
        name = f"{_subject(checker)}.{checker.__name__}"
        asked = " ".join((inspect.getdoc(checker) or "").split())
        if not asked:
            raise ValueError(f"expected {name} to say in its docstring what is asked, got none")
        if name in _KNOWN:
            raise ValueError(
                f"expected a new name, got {name}, which is taken; rename one of the two"
            )
        _KNOWN[name] = Exercise(name, chapter, asked, checker, drawing, chosen_inputs)
        return checker

    return register


def exercises() -> list[Exercise]:
    """Return all exercises of the book that can be checked, by name."""
    package = importlib.import_module(_ROOMS)
    for room in pkgutil.iter_modules(package.__path__, f"{_ROOMS}."):
        if importlib.util.find_spec(f"{room.name}.exercises") is not None:
            importlib.import_module(f"{room.name}.exercises")
    return [_KNOWN[name] for name in sorted(_KNOWN)]


def find(name: str) -> Exercise:
    """Return the exercise with this name.

    Raises:
        ValueError: when there is none; the nearest names are given.
    """
    known = {one.name: one for one in exercises()}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=3, cutoff=0.4)
    if not near:  # at least those of the same chapter, or the chapters
        of_chapter = [one for one in known if one.startswith(f"{name.partition('.')[0]}.")]
        near = of_chapter or sorted({f"{one.partition('.')[0]}.…" for one in known})
    raise ValueError(f"expected the name of an exercise, got {name!r}; near it: {', '.join(near)}")


def _subject(checker: Checker) -> str:
    """The first word of an exercise's name."""
    *_, room, module = ("", *checker.__module__.split("."))
    own = room if module == "exercises" else module
    return str(getattr(sys.modules.get(checker.__module__), "SUBJECT", own))
