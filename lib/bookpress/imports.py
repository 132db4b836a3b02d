"""Which modules of the library a piece of code imports, found without running it.

The walk follows `import` statements wherever they stand (also inside functions), relative imports,
submodules, star imports, literal `importlib.import_module` calls and every parent package's
`__init__`.  Imports under `if TYPE_CHECKING:` do not happen at run time and are left out; but where a
package exports names lazily (a module-level `__getattr__` beside imports under `TYPE_CHECKING`), a
name that is asked for leads to the one module that defines it.  What cannot be known, such as a
module name that is computed, counts as the whole package: a chapter may then run once too often, but
never shows what is stale.
"""

from __future__ import annotations

import ast
import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_IMPORTERS = {"import_module", "__import__"}


class LibrarySyntaxError(ValueError):
    """A module of the library is no valid Python, so what it imports cannot be told."""


@dataclass
class Imports:
    """What one module (or a chapter's cells) imports, and the names that it defines."""

    runtime: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    type_only: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    literal: list[tuple[str, str | None]] = field(default_factory=list)
    computed: bool = False
    lazy: bool = False
    defined: set[str] = field(default_factory=set)
    uses: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)


class Library:
    """The modules that lie as source files under one folder, and what each of them imports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, tuple[tuple[int, int], Imports]] = {}
        # What follows from the files as they are, until one of them changes, comes or goes:
        self._state: dict[Path, tuple[int, int]] = {}
        self._places: dict[str, Path | None] = {}
        self._known: dict[str, bool] = {}
        self._leads_to: dict[str, set[str]] = {}

    def files(self, trees: Iterable[ast.AST]) -> dict[str, Path]:
        """Find every module file that running `trees` one after another imports.

        Returns module name -> file.  Raises LibrarySyntaxError for a module that does not parse.
        """
        state = self._versions()
        if state != self._state:
            self._state = state
            for known in (self._places, self._known, self._leads_to):
                known.clear()
        waiting = self._needed(survey(trees), package="")
        found: dict[str, Path] = {}
        while waiting:
            name = waiting.pop()
            path = self.file(name)
            if name in found or path is None:
                continue
            found[name] = path
            if name not in self._leads_to:
                self._leads_to[name] = self._needed(self.imports(name), self._package(name))
            waiting |= self._leads_to[name] - found.keys()
        return found

    def _versions(self) -> dict[Path, tuple[int, int]]:
        """When each folder and source file of the library was changed last, and its size."""
        found: dict[Path, tuple[int, int]] = {}
        for folder, inner, names in os.walk(self.folder):
            inner[:] = [name for name in inner if name != "__pycache__"]
            place = Path(folder)
            for path in (place, *(place / name for name in names if name.endswith(".py"))):
                with contextlib.suppress(FileNotFoundError):  # gone in this moment
                    found[path] = _version(path)
        return found

    def file(self, name: str) -> Path | None:
        """The source file of a module; None for a namespace package or a module from elsewhere."""
        if name not in self._places:
            base = self.folder.joinpath(*name.split("."))
            paths = (base / "__init__.py", base.with_name(base.name + ".py"))
            self._places[name] = next((path for path in paths if path.is_file()), None)
        return self._places[name]

    def has(self, name: str) -> bool:
        """Tell whether a name is a module or package of this library."""
        if name not in self._known:
            parts = name.split(".")
            self._known[name] = all(part.isidentifier() for part in parts) and (
                self.file(name) is not None or self.folder.joinpath(*parts).is_dir()
            )
        return self._known[name]

    def imports(self, name: str) -> Imports:
        """Survey one module of the library; nothing for a namespace package."""
        path = self.file(name)
        if path is None:
            return Imports()
        version = _version(path)
        if self._read.get(path, (None,))[0] != version:
            self._read[path] = (version, survey([_parse(path)]))
        return self._read[path][1]

    def _package(self, name: str) -> str:
        path = self.file(name)
        is_package = path is None or path.name == "__init__.py"
        return name if is_package else name.rpartition(".")[0]

    def _needed(self, found: Imports, package: str) -> set[str]:
        """The modules that a surveyed piece of code, living in `package`, imports directly."""
        needed: set[str] = set()
        for statement in found.runtime:
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    needed |= self._with_parents(alias.name)
                    bound = alias.asname or alias.name.partition(".")[0]
                    target = alias.name if alias.asname else bound
                    needed |= self._used(target, found.uses.get(bound, set()))
            else:
                base = resolve(statement, package)
                needed |= self._with_parents(base)
                for alias in statement.names:
                    needed |= self._exported(base, alias.name)
                    submodule = f"{base}.{alias.name}"
                    if self.has(submodule):
                        bound = alias.asname or alias.name
                        needed |= self._used(submodule, found.uses.get(bound, set()))
        for literal, given in found.literal:
            name = _absolute(literal, given if given is not None else package)
            needed |= self._with_parents(name) | self._everything_lazy(name)
        if found.computed:
            needed |= self._everything_in(package)
        return needed

    def _with_parents(self, name: str) -> set[str]:
        """A module and the packages around it, as far as they belong to the library."""
        parts = name.split(".")
        names = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        return {each for each in names if self.has(each)}

    def _exported(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        """The modules that `from module import name` needs beside `module` itself."""
        every_module_has_it = name.startswith("__") and name.endswith("__")
        if not self.has(module) or f"{module}:{name}" in seen or every_module_has_it:
            return set()
        if name == "*":
            return self._everything_lazy(module)
        found = self.imports(module)
        if self.has(f"{module}.{name}") and (
            name not in found.defined or self._brings_in(module, name)
        ):
            return {f"{module}.{name}"}
        seen |= {f"{module}:{name}"}
        for statement in found.type_only:
            for alias in statement.names:
                if (alias.asname or alias.name) != name:
                    continue
                if isinstance(statement, ast.Import):
                    return self._with_parents(alias.name)
                base = resolve(statement, self._package(module))
                return self._with_parents(base) | self._exported(base, alias.name, seen)
        if found.lazy and name not in found.defined:
            return self._everything_in(module)
        return set()

    def _brings_in(self, package: str, name: str) -> bool:
        """Tell whether a package's name is its submodule: `from . import name` in its `__init__`."""
        return any(
            alias.name == name and (alias.asname or name) == name
            for statement in self.imports(package).runtime
            if isinstance(statement, ast.ImportFrom)
            and resolve(statement, self._package(package)) == package
            for alias in statement.names
        )

    def _used(self, module: str, chains: Iterable[tuple[str, ...]]) -> set[str]:
        """The modules behind attributes of an imported module: `mt.Decoder`, `mt.parts.norms`."""
        needed: set[str] = set()
        if not self.has(module):
            return needed
        for chain in chains:
            current = module
            if not chain:
                needed |= self._everything_lazy(current)
            for name in chain:
                needed |= self._exported(current, name)
                current = f"{current}.{name}"
                if not self.has(current):
                    break
        return needed

    def _everything_lazy(self, module: str) -> set[str]:
        """Whatever a package may load later: for a star import, or a package handed on as a value."""
        if not self.has(module) or not self.imports(module).lazy:
            return set()
        names = [a.asname or a.name for s in self.imports(module).type_only for a in s.names]
        found = (self._exported(module, name) for name in names)
        return set().union(*found) if names else self._everything_in(module)

    def _everything_in(self, package: str) -> set[str]:
        """Each module below a package."""
        if not package:
            return set()
        base = self.folder.joinpath(*package.split("."))
        paths = (path.relative_to(self.folder).with_suffix("") for path in base.rglob("*.py"))
        return {".".join(p.parts).removesuffix(".__init__") for p in paths}


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def survey(trees: Iterable[ast.AST]) -> Imports:
    """Collect the imports of one or several pieces of code that share their names."""
    found = Imports()
    for tree in trees:
        body = tree.body if isinstance(tree, ast.Module) else []
        found.lazy |= any(_is_function(node, "__getattr__") for node in body)
        _visit(tree, found, type_only=False, lazy=False)
    return found


