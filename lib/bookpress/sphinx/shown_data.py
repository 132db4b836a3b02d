"""Which results a figure shows: as its cell declares, or found by following names through the page's code.

A cell's metadata may say it: ``measured: {data: [reversal.accuracy, norm_placement/untrained]}``. Otherwise
the names count that come from `load_result` and `load_results`, also through assignments:

>>> shown(["a = load_result('room', 'one')", "share = a.accuracy.mean('seed')", "plot(share)"])[2]
{Source(room='room', measurement='one', variable='accuracy')}
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_SPEC = re.compile(r"(?:(?P<room>\w+)/)?(?P<name>\w+)(?:\.(?P<variable>\w+))?")
_ALL = "*"


class Source(NamedTuple):
    """A result, or one variable of it."""

    room: str
    measurement: str
    variable: str | None = None


def read_spec(text: str, room: str) -> Source:
    """Return what a cell's metadata names; `room` is that of the page.

    Raises:
        ValueError: the text is not of the form ``measurement``, ``measurement.variable`` or
            ``room/measurement.variable``.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            "expected measurement, measurement.variable or room/measurement.variable as data of a "
            f"figure, got {text!r}"
        )
    return Source(match["room"] or room, match["name"], match["variable"])


def shown(cells: Iterable[str]) -> list[set[Source]]:
    """Return for each cell, in order, the results behind its last expression.

    Args:
        cells: the code of a page's cells; a text for each, also for those without code.
    """
    names = _Names()
    return [names.run(cell) for cell in cells]


class _Names:
    """What the names of a page stand for, as far as results go."""

    def __init__(self) -> None:
        self._sources: dict[str, set[Source]] = {}
        self._texts: dict[str, str] = {}

    def run(self, code: str) -> set[Source]:
        lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in code.split("\n")]
        try:
            tree = ast.parse("\n".join(lines))
        except SyntaxError:  # other magic of notebooks
            return set()
        last: set[Source] = set()
        for statement in tree.body:
            found = self._statement(statement)
            last = found if isinstance(statement, ast.Expr) else last | found
        return {source for source in last if source.measurement != _ALL}

    def _statement(self, node: ast.stmt) -> set[Source]:
        """Note what a statement binds, and return what it reads."""
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            found = self._of(node.value) if node.value else set()
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (name for target in targets for name in _bound(target)):
                kept = self._sources.get(name, set()) if isinstance(node, ast.AugAssign) else set()
                self._sources[name] = found | kept
                if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                    self._texts[name] = node.value.value
            return found
        if isinstance(node, ast.FunctionDef):
            self._sources[node.name] = set().union(*map(self._statement, node.body))
            return set()
        if isinstance(node, ast.For):
            self._sources |= dict.fromkeys(_bound(node.target), self._of(node.iter))
        found = set()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                found |= self._statement(child)
            elif isinstance(child, ast.withitem):
                found |= self._of(child.context_expr)
            elif isinstance(child, ast.expr):
                found |= self._of(child)
        return found

    def _of(self, node: ast.AST) -> set[Source]:
        """Return the results that an expression reads."""
        if isinstance(node, ast.Name):
            return self._sources.get(node.id, set())
        if isinstance(node, ast.Call) and _called(node) in ("load_result", "load_results"):
            given = [self._text(argument) for argument in node.args]
            given += [self._text(keyword.value) for keyword in node.keywords]
            if _called(node) == "load_results":
                given = [*given[:1], _ALL]
            if len(given) == 2 and all(given):
                room, name = map(str, given)
                return {Source(room.replace("-", "_"), name)}
            return set()
        part = None
        if isinstance(node, ast.Attribute):
            part = node.attr
        elif isinstance(node, ast.Subscript):
            part = self._text(node.slice)
        if part is not None and isinstance(node, ast.Attribute | ast.Subscript):
            return {_narrowed(source, part) for source in self._of(node.value)}
        return set().union(*map(self._of, ast.iter_child_nodes(node)))

    def _text(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        return self._texts.get(node.id) if isinstance(node, ast.Name) else None


def _narrowed(source: Source, part: str) -> Source:
    if source.measurement == _ALL:
        return Source(source.room, part)
    return Source(source.room, source.measurement, source.variable or part)


def _called(node: ast.Call) -> str:
    name = node.func
    return name.id if isinstance(name, ast.Name) else getattr(name, "attr", "")


def _bound(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
