"""Recognises the zoo's public tests: those that stand in the library's own repository.

Of each public test a fingerprint comes with the library, no text: which short sequences of syntax it is made
of. Names of variables and numbers do not count, so that renaming hides nothing. `python -m
measured_book.exercises.zoo.copies tests/exercises/zoo/reference_tests.py` writes the fingerprints anew.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_GRAM = 6  # pieces of syntax in a sequence
_LONG = 30  # sequences: a test with fewer says too little to be told from another
_SHARE = 0.75  # of the sequences


@dataclass(frozen=True)
class Print:
    """The fingerprint of a test.

    Attributes:
        name: of the test.
        exact: of everything but the names of its variables.
        grams: of its short sequences.
    """

    name: str
    exact: str
    grams: frozenset[str]

    def equals(self, public: Print) -> bool:
        """Return whether this test is a public one: the same, nearly the same, or with that one inside."""
        if self.exact == public.exact:
            return True
        shared = len(self.grams & public.grams)
        mine = len(self.grams) >= _LONG and shared >= _SHARE * len(self.grams)
        return mine or (len(public.grams) >= _LONG and shared >= _SHARE * len(public.grams))


@cache
def public_tests() -> tuple[Print, ...]:
    """The fingerprints of the public tests."""
    told = json.loads((files(__package__) / "public_tests.json").read_text("utf-8"))
    return tuple(Print(one["name"], one["exact"], frozenset(one["grams"])) for one in told)


def copies(source: str, only: str | None = None) -> dict[str, str]:
    """Name of each test of a file that equals a public one -> the name of that.

    Args:
        source: of the file.
        only: the one function that is a test; those named `test_*` when None.
    """
    found = {}
    for mine in prints(source, only):
        same = next((each.name for each in public_tests() if mine.equals(each)), None)
        if same is not None:
            found[mine.name] = same
    return found


def prints(source: str, only: str | None = None) -> list[Print]:
    """The fingerprints of the tests in a file; the functions of the file that a test calls belong to it."""
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    aliases = {
        each.asname or each.name: each.name.rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for each in node.names
    }
    return [
        _print(name, node, functions, aliases)
        for name, node in functions.items()
        if name == (only or name) and (only or name.startswith("test_"))
    ]


def source_of(test: Any) -> str:
    """A file that would make one test: its imports, the functions of its module that it calls, and itself.

    "" where the source is not known.
    """
    imports, functions, waiting = [], {}, [inspect.unwrap(test)]
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function.__name__ in functions:
            continue
        try:
            text = textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):
            return ""
        functions[function.__name__] = text if text.startswith("def ") else ""
        for name in _names_in(function.__code__):
            used = function.__globals__.get(name)
            home, own = getattr(used, "__module__", None), getattr(used, "__name__", None)
            if isinstance(used, ModuleType):
                imports.append(f"import {used.__name__} as {name}")
            elif isinstance(used, FunctionType) and home == function.__module__:
                waiting.append(used)
            elif home and own and str(own).isidentifier() and home != function.__module__:
                imports.append(f"from {home} import {own} as {name}")
    lines = [*imports, *functions.values()]
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return ""
    return "\n".join(lines)


def _names_in(code: CodeType) -> set[str]:
    inner = [_names_in(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inner)


def _print(
    name: str,
    test: ast.FunctionDef,
    functions: dict[str, ast.FunctionDef],
    aliases: dict[str, str],
) -> Print:
    own = list(_pieces(test, aliases))
    grams = _grams(own)
    for helper in {node.id for node in ast.walk(test) if isinstance(node, ast.Name)} & set(
        functions
    ):
        grams |= _grams(list(_pieces(functions[helper], aliases)))
    order: dict[str, int] = {}
    exact = [
        f"name {order.setdefault(text, len(order))}" if kind == "name" else f"{kind} {text}"
        for kind, text in own
    ]
    return Print(name, _hashed("\n".join(exact)), frozenset(grams))


def _grams(pieces: list[tuple[str, str]]) -> set[str]:
    rough = [
        kind if kind in ("name", "number", "text") else f"{kind} {text}" for kind, text in pieces
    ]
    return {_hashed("\n".join(rough[at : at + _GRAM])) for at in range(len(rough) - _GRAM + 1)}


def _pieces(function: ast.FunctionDef, aliases: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The syntax of a function's body, in order: kinds of nodes, and what they name."""
    for statement in function.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # a docstring
        yield from _walk(statement, aliases)


def _walk(node: ast.AST, aliases: dict[str, str]) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Name):
        yield ("import", aliases[node.id]) if node.id in aliases else ("name", node.id)
        return
    if isinstance(node, ast.Constant):
        number = isinstance(node.value, (int, float, complex)) and not isinstance(node.value, bool)
        kind = "number" if number else "text" if isinstance(node.value, str) else "constant"
        yield kind, repr(node.value)
        return
    if isinstance(node, ast.expr_context):
        return
    yield "node", type(node).__name__
    if isinstance(node, ast.Attribute):
        yield "attribute", node.attr
    if isinstance(node, ast.keyword):
        yield "keyword", str(node.arg)
    if isinstance(node, ast.arg):
        yield "name", node.arg
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, aliases)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def written(source: str) -> str:
    """The fingerprints of a file of public tests, as they come with the library."""
    told = [
        {"name": one.name, "exact": one.exact, "grams": sorted(one.grams)} for one in prints(source)
    ]
    return json.dumps(told, separators=(",", ":")) + "\n"


def main(path: str) -> None:
    """Write the fingerprints of the tests in a file."""
    Path(__file__).with_name("public_tests.json").write_text(
        written(Path(path).read_text("utf-8")), "utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
