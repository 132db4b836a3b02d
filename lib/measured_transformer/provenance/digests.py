"""Finds the definitions that a value depends on, and digests them."""

from __future__ import annotations

import ast
import fnmatch
import functools
import hashlib
import inspect
import json
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from measured_transformer.provenance.forms import ClassForm, Form, form_of, is_import
from measured_transformer.provenance.kept import keep, kept
from measured_transformer.provenance.modules import (
    LOOSE,
    Source,
    Target,
    file_of,
    imports_of,
    is_comparing,
    is_installed,
    lead,
    source_of,
    unchanging,
)
from measured_transformer.provenance.words import plain

Node = tuple[str, str]
"""A definition: its module and its name."""
_HOLE = re.compile("\0([0-9]+)\0")
_CELLS = "<cells>"
MATTERING = ("num2words", "numpy", "scipy", "tokenizers", "torch", "transformers")
"""The packages that compute values, so that another version of one may give others."""
ELSEWHERE = ("num2words", "python", "tokenizers", "transformers")
"""Those whose texts and tables values are made of.

What computes (torch, numpy, scipy) is told apart, by whoever keeps values, with the machine that computed them.
"""
_PYTHONS_OWN = ("pydoc_data",)
"""Modules of Python itself whose content differs between its releases."""
_MAGIC = re.compile(r"^\s*[%!]")


class CodeUnknownError(ValueError):
    """The source of some code cannot be read, so its dependencies are unknown."""


def digest(*things: object, settings: Any = None, data: Sequence[Path | str] = ()) -> str:
    """One digest of all code that things reach, of settings and of files.

    Args:
        things: functions, classes, modules, objects (their classes, and what dataclasses hold), or definitions
            by name, such as ``"measured_transformer.parts.norms:RMSNorm"``.
        settings: values that count as well; see `plain`. With settings a value is meant and not code alone:
            then the versions of `ELSEWHERE` count that the code reaches.
        data: files whose bytes count.

    Raises:
        CodeUnknownError: for lambdas, functions made by functions and what was defined in a notebook.
        ValueError: for settings that have no words.
    """
    roots = _roots(things)
    told = [_walked(tuple(roots)).digest]
    told.append(json.dumps(plain(settings), sort_keys=True))
    if settings is not None:
        told += [f"{n} {v}" for n, v in versions(*things).items() if n in ELSEWHERE]
    told += [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in data]
    return _hash(told)


def versions(*things: object) -> dict[str, str]:
    """The installed versions of the packages that the code of things reaches.

    Without what names a build of the same version, such as ``+cpu``. Of `MATTERING` only, since a newer
    progress bar changes no value; and Python's own where a text is reached that comes with it.
    """
    reached = _walked(tuple(_roots(things))).packages
    found = {name: _version(name) for name in MATTERING if name in reached}
    if reached & set(_PYTHONS_OWN):
        found["python"] = platform.python_version()
    return found


@functools.cache
def _version(package: str) -> str:
    try:
        return metadata.version(package).partition("+")[0]
    except metadata.PackageNotFoundError:
        return "not installed"


def reach(*things: object) -> dict[str, str]:
    """All definitions that things reach, as ``module:name``, with the digest of each one's own tree."""
    return _walked(tuple(_roots(things)), in_full=True).own


def roots(*things: object) -> list[str]:
    """The definitions at which a walk from things begins, as ``module:name``."""
    return [f"{module}:{name}" for module, name in _roots(things)]


def files(*things: object) -> list[Path]:
    """The files with the code that things reach."""
    modules = {name.partition(":")[0] for name in reach(*things)}
    return sorted({path for module in modules if (path := file_of(module)) is not None})


def digest_source(cells: Sequence[str], *, settings: Any = None) -> str:
    """The digest of the code in a notebook's cells, and of all that it reaches; import lines do not count."""
    told = [_walk_cells(cells).digest, json.dumps(plain(settings), sort_keys=True)]
    return _hash(told)


def reach_source(cells: Sequence[str]) -> dict[str, str]:
    """All definitions that a notebook's cells reach, with the cells themselves as ``<cells>``."""
    return _walk_cells(cells).own


def files_of_source(cells: Sequence[str]) -> list[Path]:
    """The files with the code that a notebook's cells reach."""
    modules = {name.partition(":")[0] for name in _walk_cells(cells).own} - {_CELLS}
    return sorted({path for module in modules if (path := file_of(module)) is not None})


