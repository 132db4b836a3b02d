"""Gives the library a bug, in this process, while a `with` block runs.

The code of a function is exchanged, not the function: whoever imported it before, and every model that exists
already, has the bug as well, and is healthy again afterwards.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from measured_book.exercises.zoo.bugs import Bug


class StaleBugError(Exception):
    """An edit of the zoo no longer fits its function, because the library changed."""


@contextmanager
def infected(bug: Bug) -> Iterator[None]:
    """Give the library a bug while the block runs.

    Raises:
        StaleBugError: when an edit does not fit the library's source; nothing is changed then.
    """
    healthy = {function: function.__code__ for function in map(_function, _places(bug))}
    sick = {
        _function(where): _edited(_function(where), [e for e in bug.edits if e.where == where])
        for where in _places(bug)
    }
    try:
        for function, code in sick.items():
            function.__code__ = code
        yield
    finally:
        for function, code in healthy.items():
            function.__code__ = code


def difference(bug: Bug) -> str:
    """The bug as a diff, with - and + lines."""
    lines = []
    for edit in bug.edits:
        lines.append(f"measured_transformer.{edit.where.replace(':', '.')}")
        lines += [f"- {line.strip()}" for line in edit.old.strip().splitlines()]
        lines += [f"+ {line.strip()}" for line in edit.new.strip().splitlines()]
    return "\n".join(lines)


def _places(bug: Bug) -> list[str]:
    return list(dict.fromkeys(edit.where for edit in bug.edits))


def _function(where: str) -> FunctionType:
    module, _, path = where.partition(":")
    found: Any = import_module(f"measured_transformer.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise StaleBugError(f"{where}: expected a function, got {type(found).__name__}")
    return found


def _edited(function: FunctionType, edits: list[Any]) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    while source.startswith("@"):  # what the decorators made of it stays as it is
        source = source[source.index("\n") + 1 :]
    for edit in edits:
        if source.count(edit.old) != 1:
            raise StaleBugError(
                f"{edit.where}: expected {edit.old!r} once in its source, got {source.count(edit.old)} times"
            )
        source = source.replace(edit.old, edit.new)
    flags = __future__.annotations.compiler_flag
    module = compile(source, f"<zoo: {function.__qualname__}>", "exec", flags, dont_inherit=True)
    names: dict[str, Any] = dict(function.__globals__)
    exec(module, names)
    code: CodeType = names[function.__name__].__code__
    if code.co_freevars != function.__code__.co_freevars:
        raise StaleBugError(f"{edits[0].where}: a function with a closure cannot be edited")
    return code
