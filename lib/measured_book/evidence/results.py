"""Results: a measurement's values for every seed, kept in a small file with named axes.

A result is one JSON file, `rooms/<room>/results/<measurement>.json`. JSON, because a file of a few
kilobytes that lives for years in a repository should be read by any program and by eye, and show in a diff
which numbers moved. Arrays of up to `LISTED` numbers stand there as lists, longer ones packed (little-endian
bytes, zlib, base64), which keeps loss curves small. Every file carries a checksum over all that it says: a
number changed by hand is found.

>>> from measured_book.evidence.results import load_result
>>> load_result("norm_placement", "untrained").sizes["seed"]  # doctest: +SKIP
10
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measured_transformer.training.folders import write_whole

if TYPE_CHECKING:
    import xarray

FORMAT = 1
LISTED = 600
"""How many numbers of an array are written as a list; longer arrays are packed."""
DIGITS = 8
"""Significant digits of a number in a table."""
_ROOMS = Path(str(resources.files("measured_book"))) / "rooms"
_KINDS = {"f": "<f8", "i": "<i8", "u": "<i8", "b": "|b1"}
_LIST = re.compile(r"\[\n\s*([^\[\]{}]*?)\n\s*\]")


class DamagedResultError(ValueError):
    """A result file is damaged; the message names the file and the remedy."""


@dataclass(frozen=True)
class Result:
    """The values of one measurement.

    Attributes:
        room: the chapter's room, such as ``norm_placement``.
        name: of the measurement.
        what: what was measured, in one line.
        variables: name -> (axes, values); the first axis is ``seed``.
        coords: axis -> its labels; ``seed`` among them.
        provenance: commit, digest of the code, device, kind of machine, precision, versions, seconds, date,
            settings, and under ``attested`` what was attested since.
        openings: for each training of the first seeds, the losses of its first steps.
        path: the file it came from.
    """

    room: str
    name: str
    what: str
    variables: Mapping[str, tuple[tuple[str, ...], np.ndarray]]
    coords: Mapping[str, Sequence[Any]]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    openings: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    path: Path | None = None

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the first axis."""
        return [int(seed) for seed in self.coords["seed"]]

    @property
    def dataset(self) -> xarray.Dataset:
        """The values as an `xarray.Dataset`: variables with named axes and coordinates.

        Its attributes say what was measured, and where it comes from: commit, digest of the code, device,
        precision, versions, seconds, date and the like.
        """
        import xarray

        return xarray.Dataset(
            {name: (axes, values) for name, (axes, values) in self.variables.items()},
            coords={axis: list(labels) for axis, labels in self.coords.items()},
            attrs={
                "measurement": f"{self.room}.{self.name}",
                "what": self.what,
                **dict(_flat(self.provenance)),
            },
        )


