"""A fingerprint of what a training depends on: what was asked for, and the code that computes it.

Two trainings with the same fingerprint give the same result, so that one of them need not run. Of the code,
docstrings do not count: a better explanation changes no result.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import measured_transformer

# What a training run computes with: a result holds as long as none of it changes.
CODE = (
    "parts/[!_]*.py",
    "models/[!_]*.py",
    "training/device.py",
    "training/loop.py",
    "training/losses.py",
    "training/seeding.py",
)

_PARSING = threading.Lock()  # Python 3.11 loses count of its depth where two threads parse at once


def fingerprint(asked: Mapping[str, Any], *made: object) -> str:
    """The SHA-256 of what was asked for, of the code that trains, and of the code of the objects given.

    Args:
        asked: settings by name; dataclasses, numbers, strings, mappings and sequences of them, classes and
            functions.
        made: a task, a schedule, a preparation: the files of their classes and of what those build on count.

    Where settings cannot be written down, or code cannot be read, the fingerprint is never the same twice:
    for classes and functions of a notebook, lambdas and functions made by functions.

    >>> from measured_transformer.tasks.reversal import Reversal
    >>> a, b = (fingerprint({"steps": n}, Reversal(vocab=4, length=4)) for n in (10, 11))
    >>> a == b, a == fingerprint({"steps": 10}, Reversal(vocab=4, length=4))
    (False, True)
    """
    digest = hashlib.sha256()
    try:
        digest.update(json.dumps(plain(asked), sort_keys=True).encode())
    except ValueError:
        digest.update(os.urandom(16))
    package = Path(measured_transformer.__file__).parent
    files = {file for glob in CODE for file in package.glob(glob)}
    for thing in (part for one in made for part in _nested(one)):
        found = _files(thing)
        if found is None:
            digest.update(os.urandom(16))
        else:
            files |= found
    for file in sorted(files, key=lambda file: (file.name, str(file))):
        digest.update(f"{file.name}\0{_code(file.read_text(encoding='utf-8'))}\0".encode())
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """The value in words that JSON has, and that tell it from every other value of a setting.

    Raises:
        ValueError: for an object that has no such words: its address would stand for it.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        named = {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.init}
        return {"type": _name(type(value)), **named}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, type) or inspect.isfunction(value):
        return _name(value)
    if " at 0x" not in (text := repr(value)):
        return f"{_name(type(value))}: {text}"
    raise ValueError(
        f"expected a setting whose value can be written down, got {text}; make it a dataclass or a function"
    )


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _nested(thing: object) -> list[object]:
    """An object and the dataclasses that it holds, such as the task that a fixed set is drawn from."""
    if not is_dataclass(thing) or isinstance(thing, type):
        return [thing]
    held = [getattr(thing, f.name) for f in fields(thing)]
    return [thing, *(part for one in held if is_dataclass(one) for part in _nested(one))]


def _files(thing: object) -> set[Path] | None:
    """The files with the code of an object's class and of what that builds on; None where one has none."""
    if thing is None:
        return set()
    if inspect.isfunction(thing) and "<" in thing.__qualname__:
        return None  # a lambda or a function made by a function: its name does not say which
    kinds: list[Any] = [thing] if inspect.isfunction(thing) else list(type(thing).__mro__)
    found = set()
    for kind in kinds:
        module = str(kind.__module__)
        if module.partition(".")[0] in sys.stdlib_module_names - {"__main__"}:
            continue
        try:
            found.add(Path(inspect.getfile(kind)))
        except (OSError, TypeError):
            return None
    return found if all(file.is_file() for file in found) else None


@functools.cache  # a module is read for every run, and parsing it takes longer than a small model's steps
def _code(source: str) -> str:
    """The lines of a module without its docstrings; all of them where it cannot be read as Python."""
    try:
        with _PARSING:
            tree = ast.parse(source)
    except SyntaxError:
        return source
    lines = source.splitlines()
    kept = dict(enumerate(lines, 1))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
            own = range(first.lineno, (first.end_lineno or first.lineno) + 1)
            before = lines[own[0] - 1].encode()[: first.col_offset]
            behind = lines[own[-1] - 1].encode()[first.end_col_offset :]
            if not before.strip() and not behind.strip():  # it shares its lines with no code
                for number in own:
                    kept.pop(number, None)
    return "\n".join(kept.values())