def resolve(statement: ast.ImportFrom, package: str) -> str:
    """The absolute name of the module that a `from ... import` statement names."""
    return _absolute("." * statement.level + (statement.module or ""), package)


def _absolute(name: str, package: str) -> str:
    """Make a relative module name (`..parts.norms`) absolute, seen from `package`."""
    relative = name.lstrip(".")
    level = len(name) - len(relative)
    if level == 0:
        return name
    parts = package.split(".")
    base = parts[: len(parts) - (level - 1)]
    return ".".join([*base, relative] if relative else base)


def _visit(node: ast.AST, found: Imports, *, type_only: bool, lazy: bool) -> None:
    if isinstance(node, ast.If):
        body_only, else_only = _type_checking(node.test)
        for statement in node.body:
            _visit(statement, found, type_only=type_only or body_only, lazy=lazy)
        for statement in node.orelse:
            _visit(statement, found, type_only=type_only or else_only, lazy=lazy)
        _visit(node.test, found, type_only=type_only, lazy=lazy)
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        (found.type_only if type_only else found.runtime).append(node)
        if not type_only:
            found.defined |= {a.asname or a.name.partition(".")[0] for a in node.names}
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        found.defined.add(node.name)
        lazy = lazy or _is_function(node, "__getattr__")
    elif isinstance(node, ast.Call):
        _note_call(node, found, lazy=lazy)
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            found.defined.add(node.id)
        else:
            found.uses.setdefault(node.id, set()).add(())
    elif isinstance(node, ast.Attribute):
        name, chain = _chain(node)
        if name is not None:
            found.uses.setdefault(name, set()).add(chain)
            return
    for child in ast.iter_child_nodes(node):
        _visit(child, found, type_only=type_only, lazy=lazy)


