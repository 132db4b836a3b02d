"""What a measurement is, and how a chapter declares one."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_type_hints

import numpy as np
from measured_transformer.provenance import digest, versions

from measured_book.evidence import results
from measured_book.evidence.grammar import nearest

_DECLARES = re.compile(r"^@(measurement|grid)\(", re.MULTILINE)
ROOMS = "measured_book.rooms"
_TRAINS = "measured_transformer.training.loop:train"
Repeat = int | Literal["opening"]
Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]


@dataclass(frozen=True)
class Code:
    """What decides over a measurement's values, in two digests.

    Attributes:
        training: of what its trainings reach, the models that are trained among it; empty where nothing is.
        reading: of what the function reaches that reads values from them.
    """

    training: str
    reading: str

    @property
    def whole(self) -> str:
        """One digest of both."""
        return sha256(f"{self.training} {self.reading}".encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Measurement:
    """A function of one seed that returns named arrays, with its seeds, settings and trainings.

    Attributes:
        name: of the function.
        room: the chapter's room; empty for one that is defined elsewhere, such as in a notebook.
        function: of the seed, of the trained runs where there are any, and of settings with defaults.
        seeds: for how many seeds it is kept.
        coords: labels of the axes beyond ``seed``.
        trainings: what it trains from one seed: a function of the seed and the same settings that gives jobs by
            name; None for nothing.
        repeat: how many of its first seeds every test run measures again; 'opening' where that takes too long:
            then only the first steps of its trainings are, and their losses compared.
        tolerance: for each variable named, how far a value may lie from the kept one on another kind of
            machine, beyond the spread of the seeds. Where nothing is trained, a variable without one must come
            back to a thousandth.
        data: files that it reads.
        corpora: names of the fetched files that it reads, see `tasks.corpora`; where one does not lie in the
            folder of such files, a repeat leaves the measurement out and says so.
        pretrained: names of the checkpoints that it reads, see `language.published`; where the package of one
            is not installed, a repeat leaves the measurement out and says so.
    """

    name: str
    room: str
    function: Callable[..., Mapping[str, Any]]
    seeds: int
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    trainings: Callable[..., Mapping[Any, Any]] | None = None
    repeat: Repeat = 1
    tolerance: Mapping[str, float] = field(default_factory=dict)
    data: tuple[Path, ...] = ()
    corpora: tuple[str, ...] = ()
    pretrained: tuple[str, ...] = ()

    def __call__(self, *args: Any, **settings: Any) -> Mapping[str, Any]:
        """Call the function itself."""
        return self.function(*args, **settings)

    @property
    def what(self) -> str:
        """What is measured, in one line."""
        return (inspect.getdoc(self.function) or self.name).splitlines()[0]

    @property
    def label(self) -> str:
        """Room and name."""
        return f"{self.room}.{self.name}" if self.room else self.name

    @property
    def repeated(self) -> int:
        """The number of first seeds that a repeat measures again."""
        return 1 if self.repeat == "opening" else self.repeat

    def settings(self, **changed: Any) -> dict[str, Any]:
        """The settings, with some changed.

        Raises:
            TypeError: there is no such setting.
        """
        parameters = inspect.signature(self.function).parameters.values()
        own = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        if unknown := sorted(set(changed) - set(own)):
            raise TypeError(
                f"{self.label} has the settings {', '.join(own) or 'none'}, got {', '.join(unknown)}"
            )
        return own | changed

    def code(self, **settings: Any) -> Code:
        """The digests of all code, settings and data that its values depend on.

        How many seeds it is kept for, and how it is repeated, count for nothing.
        """
        own = self.settings(**settings)
        trained, read = self.digested
        read = {"settings": own, "coords": dict(self.coords), **read}
        trained = {"settings": own, **trained}
        return Code(
            digest(self.trainings, _TRAINS, settings=trained) if self.trainings is not None else "",
            digest(self.function, settings=read, data=self.data),
        )

    def versions(self) -> dict[str, str]:
        """The versions of packages that its values depend on."""
        trained = {} if self.trainings is None else versions(self.trainings, _TRAINS)
        return {**trained, **versions(self.function)}  # the same walks as those of the digests

    @property
    def digested(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What else the digests of training and of reading count, besides code, settings and coordinates."""
        return {}, {}

    def jobs(self, seed: int, **settings: Any) -> dict[Any, Any]:
        """What is trained from one seed, by name."""
        return {} if self.trainings is None else dict(self.trainings(seed, **settings))

    def variables(self, given: Mapping[str, Any]) -> Variables:
        """The function's values as arrays with named axes, the seed's axis left out.

        Raises:
            ValueError: no value, a name that is not an identifier, axes that do not fit the shape or the
                labels, or values that are no numbers.
        """
        if not given:
            raise ValueError(f"{self.label}: expected at least one named value, got none")
        found: Variables = {}
        for name, value in given.items():
            axes, values = value if isinstance(value, tuple) and len(value) == 2 else ((), value)
            axes = (axes,) if isinstance(axes, str) else tuple(axes)
            array = _array(values)
            sizes = [len(self.coords[axis]) if axis in self.coords else None for axis in axes]
            fits = len(sizes) == array.ndim and all(
                expected in (None, got) for expected, got in zip(sizes, array.shape, strict=False)
            )
            if (
                not name.isidentifier()
                or "seed" in axes
                or not fits
                or array.dtype.kind not in "biuf"
            ):
                raise ValueError(
                    f"{self.label}: expected {name} as numbers over axes such as "
                    f"{tuple(self.coords) or 'none'}, got {array.dtype} of shape {array.shape} over {axes}"
                )
            found[name] = (axes, array)
        return found


