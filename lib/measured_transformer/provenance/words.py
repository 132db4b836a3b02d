"""Expresses settings in JSON types, so that they can be compared and hashed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import PurePath
from typing import Any


def plain(value: Any) -> Any:
    """Convert a setting's value to JSON types, differently for different values.

    Classes and functions are named without their modules: what they do is told by the digest of their code. So
    are a dataclass's defaults: a field that has its default is left out, and a new one changes no words.

    Raises:
        ValueError: for an object that has no such words: its address would stand for it.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=repr)
    if is_dataclass(value) and not isinstance(value, type):
        named = {
            f.name: plain(getattr(value, f.name))
            for f in fields(value)
            if f.init and not _is_default(f, getattr(value, f.name))
        }
        return {"type": type(value).__qualname__, **named}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, PurePath):
        return value.name
    if isinstance(value, functools.partial):
        return {"partial": plain(value.func), "args": plain(value.args), **plain(value.keywords)}
    if isinstance(value, type) or inspect.isroutine(value):
        return str(value.__qualname__)
    if " at 0x" not in (text := repr(value)):
        return f"{type(value).__qualname__}: {text}"
    raise ValueError(
        f"expected a setting whose value can be written down, got {text}; make it a dataclass or a function"
    )


def _is_default(field: Field[Any], value: Any) -> bool:
    """Return whether a dataclass's field has the value that it has where nothing is given."""
    if field.default is not MISSING:
        default = field.default
    elif field.default_factory is not MISSING:
        default = field.default_factory()
    else:
        return False
    try:
        return type(value) is type(default) and bool(value == default)
    except (ValueError, TypeError, RuntimeError):  # arrays are compared value by value
        return False