def _note_call(node: ast.Call, found: Imports, *, lazy: bool) -> None:
    """Note `importlib.import_module("a.b")` and its like.

    A computed name inside a module-level `__getattr__` is how lazy exports work; they are resolved
    name by name instead.
    """
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
    if name not in _IMPORTERS or not node.args:
        return
    given = node.args[1] if len(node.args) > 1 else None
    given = next((k.value for k in node.keywords if k.arg == "package"), given)
    package = given.value if isinstance(given, ast.Constant) else None
    first = node.args[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        found.literal.append((first.value, package if isinstance(package, str) else None))
    elif not lazy:
        found.computed = True


def _chain(node: ast.Attribute) -> tuple[str | None, tuple[str, ...]]:
    """Split `mt.parts.norms` into the name `mt` and the attributes `parts`, `norms`."""
    attributes: list[str] = []
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        attributes.append(value.attr)
        value = value.value
    name = value.id if isinstance(value, ast.Name) else None
    return name, tuple(reversed(attributes))


def _type_checking(test: ast.expr) -> tuple[bool, bool]:
    """Tell which branch of an `if` is for type checkers only: its body, its else, or neither."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        body_only, else_only = _type_checking(test.operand)
        return else_only, body_only
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING", False


def _is_function(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        reason = getattr(error, "msg", str(error))
        raise LibrarySyntaxError(
            f"{path}, line {line}: {reason}; expected valid Python, to tell which chapters import it"
        ) from error


def cell_trees(sources: Iterable[str]) -> Iterator[ast.AST]:
    """Parse the code cells of a chapter, magics and shell escapes included.

    A cell that is no Python at all imports nothing: it fails, with its own message, when it runs.
    """
    for source in sources:
        lines = source.lstrip().split("\n")
        text = "\n".join(lines[1:]) if lines[0].startswith("%%") else source
        try:
            yield ast.parse(text)
        except SyntaxError:
            try:
                yield ast.parse(_without_magics(text))
            except SyntaxError:
                continue


def _without_magics(source: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(source)