def _array(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    array: np.ndarray = np.asarray(values)
    if array.dtype.kind == "O":
        array = np.asarray([_array(value) for value in values])
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def measurement(
    *,
    seeds: int,
    coords: Mapping[str, Sequence[Any]] | None = None,
    trainings: Callable[..., Mapping[Any, Any]] | None = None,
    repeat: Repeat = 1,
    tolerance: Mapping[str, float] | None = None,
    data: Sequence[Path] = (),
    corpora: Sequence[str] = (),
    pretrained: Sequence[str] = (),
) -> Callable[[Callable[..., Mapping[str, Any]]], Measurement]:
    """Declare a function of one seed as a measurement. The arguments are attributes of `Measurement`.

    Raises:
        ValueError: not at least one seed, or more to be repeated than there are.
    """
    if seeds < 1 or (repeat != "opening" and not 1 <= repeat <= seeds):
        raise ValueError(f"expected seeds >= repeat >= 1, got seeds={seeds} and repeat={repeat!r}")

    def declare(function: Callable[..., Mapping[str, Any]]) -> Measurement:
        return Measurement(
            function.__name__,
            room_of(function.__module__),
            function,
            seeds,
            dict(coords or {}),
            trainings,
            repeat,
            dict(tolerance or {}),
            tuple(data),
            tuple(corpora),
            tuple(pretrained),
        )

    return declare


@dataclass(frozen=True)
class Reading:
    """A function of results: the values that a claim is judged by, or a number that the prose names."""

    name: str
    function: Callable[..., Any]
    is_claim: bool

    @property
    def reads(self) -> tuple[str, ...]:
        """The measurements it reads: its positional parameters."""
        return tuple(name for name, one in self._parameters.items() if one.kind != one.KEYWORD_ONLY)

    @property
    def asks(self) -> tuple[str, ...]:
        """The arguments that the prose gives in parentheses, in order: its keyword-only parameters."""
        return tuple(name for name, one in self._parameters.items() if one.kind == one.KEYWORD_ONLY)

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    def answered(self, given: Sequence[str]) -> dict[str, Any]:
        """The prose's words as keyword arguments, converted to numbers where the function declares numbers.

        Raises:
            ValueError: more or fewer than it asks for, or a word that is no number.
        """
        call = f"{self.name}({', '.join(self.asks)})"
        if len(given) != len(self.asks):
            raise ValueError(f"expected {call}, got {len(given)} arguments: {', '.join(given)}")
        hints = get_type_hints(self.function)
        found = {}
        for name, word in zip(self.asks, given, strict=True):
            kind = hints[name] if hints.get(name) in (int, float) else str
            try:
                found[name] = kind(word)
            except ValueError as error:
                raise ValueError(
                    f"{call}: expected {kind.__name__} for {name}, got {word!r}"
                ) from error
        return found


def evidence(claim_id: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare which values a claim is judged by.

    The function's parameters are names of measurements of the same room, whose results it gets as
    `xarray.Dataset`; it returns the values that the claim's rule asks for by name, or for a claim with parts
    such values for each part.
    """
    return lambda function: _register(function, Reading(claim_id, function, True))


def number(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a number, or a list of numbers, that the prose calls by the function's name; parameters as above.

    Parameters that must be named are what the prose says in parentheses, as strings, or as what they are
    annotated with where that is `int` or `float`: ``def worth(orders, *, task: str)`` is called ``worth(lag)``.
    """
    return _register(function, Reading(function.__name__, function, False))


def _register(function: Callable[..., Any], reading: Reading) -> Callable[..., Any]:
    known = vars(sys.modules[function.__module__]).setdefault("__readings__", {})
    known[reading.name] = reading
    return function


# What there is ------------------------------------------------------------------------------------


def room_of(module: str) -> str:
    """The room that a module belongs to; empty when it belongs to none."""
    parts = module.split(".")
    return parts[2] if module.startswith(f"{ROOMS}.") and len(parts) > 2 else ""


def rooms() -> list[str]:
    """The rooms that declare measurements, by name."""
    found = []
    for path in sorted(results.chapters_folder().glob("*/measure.py")):
        if _DECLARES.search(path.read_text("utf-8")):
            found.append(path.parent.name)
    return found


def measure_module(room: str) -> ModuleType:
    """The module of a room that declares its measurements.

    Raises:
        ValueError: no room of that name declares any.
    """
    if room not in (known := rooms()):
        raise ValueError(
            f"expected a chapter that declares measurements, got {room!r}; {nearest(room, known)}"
        )
    return importlib.import_module(f"{ROOMS}.{room}.measure")


def measurements_of(room: str) -> dict[str, Measurement]:
    """The measurements of a room by name, in the order of their declaration."""
    found = vars(measure_module(room)).values()
    return {one.name: one for one in found if isinstance(one, Measurement) and one.room == room}


def reading_module(room: str) -> ModuleType:
    """The module of a room with its readings: `reading.py`, or `measure.py` when there is none.

    Raises:
        ValueError: no room of that name declares measurements, or one with a `reading.py` declares readings in
            `measure.py` too, where nobody would look for them.
    """
    measuring = measure_module(room)
    if not (results.chapters_folder() / room / "reading.py").is_file():
        return measuring
    if astray := vars(measuring).get("__readings__"):
        raise ValueError(
            f"{room}: expected evidence and numbers in reading.py, got {', '.join(astray)} in measure.py"
        )
    return importlib.import_module(f"{ROOMS}.{room}.reading")


def readings_of(room: str) -> list[Reading]:
    """The readings of a room: evidence for its claims, and numbers for its prose."""
    return list(vars(reading_module(room)).get("__readings__", {}).values())
