"""Which code each test of a file needs: its own, what it names, the fixtures that it asks for, and theirs.

A file of tests imports much of which one test needs little. What a test names is followed through its file,
through the helpers beside it and in the folders above, and through their `conftest.py`; what is imported from
elsewhere stays as an import, for `provenance` to follow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path


@dataclass(frozen=True)
class _Module:
    """A file of tests, a helper or a `conftest.py`.

    Attributes:
        path: the file.
        top: the folder of all tests.
        known: the modules that were read before.
    """

    path: Path
    top: Path
    known: dict[Path, _Module] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def statements(self) -> list[ast.stmt]:
        return ast.parse(self.path.read_text("utf-8")).body

    @cached_property
    def defined(self) -> dict[str, list[ast.stmt]]:
        """The statements that give each name its meaning."""
        found: dict[str, list[ast.stmt]] = {}
        for node in self.statements:
            for name in _defines(node):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def tests(self) -> list[str]:
        """The names of its tests, and of classes of tests."""
        return [
            node.name
            for node in self.statements
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name.startswith("test")
            )
            or (isinstance(node, ast.ClassDef) and node.name.startswith("Test"))
        ]

    @cached_property
    def always(self) -> list[ast.stmt]:
        """What runs whatever test is asked for: fixtures for all, hooks, and statements that define nothing."""
        return [
            node
            for node in self.statements
            if not (_defines(node) or isinstance(node, ast.Import | ast.ImportFrom))
            or _is_for_all(node)
        ]

    @cached_property
    def folders(self) -> list[Path]:
        """Its folder and those above it, up to that of all tests."""
        folder, found = self.path.parent, [self.path.parent]
        while folder != self.top and folder != folder.parent:
            folder = folder.parent
            found.append(folder)
        return found

    @cached_property
    def conftests(self) -> list[_Module]:
        files = [folder / "conftest.py" for folder in self.folders]
        return [self._beside(file) for file in files if file.is_file() and file != self.path]

    def helper(self, name: str) -> _Module | None:
        """The helper that an import of this name brings."""
        for folder in self.folders:
            file = folder.joinpath(*name.split(".")).with_suffix(".py")
            if file.is_file():
                return self._beside(file)
        return None

    def _beside(self, path: Path) -> _Module:
        if path not in self.known:
            self.known[path] = _Module(path, self.top, self.known)
        return self.known[path]


class TestFile:
    """A file of tests.

    Attributes:
        tests: the names of its tests, and of classes of tests.
    """

    __test__ = False  # pytest, too, looks for names such as this one

    def __init__(self, path: Path, top: Path) -> None:
        """Read it.

        Args:
            path: the file.
            top: the folder of all tests, in which it lies.

        Raises:
            SyntaxError: it is not Python.
        """
        self._module = _Module(path, top)
        self.tests = self._module.tests

    def code(self, *tests: str) -> list[str]:
        """The code that some of its tests need, or all, a piece of it from each file that it comes from.

        Raises:
            SyntaxError: a helper is not Python.
        """
        return _needed(self._module, tests or self.tests)


def _needed(module: _Module, tests: Iterable[str]) -> list[str]:
    taken: dict[Path, list[ast.stmt]] = {}
    open_: list[tuple[_Module, ast.stmt]] = [
        (module, node) for test in tests for node in module.defined[test]
    ]
    for one in (module, *module.conftests):
        open_ += [(one, node) for node in one.always]
    while open_:
        at, node = open_.pop()
        own = taken.setdefault(at.path, [])
        if any(node is other for other in own):
            continue
        own.append(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            open_ += _imported(at, node)
            continue
        for name in _named(node):
            here = at.defined.get(name, [])
            open_ += [(at, _only(other, name)) for other in here]
            if not here:  # a fixture of a `conftest.py`
                open_ += [
                    (above, other)
                    for above in module.conftests
                    for other in above.defined.get(name, [])
                    if not isinstance(other, ast.Import | ast.ImportFrom)
                ]
    return [_text(nodes) for nodes in taken.values()]


def _imported(at: _Module, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[_Module, ast.stmt]]:
    """What an import of a helper brings; nothing of what lies elsewhere."""
    if isinstance(node, ast.ImportFrom):
        helper = at.helper(node.module) if node.module and not node.level else None
        if helper is not None:
            for alias in node.names:
                yield from (
                    (helper, _only(one, alias.name)) for one in helper.defined.get(alias.name, [])
                )
            yield from ((helper, one) for one in helper.always)
        return
    for alias in node.names:
        helper = at.helper(alias.name)
        if helper is not None:
            yield from ((helper, one) for one in helper.statements)


_imports: dict[tuple[int, str], ast.stmt] = {}


def _only(node: ast.stmt, name: str) -> ast.stmt:
    """Of an import that brings several names, the import of one."""
    if not isinstance(node, ast.Import | ast.ImportFrom) or len(node.names) == 1:
        return node
    key = (id(node), name)
    if key not in _imports:
        aliases = [alias for alias in node.names if _bound(alias) == name]
        if isinstance(node, ast.ImportFrom):
            _imports[key] = ast.ImportFrom(node.module, aliases, node.level)
        else:
            _imports[key] = ast.Import(aliases)
    return _imports[key]


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _defines(node: ast.stmt) -> list[str]:
    """The names to which a statement at the top of a module gives a meaning."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [_bound(alias) for alias in node.names]
    return [
        one.id
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    ]


def _named(node: ast.stmt) -> set[str]:
    """All names in a statement: variables, arguments (fixtures), and words that may name a fixture."""
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, ast.arg):
            found.add(one.arg)
        elif (
            isinstance(one, ast.Constant)
            and isinstance(one.value, str)
            and one.value.isidentifier()
        ):
            found.add(one.value)
    return found


def _is_for_all(node: ast.stmt) -> bool:
    """Return whether a definition counts for every test: a hook of pytest, a fixture for all, the marks."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        automatic = any(
            isinstance(one, ast.keyword) and one.arg == "autouse"
            for decorator in node.decorator_list
            for one in ast.walk(decorator)
        )
        return automatic or node.name.startswith("pytest_")
    return "pytestmark" in _defines(node)


def _text(nodes: list[ast.stmt]) -> str:
    return "\n".join(sorted(map(_written, nodes)))


@cache
def _written(node: ast.stmt) -> str:
    return ast.unparse(node)
