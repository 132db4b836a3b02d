"""Reads the definitions of the project's modules, and resolves names in them."""

from __future__ import annotations

import ast
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from measured_transformer.provenance.forms import (
    ClassForm,
    Form,
    Function,
    class_form,
    form_of,
    is_idle,
    is_import,
)

PACKAGES = ("measured_transformer", "measured_book", "bookpress")
LOOSE = "<statements>"
"""The name under which a module's statements that define nothing are kept."""
_ITSELF = "measured_transformer.provenance"
_FOLDER = Path(__file__).parents[2]
_PARSING = threading.Lock()  # Python 3.11 loses count of its depth where two threads parse at once

_held: ContextVar[_Held | None] = ContextVar("held", default=None)
_first: ContextVar[Path | None] = ContextVar("first", default=None)
Import = tuple[str, ...]
"""What a name is bound to by an import: a module, or a module and a name in it."""


@dataclass
class Source:
    """The parsed definitions of a project module.

    Attributes:
        name: of the module.
        is_package: whether it is a package's `__init__`.
        functions: functions, assignments and other statements that define a name, by that name.
        classes: classes by name.
        loose: statements that define nothing; they count for whatever reaches the module.
        imports: what its imports bind.
        further: what they bind besides, where one name is bound in several places: on conditions, mostly.
    """

    name: str
    is_package: bool = False
    functions: dict[str, Form] = field(default_factory=dict)
    classes: dict[str, ClassForm] = field(default_factory=dict)
    loose: Form | None = None
    imports: dict[str, Import] = field(default_factory=dict)
    further: dict[str, tuple[Import, ...]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All names that the module defines."""
        return [*self.functions, *self.classes]


class _Held(dict[str, "Source | None"]):
    """The modules that were read while files do not change, and what their names lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: dict[int, list[Target]] = {}


# Finding ------------------------------------------------------------------------------------------


def file_of(module: str) -> Path | None:
    """The file of a module whose code counts, of the project or a reader's own; None for others.

    A reader's own was loaded from a file outside the interpreter's and the installed packages' folders.
    """
    if is_comparing(module) or module == "__main__":
        return None
    if (first := _first.get()) is not None and (path := _inside(first, module)) is not None:
        return path
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if module.partition(".")[0] not in PACKAGES:
        if loaded is None or not loaded.endswith(".py") or is_installed(loaded):
            return None
        return Path(loaded)
    if loaded is not None and loaded.endswith(".py"):
        return Path(loaded)
    if (path := _inside(_FOLDER, module)) is not None:
        return path
    parent, _, name = module.rpartition(".")
    for folder in getattr(sys.modules.get(parent), "__path__", ()):  # a package of several folders
        for path in (Path(folder, f"{name}.py"), Path(folder, name, "__init__.py")):
            if path.is_file():
                return path
    return None


def is_comparing(name: str) -> bool:
    """Return whether a module or name belongs to this package, whose code changes no measured value."""
    return name == _ITSELF or name.startswith(f"{_ITSELF}.")


def _inside(folder: Path, module: str) -> Path | None:
    plain = folder.joinpath(*module.split("."))
    for path in (plain.with_suffix(".py"), plain / "__init__.py"):
        if path.is_file():
            return path
    return None


@lru_cache(maxsize=4096)
def is_installed(file: str) -> bool:
    """Return whether a file lies in the interpreter's folder or among installed packages."""
    path = Path(file)
    if not path.is_absolute() or not path.is_file():
        return True  # made while its package was loaded
    path = path.resolve()
    return any(path.is_relative_to(folder) for folder in _installed_folders())


@lru_cache(maxsize=1)
def _installed_folders() -> tuple[Path, ...]:
    """The interpreter's folders, and those on the import path that hold installed packages."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    own = {Path(sysconfig.get_path(kind)).resolve() for kind in kinds}
    named = {Path(entry).resolve() for entry in sys.path if entry}
    return tuple(own | {folder for folder in named if any(folder.glob("*.dist-info"))})


def source_of(module: str) -> Source | None:
    """The parsed module; None when its code does not count."""
    held = _held.get()
    if held is not None and module in held:
        return held[module]
    path, found = file_of(module), None
    if path is not None:
        at = path.stat()
        found = _read(module, path, at.st_mtime_ns, at.st_size)
    if held is not None:
        held[module] = found
    return found


def links_in_memory() -> dict[int, list[Target]] | None:
    """What the names in a piece of code lead to, by the piece's identity; None outside of `unchanging`."""
    held = _held.get()
    return None if held is None else held.links


def is_looking_elsewhere() -> bool:
    """Return whether packages are looked for in a folder of their own first; see `unchanging`."""
    return _first.get() is not None


@contextmanager
def unchanging(folder: Path | None = None) -> Iterator[None]:
    """Read each file once: inside the block, files are assumed not to change.

    Args:
        folder: where packages are looked for first.
    """
    known = _held.get() if folder is None else None
    tokens = _held.set(_Held() if known is None else known), _first.set(folder or _first.get())
    try:
        yield
    finally:
        _held.reset(tokens[0])
        _first.reset(tokens[1])


@lru_cache(maxsize=2048)
def _read(module: str, path: Path, _mtime: int, _size: int) -> Source:
    text, is_package = path.read_text("utf-8"), path.name == "__init__.py"
    return parse_module(module, text, is_package=is_package, file=str(path))


def parse_module(
    module: str, text: str, *, is_package: bool = False, file: str = "<unknown>"
) -> Source:
    """Parse the text of a module.

    Raises:
        SyntaxError: it is no Python.
    """
    with _PARSING:
        tree = ast.parse(text, file)
    source = Source(module, is_package)

    def imported(node: ast.stmt) -> dict[str, Import]:
        return dict(_bindings(node, module, is_package))

    source.imports, source.further = imports_of(tree, module, is_package)
    pieces: dict[str, list[ast.stmt]] = {}
    loose: list[ast.stmt] = []
    for node in tree.body:
        if is_idle(node) or is_import(node) or _is_main(node):
            continue
        if isinstance(node, ast.ClassDef):
            source.classes[node.name] = class_form(node, imported)
            continue
        names = [name for name in _defined(node) if name != "__all__"]
        if not names and "__all__" in _defined(node):
            continue
        if names:
            for name in names:
                pieces.setdefault(name, []).append(node)
        elif not _only_imports(node):
            changed = _changed(node)
            (pieces.setdefault(changed, []) if changed in pieces else loose).append(node)
    for name, nodes in pieces.items():
        together = {n for node in nodes for n in _defined(node)}
        position = [list(_defined(node)).index(name) for node in nodes if name in _defined(node)]
        form = form_of(nodes, imported, [name])
        if len(together) > 1:
            form.text = f"{position} {form.text}"
        source.functions[name] = form
    if loose:
        source.loose = form_of(loose, imported)
    return source


def imports_of(
    tree: ast.Module, module: str, is_package: bool = False
) -> tuple[dict[str, Import], dict[str, tuple[Import, ...]]]:
    """The names that a module's top-level imports bind, and what each leads to.

    Returns:
        what each name is bound to last, and what it is bound to besides: an import in each branch of a
        condition, say, of which either may be the one that counts.
    """
    found: dict[str, list[Import]] = {}
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, bound in _bindings(node, module, is_package):
                found[name] = [b for b in found.get(name, ()) if b != bound] + [bound]
        elif isinstance(node, ast.If | ast.Try | ast.With):
            waiting += ast.iter_child_nodes(node)
        elif isinstance(node, ast.ExceptHandler):
            waiting += node.body
    further = {name: tuple(each[:-1]) for name, each in found.items() if len(each) > 1}
    return {name: each[-1] for name, each in found.items()}, further


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__main__" in ast.dump(node.test)


def _only_imports(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Try | ast.If | ast.With):
        return False
    return all(is_import(one) or isinstance(one, ast.Pass) or is_idle(one) for one in node.body)


def _defined(node: ast.stmt) -> list[str]:
    """The names that a top-level statement defines."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AugAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    found = []
    waiting: list[ast.AST] = [node]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, Function | ast.ClassDef):
            found.append(one.name)
            continue
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            found.append(one.id)
        if not isinstance(
            one, ast.Lambda | ast.ListComp | ast.DictComp | ast.SetComp | ast.GeneratorExp
        ):
            waiting += ast.iter_child_nodes(one)
    return list(dict.fromkeys(found))


def _changed(node: ast.stmt) -> str:
    """The name whose value a statement mutates: `NAME.update(...)`, `NAME[...] = ...`, `NAME.x = ...`."""
    target: ast.AST | None = None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        target = node.value.func
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        target = node.target
    elif isinstance(node, ast.Delete):
        target = node.targets[0]
    if isinstance(target, ast.Name):
        return target.id if isinstance(node, ast.Delete) else ""
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Call):
        target = target.func if isinstance(target, ast.Call) else target.value
    return target.id if isinstance(target, ast.Name) else ""


def _bindings(node: ast.stmt, module: str, is_package: bool) -> Iterator[tuple[str, Import]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, (alias.name,)
            else:
                top = alias.name.partition(".")[0]
                yield top, (top,)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module.split(".") if is_package else module.split(".")[:-1]
            package = package[: len(package) - node.level + 1]
            base = ".".join([*package, *([node.module] if node.module else [])])
        for alias in node.names:
            if alias.name == "*":
                yield f"*{base}", (base,)
            else:
                yield alias.asname or alias.name, (base, alias.name)


# What a name leads to -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """The target of a name: a definition or module of the project, or something outside.

    Attributes:
        module: of the project; empty for something outside.
        name: of the definition; empty for the whole module.
        rest: attributes that follow, or the full name of what lies outside.
        others: what it leads to as well, where a condition decides between several.
        text: what stands in the code, where that is no name but a text: one that names the definition as
            ``module:name``, or nothing at all.
    """

    module: str
    name: str = ""
    rest: str = ""
    others: tuple[Target, ...] = ()
    text: str = ""


def lead(
    source: Source,
    path: tuple[str, ...],
    imports: Mapping[str, Import],
    further: Mapping[str, tuple[Import, ...]],
) -> Target:
    """Resolve a dotted name in a module.

    Args:
        source: the module.
        path: the name and the attributes that follow it, or a text that may name a definition.
        imports: what imports inside of the piece of code bind, beside those of the module.
        further: what they bind besides, see `Source`.
    """
    if ":" in path[0]:
        return _named(path[0])
    own = Target(source.name, path[0], ".".join(path[1:])) if path[0] in source.names else None
    bound = [imports[path[0]], *further.get(path[0], ())] if path[0] in imports else []
    if not bound:
        last = source.imports.get(path[0])
        bound = [*([last] if last else []), *source.further.get(path[0], ())]
    found = [_follow((*".".join(one).split("."), *path[1:])) for one in bound]
    if own is not None and path[0] not in imports:
        found = [own, *(one for one in found if one.module)]
    if found:
        return replace(found[0], others=tuple(found[1:]))
    return _starred(source, {**source.imports, **imports}, path) or Target("", "", ".".join(path))


def _named(text: str) -> Target:
    """The definition that a text names; None when there is none."""
    module, _, name = text.partition(":")
    source = source_of(module)
    known = source is not None and name in source.names
    return Target(module, name, text=text) if known else Target("", text=text)


def _starred(
    source: Source, imports: Mapping[str, Import], path: tuple[str, ...], depth: int = 0
) -> Target | None:
    """Resolve a name that came from a star import."""
    bases = [bound[0] for name, bound in imports.items() if name.startswith("*")]
    for base in bases if depth <= 20 else ():
        found = _follow((*base.split("."), *path), depth + 1)
        if found.name and found.module != source.name:
            return found
    return None


def _follow(path: tuple[str, ...], depth: int = 0) -> Target:
    """Resolve an absolute dotted path."""
    if depth > 20:
        return Target("", "", ".".join(path))
    length = len(path)
    while length and source_of(".".join(path[:length])) is None:
        length -= 1
    if not length:
        return Target("", "", ".".join(path))
    module, rest = ".".join(path[:length]), path[length:]
    source = source_of(module)
    assert source is not None
    if not rest:
        return Target(module)
    if rest[0] in source.names:
        return Target(module, rest[0], ".".join(rest[1:]))
    if rest[0] in source.imports:  # it passes on what it imports itself
        bound = source.imports[rest[0]]
        onward = (*bound[0].split("."), *bound[1:], *rest[1:])
        if onward != path:
            return _follow(onward, depth + 1)
    made = Target(module, "", ".".join(rest))
    return _starred(source, source.imports, rest, depth) or made
