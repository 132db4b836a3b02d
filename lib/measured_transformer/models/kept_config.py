"""A config as JSON and back: frozen dataclasses, and what stands in their fields.

A dataclass becomes an object that names its type, a tuple a list; numbers, strings, truth values and None stay
what they are. Types are found by name among those that the annotations of `Config` reach, what the library
derives from them, those of `PARTS`, and those that the caller gives: a file never says which code to import.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_type_hints

from measured_transformer.models.config import Config
from measured_transformer.parts.experts import Experts
from measured_transformer.parts.latent import Latent

PARTS: tuple[type, ...] = (Experts, Latent)
"""Dataclasses that may stand in a config although no annotation names them, such as those behind a protocol."""
_TYPE, _PAIRS = "type", "pairs"
_LIBRARY = __name__.partition(".")[0]


def config_to_json(config: Config, types: Iterable[type] = ()) -> dict[str, Any]:
    """The JSON object of a config.

    Args:
        config: what is written.
        types: dataclasses of your own that stand in it.

    Raises:
        ValueError: when a field holds what JSON cannot hold exactly, or a dataclass that is not known; the
            message names the field.

    >>> told = config_to_json(Config(vocab=10))
    >>> told["type"], told["d_model"], config_from_json(told) == Config(vocab=10)
    ('Config', 64, True)
    """
    known = _known(types)
    told = _told(config, "Config", known)
    again = _made(told, "Config", known)
    if again != config:
        raise ValueError(f"expected a config that can be read back from JSON, got {config}")
    return dict(told)


def config_from_json(told: Any, types: Iterable[type] = ()) -> Config:
    """The config that such an object describes, checked as every config is.

    Args:
        told: what `config_to_json` gave.
        types: dataclasses of your own that may stand in it.

    Raises:
        ValueError: when it names a type or field that this version of the library does not know, or holds a
            value that the config refuses.
    """
    made = _made(told, "Config", _known(types))
    if not isinstance(made, Config):
        raise ValueError(f"expected an object of type Config, got {type(made).__name__}")
    return made


def _known(types: Iterable[type]) -> dict[str, type]:
    """Every dataclass that may stand in a config, by its name."""
    given = (*PARTS, *types)
    if wrong := [one for one in given if not dataclasses.is_dataclass(one)]:
        raise ValueError(f"expected frozen dataclasses as types, got {wrong[0]!r}")
    found: dict[str, type] = {}
    seen: set[type] = set()
    waiting: list[type] = [Config, *given]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        derived: list[type] = type.__subclasses__(one)
        waiting += [kind for kind in derived if _is_own(kind)]
        if not dataclasses.is_dataclass(one):
            continue  # what dataclasses derive from
        if (other := found.setdefault(one.__name__, one)) is not one:
            raise ValueError(f"two types have the name {one.__name__}: {other!r} and {one!r}")
        waiting += [part for hint in get_type_hints(one).values() for part in _named(hint)]
    return found


def _is_own(kind: type) -> bool:
    """Return whether a class is one of the library's."""
    return kind.__module__.startswith(f"{_LIBRARY}.")


def _named(hint: Any) -> list[type]:
    """The dataclasses in an annotation, and what the library's dataclasses derive from."""
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or _is_own(hint)):
        return [hint]
    return [found for part in get_args(hint) for found in _named(part)]


def _told(value: Any, where: str, known: Mapping[str, type]) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) and type(value) in (int, float) and math.isfinite(value):
        return value
    if isinstance(value, tuple):
        return [_told(each, f"{where}[{i}]", known) for i, each in enumerate(value)]
    if isinstance(value, Mapping):
        pairs = [
            [_told(k, where, known), _told(v, f"{where}[{k!r}]", known)] for k, v in value.items()
        ]
        return {_PAIRS: pairs}
    kind = type(value)
    if dataclasses.is_dataclass(kind) and known.get(kind.__name__) is kind:
        fields = {
            f.name: _told(getattr(value, f.name), f"{where}.{f.name}", known)
            for f in dataclasses.fields(kind)
            if f.init
        }
        return {_TYPE: kind.__name__, **fields}
    if dataclasses.is_dataclass(kind):
        raise ValueError(
            f"{where} holds a {kind.__name__}, which is none of the library's own types: give "
            f"types=[{kind.__name__}], in saving and in loading"
        )
    raise ValueError(
        f"{where} must hold finite numbers, strings, True, False, None, tuples or frozen dataclasses to be "
        f"saved, got {value!r:.80}"
    )


def _made(told: Any, where: str, known: Mapping[str, type]) -> Any:
    if isinstance(told, list):
        return tuple(_made(each, f"{where}[{i}]", known) for i, each in enumerate(told))
    if not isinstance(told, dict):
        return told
    if set(told) == {_PAIRS}:
        return {_made(k, where, known): _made(v, where, known) for k, v in told[_PAIRS]}
    name = told.get(_TYPE)
    if not isinstance(name, str) or name not in known:
        raise ValueError(
            f"{where} is of the type {name!r}, which this version of measured_transformer does not know: "
            "install a newer one, or give the type in types=[...] where it is your own"
        )
    fields = {f.name for f in dataclasses.fields(known[name]) if f.init}
    if unknown := sorted(set(told) - fields - {_TYPE}):
        raise ValueError(
            f"{where} has settings that this version of measured_transformer does not know "
            f"({', '.join(unknown)}): what was saved needs a newer one"
        )
    given = {n: _made(v, f"{where}.{n}", known) for n, v in told.items() if n != _TYPE}
    try:
        return known[name](**given)
    except TypeError as error:
        raise ValueError(f"{where} cannot be made from what was saved: {error}") from error