# Where a walk begins ------------------------------------------------------------------------------


def _roots(things: Iterable[object]) -> list[Node]:
    found: list[Node] = []
    for thing in things:
        found += _root(thing)
    return list(dict.fromkeys(found))


def _root(thing: object) -> list[Node]:
    if thing is None:
        return []
    if isinstance(thing, str):
        module, _, name = thing.partition(":")
        return _known(module, name, thing)
    if isinstance(thing, functools.partial):
        held = [thing.func, *thing.args, *thing.keywords.values()]
        return [node for one in held for node in _held(one)]
    if inspect.ismethod(thing):
        return [*_root(thing.__self__), *_root(type(thing.__self__))]
    if inspect.ismodule(thing):
        source = source_of(thing.__name__)
        return [] if source is None else [(thing.__name__, name) for name in source.names]
    if isinstance(thing, type) or inspect.isroutine(thing):
        return _defined(thing)
    found = _defined(type(thing))
    if is_dataclass(thing):
        for one in fields(thing):
            found += _held(getattr(thing, one.name))
    return found


def _held(value: object) -> list[Node]:
    """The definitions of the objects that an object holds; plain values have none."""
    if isinstance(value, Mapping):
        return [node for one in value.values() for node in _held(one)]
    if isinstance(value, list | tuple | set | frozenset):
        return [node for one in value for node in _held(one)]
    if callable(value) or is_dataclass(value):
        return _root(value)
    return []


def _defined(thing: Any) -> list[Node]:
    module, name = str(thing.__module__), str(thing.__qualname__)
    if file_of(module) is None:
        known = module.partition(".")[0] in sys.stdlib_module_names - {"__main__"}
        if known or _installed(module):
            return []
        raise CodeUnknownError(f"expected code of a module that can be read, got {module}.{name}")
    if "<" in name:
        raise CodeUnknownError(
            f"expected a function or class at the top of a module, got "
            f"{module}.{name}, whose name does not say which it is"
        )
    return _known(module, name.partition(".")[0], f"{module}:{name}")


def _installed(module: str) -> bool:
    found = sys.modules.get(module)
    if module == "__main__" or found is None:
        return False
    file = getattr(found, "__file__", None)
    return file is None or not file.endswith(".py") or is_installed(file)


def _known(module: str, name: str, said: str) -> list[Node]:
    source = source_of(module)
    if source is None or name not in source.names:
        raise CodeUnknownError(
            f"expected a definition of the project such as module:name, got {said}"
        )
    return [(module, name)]


# The walk -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Walked:
    """What a walk found; of a kept one, `own` is empty."""

    digest: str
    own: dict[str, str]
    stamps: tuple[tuple[str, int, int], ...]
    packages: frozenset[str]


_memory: dict[tuple[Node, ...], _Walked] = {}


def _walked(roots: tuple[Node, ...], *, in_full: bool = False) -> _Walked:
    """The walk from some definitions, cached until one of its files changes."""
    known = _memory.get(roots)
    if known is not None and any(_stamp(m) != (m, t, s) for m, t, s in known.stamps):
        known = None
    if known is None and not in_full:
        known = _kept(roots)
    if known is None or (in_full and roots and not known.own):
        with unchanging():
            known = _Walk(roots, {}).finish()
        keep(_key(roots), _as_kept(known))
    _memory[roots] = known
    return known


def _key(roots: tuple[Node, ...]) -> str:
    return json.dumps(roots)


def _as_kept(walk: _Walked) -> dict[str, Any]:
    modules = [module for module, _, _ in walk.stamps]
    return {"digest": walk.digest, "packages": sorted(walk.packages), "modules": modules}


def _kept(roots: tuple[Node, ...]) -> _Walked | None:
    found = kept(_key(roots), ("digest", "packages"))
    if found is None:
        return None
    stamps = tuple(map(_stamp, found["modules"]))
    return _Walked(found["digest"], {}, stamps, frozenset(found["packages"]))


def _stamp(module: str) -> tuple[str, int, int]:
    path = file_of(module)
    if path is None:
        return module, 0, 0
    at = path.stat()
    return module, at.st_mtime_ns, at.st_size


_cells_memory: dict[tuple[str, ...], _Walked] = {}


