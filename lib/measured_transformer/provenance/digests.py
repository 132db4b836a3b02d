"""Finds the definitions that a value depends on, and digests them."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from measured_transformer.provenance.forms import form_of, is_import
from measured_transformer.provenance.kept import keep, kept
from measured_transformer.provenance.modules import (
    Source,
    file_of,
    imports_of,
    is_installed,
    source_of,
    unchanging,
)
from measured_transformer.provenance.walks import Node, Walk, Walked, hash_of, stamp_of
from measured_transformer.provenance.words import plain

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
    return hash_of(told)


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
    return hash_of(told)


def reach_source(cells: Sequence[str]) -> dict[str, str]:
    """All definitions that a notebook's cells reach, with the cells themselves as ``<cells>``."""
    return _walk_cells(cells).own


def names_of_source(cells: Sequence[str]) -> frozenset[str]:
    """The names alone of all definitions that a notebook's cells reach, which takes half of the time."""
    with unchanging():
        return Walk([(_CELLS, "cells")], {_CELLS: _source_of_cells(cells)}).reached


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


_memory: dict[tuple[Node, ...], Walked] = {}


def _walked(roots: tuple[Node, ...], *, in_full: bool = False) -> Walked:
    """The walk from some definitions, cached until one of its files changes."""
    known = _memory.get(roots)
    if known is not None and any(stamp_of(m) != (m, t, s) for m, t, s in known.stamps):
        known = None
    if known is None and not in_full:
        known = _kept(roots)
    if known is None or (in_full and roots and not known.own):
        with unchanging():
            known = Walk(roots, {}).finish()
        keep(_key(roots), _as_kept(known))
    _memory[roots] = known
    return known


def _key(roots: tuple[Node, ...]) -> str:
    return json.dumps(roots)


def _as_kept(walk: Walked) -> dict[str, Any]:
    modules = [module for module, _, _ in walk.stamps]
    return {"digest": walk.digest, "packages": sorted(walk.packages), "modules": modules}


def _kept(roots: tuple[Node, ...]) -> Walked | None:
    found = kept(_key(roots), ("digest", "packages"))
    if found is None:
        return None
    stamps = tuple(map(stamp_of, found["modules"]))
    return Walked(found["digest"], {}, stamps, frozenset(found["packages"]))


_cells_memory: dict[tuple[str, ...], Walked] = {}


def _walk_cells(cells: Sequence[str]) -> Walked:
    known = _cells_memory.get(tuple(cells))
    if known is None or any(stamp_of(m) != (m, t, s) for m, t, s in known.stamps):
        known = _cells_memory[tuple(cells)] = _walked_cells(cells)
    return known


def _walked_cells(cells: Sequence[str]) -> Walked:
    with unchanging():
        return Walk([(_CELLS, "cells")], {_CELLS: _source_of_cells(cells)}).finish()


def _source_of_cells(cells: Sequence[str]) -> Source:
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
    return Source(_CELLS, functions={"cells": form}, imports=imports, further=further)
