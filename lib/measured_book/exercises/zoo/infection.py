"""Gives the library a bug, in this process, while a `with` block runs.

The code of a function is exchanged, not the function: whoever imported it before, and every model that exists
already, has the bug as well, and is healthy again afterwards. What is exchanged keeps its file and its lines,
and can be disguised: local variables get other names at random, so that only behaviour tells a bug from its
absence.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import random
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from measured_book.exercises.zoo.bugs import Bug, Edit


class StaleBugError(Exception):
    """An edit of the zoo no longer fits its function, because the library changed."""


@contextmanager
def infected(bug: Bug) -> Iterator[None]:
    """Give the library a bug while the block runs.

    Raises:
        StaleBugError: when an edit does not fit the library's source; nothing is changed then.
    """
    sick = edited(bug.edits)
    healthy = {function: function.__code__ for function in sick}
    try:
        exchange(sick)
        yield
    finally:
        exchange(healthy)


def edited(
    edits: Iterable[Edit], disguised: Iterable[str] = (), chance: random.Random | None = None
) -> dict[FunctionType, CodeType]:
    """Return functions of the library with the code that they have after some edits.

    Args:
        edits: what changes.
        disguised: places, as of edits, whose local variables get other names; also where nothing else changes.
        chance: draws the names.

    Raises:
        StaleBugError: when an edit does not fit.
    """
    of_place: dict[str, list[Edit]] = {where: [] for where in disguised}
    hidden = set(of_place)
    for edit in edits:
        of_place.setdefault(edit.where, []).append(edit)
    chance = chance or random.Random(0)
    return {
        function_at(where): _code(where, some, chance if where in hidden else None)
        for where, some in of_place.items()
    }


def exchange(codes: Mapping[FunctionType, CodeType]) -> None:
    """Give functions these codes."""
    for function, code in codes.items():
        function.__code__ = code


def difference(bug: Bug) -> str:
    """The bug alone as a diff, with - and + lines: only lines that it changes."""
    lines = []
    for edit in bug.edits:
        if edit.aside:
            continue
        old, new = _lines(edit.old), _lines(edit.new)
        lines.append(f"measured_transformer.{edit.where.replace(':', '.')}")
        lines += [f"- {line}" for line in old if line not in new]
        lines += [f"+ {line}" for line in new if line not in old]
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


@cache
def function_at(where: str) -> FunctionType:
    """The function at a place, below its decorators.

    Raises:
        StaleBugError: when there is no function.
    """
    module, _, path = where.partition(":")
    found: Any = import_module(f"measured_transformer.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise StaleBugError(f"{where}: expected a function, got {type(found).__name__}")
    return found


@dataclass(frozen=True)
class _Source:
    """A function's source as it is on disk.

    Attributes:
        text: without its decorators, at the left margin.
        line: of its first line in the file.
        indented: columns that were taken off.
    """

    text: str
    line: int
    indented: int


@cache
def _source(where: str) -> _Source:
    """Read once, while the code is the library's own."""
    lines, first = inspect.getsourcelines(function_at(where))
    indented = len(lines[0]) - len(lines[0].lstrip())
    text = textwrap.dedent("".join(lines))
    node = ast.parse(text).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise StaleBugError(f"{where}: expected the source of a function, got other source")
    skipped = node.lineno - 1  # what the decorators made of it stays as it is
    return _Source("".join(text.splitlines(keepends=True)[skipped:]), first + skipped, indented)


def _code(where: str, edits: list[Edit], chance: random.Random | None) -> CodeType:
    function, source = function_at(where), _source(where)
    text, origins = source.text, list(range(source.text.count("\n") + 1))
    for edit in edits:
        if text.count(edit.old) != 1:
            raise StaleBugError(
                f"{edit.where}: expected {edit.old!r} once in its source, got {text.count(edit.old)} times"
            )
        at = text[: text.index(edit.old)].count("\n")
        was, now = edit.old.count("\n"), edit.new.count("\n")
        taken = origins[at : at + was + 1]
        origins[at : at + was + 1] = [taken[min(i, was)] for i in range(now + 1)]
        text = text.replace(edit.old, edit.new)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            place: Any = node
            place.lineno = source.line + origins[place.lineno - 1]
            place.end_lineno = source.line + origins[place.end_lineno - 1]
            place.col_offset += source.indented
            place.end_col_offset += source.indented
    if chance is not None:
        _disguise(tree, chance)
    return _compiled(where, function, tree)


def _compiled(where: str, function: FunctionType, tree: ast.Module) -> CodeType:
    flags = __future__.annotations.compiler_flag
    healthy = function.__code__
    module = compile(tree, healthy.co_filename, "exec", flags, dont_inherit=True)
    names: dict[str, Any] = dict(function.__globals__)
    exec(module, names)
    code: CodeType = names[function.__name__].__code__
    if code.co_freevars != healthy.co_freevars:
        raise StaleBugError(f"{where}: a function with a closure cannot be edited")
    return code.replace(co_qualname=healthy.co_qualname, co_firstlineno=healthy.co_firstlineno)


def _disguise(tree: ast.Module, chance: random.Random) -> None:
    """Give the local variables of a function other names, and let it begin with one that nobody reads."""
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    kept = {
        arg.arg
        for node in ast.walk(function)
        if isinstance(node, ast.arguments)
        for arg in _args(node)
    }
    stored = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    names = {old: f"{old[0]}{chance.getrandbits(32):x}" for old in sorted(stored - kept)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id in names:
            node.id = names[node.id]
    idle = ast.parse(f"unread_{chance.getrandbits(32):x} = None").body[0]
    documented = ast.get_docstring(function) is not None
    first = function.body[min(int(documented), len(function.body) - 1)]
    for node in ast.walk(idle):
        if hasattr(node, "lineno"):
            ast.copy_location(node, first)
    function.body.insert(int(documented), idle)


def _args(arguments: ast.arguments) -> list[ast.arg]:
    extra = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]