def _walk_cells(cells: Sequence[str]) -> _Walked:
    known = _cells_memory.get(tuple(cells))
    if known is None or any(_stamp(m) != (m, t, s) for m, t, s in known.stamps):
        known = _cells_memory[tuple(cells)] = _walked_cells(cells)
    return known


def _walked_cells(cells: Sequence[str]) -> _Walked:
    body: list[ast.stmt] = []
    others: list[
        str
    ] = []  # magics, and what is no Python: it fails with its own message when it runs
    for cell in cells:
        lines = cell.splitlines()
        others += [line.strip() for line in lines if _MAGIC.match(line)]
        try:
            body += ast.parse("\n".join("pass" if _MAGIC.match(x) else x for x in lines)).body
        except SyntaxError:
            others.append(cell)
    tree = ast.Module(body, [])
    form = form_of([node for node in tree.body if not is_import(node)], lambda node: {})
    form.text += "\n".join(others)
    imports, further = imports_of(tree, _CELLS)
    source = Source(_CELLS, functions={"cells": form}, imports=imports, further=further)
    with unchanging():
        return _Walk([(_CELLS, "cells")], {_CELLS: source}).finish()


class _Walk:
    """Finds the live code: definitions that are reached, and the methods of classes that may be called."""

    def __init__(self, roots: Sequence[Node], extra: Mapping[str, Source]) -> None:
        self._extra, self._roots = extra, list(roots)
        self._live: dict[Node, None] = {}
        self._attributes: set[str] = set()
        self._passed: set[str] = set()
        self._pieces: dict[Node, list[tuple[str, Form]]] = {}
        self._methods: dict[Node, set[str]] = {}
        self._links: dict[int, list[Target]] = {}
        waiting, asked = list(roots), -1
        while waiting or asked != len(self._attributes) + len(self._passed):
            while waiting:
                waiting += self._enter(waiting.pop())
            asked = len(self._attributes) + len(
                self._passed
            )  # a method that becomes live may ask for one seen before
            for node in list(self._methods):
                waiting += self._ask(node)

    def _source(self, module: str) -> Source:
        found = self._extra.get(module) or source_of(module)
        assert found is not None
        return found

    def _enter(self, node: Node) -> list[Node]:
        if node in self._live:
            return []
        self._live[node] = None
        source = self._source(node[0])
        self._pieces[node] = []
        if node[1] == LOOSE:
            return [] if source.loose is None else self._add(node, "", source.loose)
        found: list[Node] = []
        if source.loose is not None:
            found.append((node[0], LOOSE))
        if node[1] in source.functions:
            return found + self._add(node, "", source.functions[node[1]])
        self._methods[node] = set()
        return found + self._add(node, "", source.classes[node[1]].head)

    def _add(self, node: Node, name: str, form: Form) -> list[Node]:
        self._pieces[node].append((name, form))
        self._attributes |= form.attributes
        self._passed |= form.keywords
        source, found = self._source(node[0]), []
        links = []
        for path in form.holes:
            target = lead(source, path, form.imports, form.further)
            links.append(target)
            self._attributes.update(target.rest.split(".") if target.module else ())
            found += self._nodes(target)
        self._links[id(form)] = links
        return found

    def _nodes(self, target: Target) -> list[Node]:
        own = self._own_nodes(target)
        for other in target.others:
            own += self._own_nodes(other)
        return list(dict.fromkeys(own))

    def _own_nodes(self, target: Target) -> list[Node]:
        if not target.module:
            return []
        if target.name:
            return [(target.module, target.name)]
        names = self._source(target.module).names
        if target.rest:  # made at run time, by a function that says how; or how code is compared
            made = "__getattr__" in names and not is_comparing(f"{target.module}.{target.rest}")
            return [(target.module, "__getattr__")] if made else []
        return [(target.module, name) for name in names]

    def _ask(self, node: Node) -> list[Node]:
        """Add the methods of a live class that have become live; returns what they reach."""
        made = self._source(node[0]).classes[node[1]]
        every = self._is_used_from_outside(node, set())
        patterns = [name for name in self._attributes if "*" in name]
        found: list[Node] = []
        for name, form in made.methods.items():
            if name in self._methods[node]:
                continue
            dunder = name.startswith("__") and name.endswith("__")
            asked = name in self._attributes or any(fnmatch.fnmatch(name, p) for p in patterns)
            if every or dunder or asked:
                self._methods[node].add(name)
                found += self._add(node, name, form)
        for name, form in made.optional.items():
            wanted = name in self._attributes or name in self._passed
            if wanted and f"{name}=" not in self._methods[node]:
                self._methods[node].add(f"{name}=")
                found += self._add(node, f"{name}=", form)
        return found

    def _is_used_from_outside(self, node: Node, seen: set[Node]) -> bool:
        """Return whether a class inherits from another package, which may then call any of its methods."""
        if node in seen:
            return False
        source = self._source(node[0])
        made: ClassForm = source.classes[node[1]]
        for base in made.bases:
            target = lead(source, base, {}, {})
            if not target.module:
                if target.rest not in ("object", "typing.Generic", "Generic"):
                    return True
            elif target.name in self._source(target.module).classes and self._is_used_from_outside(
                (target.module, target.name), seen | {node}
            ):
                return True
        return False

    # Hashing --------------------------------------------------------------------------------------

    def finish(self) -> _Walked:
        """The digest of all live code, with each reference replaced by what it leads to."""
        hashes: dict[Node, str] = {}
        for group in _groups(list(self._live), self._edges()):
            names = {node: f"{i}" for i, node in enumerate(sorted(group, key=lambda n: n[1]))}
            inner = {node: self._text(node, hashes, names) for node in group}
            for node in group:
                told = sorted(inner.values()) if len(group) > 1 else []
                hashes[node] = _hash([inner[node], *told])
        own = {f"{m}:{n}": _hash([self._text((m, n), {}, {})]) for m, n in self._live}
        modules = sorted({m for m, _ in self._live} - set(self._extra))
        whole = _hash([hashes[root] for root in self._roots])
        return _Walked(whole, own, tuple(map(_stamp, modules)), self._packages())

    def _packages(self) -> frozenset[str]:
        """The first components of all names that lead out of the project: packages and built-ins."""
        links = [t for links in self._links.values() for one in links for t in (one, *one.others)]
        return frozenset(t.rest.partition(".")[0] for t in links if not t.module)

    def _edges(self) -> dict[Node, list[Node]]:
        edges = {}
        for node, pieces in self._pieces.items():
            targets = [t for _, form in pieces for t in self._links[id(form)]]
            loose = self._source(node[0]).loose is not None and node[1] != LOOSE
            found = [n for target in targets for n in self._nodes(target)]
            edges[node] = list(dict.fromkeys([*found, *([(node[0], LOOSE)] if loose else [])]))
        return edges

    def _text(self, node: Node, hashes: Mapping[Node, str], names: Mapping[Node, str]) -> str:
        told = []
        for name, form in sorted(self._pieces[node], key=lambda piece: piece[0]):
            links = self._links[id(form)]

            def fill(match: re.Match[str], links: list[Target] = links) -> str:
                target = links[int(match[1])]
                if target.text and not target.module:
                    return f"str:{target.text!r}"
                words = " ".join([*self._words(target, hashes, names), target.rest])
                return f"text:{words}" if target.text else words

            told.append(f"{name}:{_HOLE.sub(fill, form.text)}")
        if node in self._methods:  # the order of a dataclass's fields is that of its arguments
            made = self._source(node[0]).classes[node[1]]
            told.append(" ".join(n for n in made.optional if f"{n}=" in self._methods[node]))
        loose = (node[0], LOOSE)
        if loose in self._live and loose != node:
            told.append(hashes.get(loose, names.get(loose, "")))
        return "\n".join(told)

    def _words(
        self, target: Target, hashes: Mapping[Node, str], names: Mapping[Node, str]
    ) -> list[str]:
        nodes = self._nodes(target)
        if not nodes:
            return ["ext" if not target.module else "made"]
        return sorted(hashes.get(node) or f"#{names.get(node, '')}" for node in nodes)


def _groups(nodes: Sequence[Node], edges: Mapping[Node, list[Node]]) -> list[list[Node]]:
    """The strongly connected groups of definitions, each after those it leads to (Tarjan 1972)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on: set[Node] = set()
    groups: list[list[Node]] = []
    for start in nodes:
        if start in index:
            continue
        work: list[tuple[Node, int]] = [(start, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on.add(node)
            for k in range(position, len(edges[node])):
                other = edges[node][k]
                if other not in index:
                    work += [(node, k + 1), (other, 0)]
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                if low[node] == index[node]:
                    group: list[Node] = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on.discard(group[-1])
                    groups.append(group)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return groups


def _hash(told: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(told).encode()).hexdigest()