def _flat(told: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Provenance flattened to one level for a dataset's attributes: ``versions.torch``."""
    for name, value in told.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", int(value) if isinstance(value, bool) else value


# Reading ------------------------------------------------------------------------------------------


def chapters_folder() -> Path:
    """Where the rooms of the chapters lie, each a package of its own."""
    return _ROOMS


def results_folder(room: str) -> Path:
    """The folder of a room's results.

    Raises:
        ValueError: there is no such room.
    """
    if not room.isidentifier() or not (chapters_folder() / room).is_dir():
        known = sorted(path.name for path in chapters_folder().glob("[a-z]*") if path.is_dir())
        raise ValueError(f"expected one of the rooms {', '.join(known)}, got {room!r}")
    return chapters_folder() / room / "results"


def load_result(room: str, name: str) -> xarray.Dataset:
    """Load one of a chapter's results, with all seeds, as an `xarray.Dataset`.

    Args:
        room: the chapter: its file name, with ``_`` for ``-``.
        name: of the measurement.

    Raises:
        ValueError: there is no such chapter or measurement; a `DamagedResultError` where its file is damaged.
    """
    return read_result(_existing(room.replace("-", "_"), name)).dataset


def load_results(room: str) -> dict[str, xarray.Dataset]:
    """Load all of a chapter's results, by measurement name. Errors as in `load_result`."""
    folder = results_folder(room.replace("-", "_"))
    return {path.stem: read_result(path).dataset for path in result_files(folder)}


def result_files(folder: Path) -> list[Path]:
    """The result files in a folder: JSON files named like a measurement."""
    return sorted(path for path in folder.glob("*.json") if path.stem.isidentifier())


def _existing(room: str, name: str) -> Path:
    folder = results_folder(room)
    path = folder / f"{name}.json"
    if not name.isidentifier() or not path.is_file():
        known = ", ".join(found.stem for found in result_files(folder)) or "none"
        raise ValueError(f"expected a measurement of {room} ({known}), got {name!r}")
    return path


def read_result(path: Path) -> Result:
    """Read one file of results.

    Raises:
        FileNotFoundError: there is none.
        DamagedResultError: it is no such file, of another form or measurement, or changed by hand; the one
            sentence names file and command.
    """
    room, name = path.parent.parent.name, path.stem
    remedy = f"restore it from the repository, or delete it and run make measure CHAPTER={room}"

    def damaged(what: str) -> DamagedResultError:
        return DamagedResultError(f"{path}: {what}; {remedy}")

    try:
        told = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise damaged(f"expected a file that can be read, got {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise damaged(f"expected a result in JSON, got damage ({error})") from None
    if not isinstance(told, dict) or "format" not in told:
        raise damaged("expected a result, got JSON that is none")
    if told["format"] != FORMAT:
        raise damaged(f"expected a result of form {FORMAT}, got form {told['format']!r}")
    try:
        checksum = _checksum(told)
    except (ValueError, RecursionError):  # NaN, say, which no result holds as a bare word
        checksum = None
    if checksum is None or told.get("checksum") != checksum:
        raise damaged("its checksum is another one, so it was changed after it was measured")
    if (told["room"], told["measurement"]) != (room, name):
        raise damaged(f"it holds {told['room']}.{told['measurement']}, not {room}.{name}")
    return Result(
        room,
        name,
        told["what"],
        {key: (tuple(one["axes"]), unpack(one)) for key, one in told["variables"].items()},
        told["coords"],
        told["provenance"],
        _losses(told["openings"]),
        path,
    )


def _losses(told: Mapping[str, Mapping[str, list[Any]]]) -> dict[str, dict[str, list[float]]]:
    return {
        training: {seed: [float(loss) for loss in losses] for seed, losses in each.items()}
        for training, each in told.items()
    }


# Writing ------------------------------------------------------------------------------------------


def write_result(result: Result, path: Path, *, renew: bool = False) -> None:
    """Write a result atomically: the whole file or nothing.

    Args:
        result: what to write.
        path: where to.
        renew: whether it may have other variables or axes than the result that is there.

    Raises:
        ValueError: axes and values that do not fit; other variables or axes than in the file that is there.
        OSError: the folder cannot be written to, or the disk is full; what was there is as it was.
    """
    check(result)
    if path.exists() and (names := differing(read_result(path), result.variables)) and not renew:
        raise other_form(result.room, result.name, names, path)
    told: dict[str, Any] = {
        "format": FORMAT,
        "room": result.room,
        "measurement": result.name,
        "what": result.what,
        "coords": {axis: _plain(labels) for axis, labels in result.coords.items()},
        "variables": {n: {"axes": list(a), **pack(v)} for n, (a, v) in result.variables.items()},
        "openings": {t: {s: _plain(v) for s, v in o.items()} for t, o in result.openings.items()},
        "provenance": dict(result.provenance),
    }
    told["checksum"] = _checksum(told)
    write_whole(path, json_text(told))


def check(result: Result) -> None:
    """Raise ValueError when parts of a result do not fit together.

    Raises:
        ValueError: a variable without the axis ``seed`` in front, whose shape is not that of its axes, or that
            holds no numbers.
    """
    sizes = {axis: len(labels) for axis, labels in result.coords.items()}
    where = f"{result.room}.{result.name}"
    if not result.variables:
        raise ValueError(f"{where}: expected at least one variable, got none")
    for name, (axes, values) in result.variables.items():
        if not axes or axes[0] != "seed":
            raise ValueError(f"{where}.{name}: expected seed as the first axis, got {axes}")
        expected = tuple(sizes.get(a, n) for a, n in zip(axes, values.shape, strict=False))
        if len(axes) != values.ndim or expected != values.shape:
            raise ValueError(
                f"{where}.{name}: expected axes {axes} of shape {expected}, got {values.shape}"
            )
        if values.dtype.kind not in _KINDS:
            raise ValueError(f"{where}.{name}: expected numbers, got {values.dtype}")


def differing(
    old: Result, variables: Mapping[str, tuple[tuple[str, ...], np.ndarray]]
) -> list[str]:
    """The variables that an old result lacks, or has with other axes, sizes or types.

    Args:
        old: the result.
        variables: of another one, with the axis ``seed`` in front. How many seeds there are is no difference.
    """
    forms = [
        {n: (axes[1:], values.shape[1:], values.dtype.kind) for n, (axes, values) in each.items()}
        for each in (old.variables, variables)
    ]
    names = list(dict.fromkeys([*forms[0], *forms[1]]))
    return [name for name in names if forms[0].get(name) != forms[1].get(name)]


def other_form(room: str, name: str, names: Sequence[str], path: Path) -> ValueError:
    """The error to raise when a result's form differs from the existing file's."""
    return ValueError(
        f"{room}.{name} gives other names or shapes than {path} holds ({', '.join(names)}), which was left as "
        f"it was; if the new form is meant, run make measure CHAPTER={room} RENEW=1"
    )


def remove_parts(path: Path) -> None:
    """Remove partial files left by a process that was killed while writing."""
    for part in path.parent.glob(f".{path.name}.*.part"):
        part.unlink(missing_ok=True)


def pack(values: np.ndarray) -> dict[str, Any]:
    """Encode an array for JSON: type, shape, and a list or packed bytes. NaN and infinities are kept."""
    kind = np.dtype(_KINDS[values.dtype.kind])
    array = np.asarray(values, dtype=kind, order="C")  # a single number stays without axes
    told: dict[str, Any] = {"dtype": kind.str, "shape": list(array.shape)}
    if array.size <= LISTED:
        return {**told, "values": _plain(array.ravel())}
    return {**told, "packed": base64.b64encode(zlib.compress(array.tobytes(), 9)).decode()}


def unpack(told: Mapping[str, Any]) -> np.ndarray:
    """Decode an array that `pack` encoded."""
    kind = np.dtype(told["dtype"])
    if "packed" in told:
        flat = np.frombuffer(zlib.decompress(base64.b64decode(told["packed"])), dtype=kind).copy()
    else:
        flat = np.array([_number(value) for value in told["values"]], dtype=kind)
    return flat.reshape(told["shape"])


def to_csv(result: Result, names: Iterable[str] = ()) -> str:
    """A result as a table with a line for each value: variable, seed, the other axes, value.

    What is no whole number has eight digits, more than any page shows; the file that is kept has all of them.

    Args:
        result: the result.
        names: of the variables; all when none is named.

    Raises:
        ValueError: there is no such variable.
    """
    chosen = list(names) or list(result.variables)
    if missing := [name for name in chosen if name not in result.variables]:
        raise ValueError(
            f"expected variables of {result.name} ({', '.join(result.variables)}), got {', '.join(missing)}"
        )
    axes = list(dict.fromkeys(a for name in chosen for a in result.variables[name][0]))
    lines = [",".join(["variable", *axes, "value"])]
    for name in chosen:
        own, values = result.variables[name]
        labels = [result.coords.get(a, range(n)) for a, n in zip(own, values.shape, strict=True)]
        for index in np.ndindex(values.shape):
            place = {a: labels[k][index[k]] for k, a in enumerate(own)}
            cells = [str(place.get(axis, "")) for axis in axes]
            lines.append(",".join([name, *map(_quoted, cells), _short(values[index].item())]))
    return "\n".join(lines) + "\n"


def _short(value: Any) -> str:
    return repr(float(f"{value:.{DIGITS}g}")) if isinstance(value, float) else repr(value)


def _quoted(cell: str) -> str:
    return f'"{cell}"' if "," in cell else cell


def _plain(values: Any) -> list[Any]:
    found = np.asarray(values).tolist() if not isinstance(values, list) else values
    return [_told(value) for value in found]


def _told(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


def _checksum(told: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in told.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def json_text(told: Mapping[str, Any]) -> str:
    """JSON that diffs well: a line for each entry, and each list of numbers on one."""
    text = json.dumps(told, indent=1, ensure_ascii=True, allow_nan=False)
    return _LIST.sub(lambda m: "[" + re.sub(r",\n\s*", ", ", m[1]) + "]", text) + "\n"
