"""The state of a kept result: whether it holds for the code as it is now, and if not, why."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from measured_transformer.provenance import keep_walks
from measured_transformer.training.device import ARITHMETIC, circumstances
from measured_transformer.training.folders import build_folder

from measured_book.evidence.results import (
    DamagedResultError,
    Result,
    read_result,
    results_folder,
)
from measured_book.evidence.seeds import seed_offset, seeds_of
from measured_book.measuring.attestations import Attestation, attestations_of, code_of
from measured_book.measuring.measurement import Code, Measurement

CURRENT, ATTESTED, UNATTESTED, STALE, DAMAGED, MISSING = (
    "current",
    "attested",
    "unattested",
    "stale",
    "damaged",
    "missing",
)
RESULTS_VARIABLE = "MEASURED_RESULTS_DIR"
VALID = (CURRENT, ATTESTED)
"""The states in which a page shows a result without a mark."""


@dataclass(frozen=True)
class Status:
    """A measurement's result and whether it is valid.

    Attributes:
        state: one of the words of this module.
        why: what is the matter and which command mends it, in one sentence; empty where it is valid.
        result: the result; None where it is missing or damaged.
        code: the code as it is now; None where its data cannot be read.
        attestation: what is known of the code that the result was measured with; None where nothing is.
    """

    state: str
    why: str
    result: Result | None
    code: Code | None = None
    attestation: Attestation | None = None

    @property
    def is_valid(self) -> bool:
        """True if a page shows the result without a mark."""
        return self.state in VALID


if (_build := build_folder()) is not None:
    keep_walks(_build / "walks")


def folder_for(room: str, offset: int | None = None) -> Path:
    """Where results are read from and written to.

    With a seed offset, results lie apart, in `_build/seeds-<offset>`, and never mix with those of the book.
    `MEASURED_RESULTS_DIR` names a folder for another set of the same seeds, such as a GPU's: there a room's
    results lie in `<room>/results`.

    Raises:
        ValueError: a seed offset outside a book; `MEASURED_RESULTS_DIR` names a file.
    """
    chosen = seed_offset() if offset is None else offset
    if not chosen:
        own, elsewhere = results_folder(room), os.environ.get(RESULTS_VARIABLE, "")
        if elsewhere and Path(elsewhere).exists() and not Path(elsewhere).is_dir():
            raise ValueError(f"expected a folder in {RESULTS_VARIABLE}, got the file {elsewhere}")
        return Path(elsewhere) / room / "results" if elsewhere else own
    build = build_folder()
    if build is None:
        raise ValueError(
            "expected a book around the working directory, to keep another set of seeds in"
        )
    return build / f"seeds-{chosen}" / room / "results"


def check_folder_is_there() -> None:
    """Check, before results are read, that the folder that `MEASURED_RESULTS_DIR` names is there.

    Raises:
        ValueError: it is not.
    """
    elsewhere = os.environ.get(RESULTS_VARIABLE, "")
    if elsewhere and not seed_offset() and not Path(elsewhere).is_dir():
        raise ValueError(
            f"expected in {RESULTS_VARIABLE} a folder with results, got {elsewhere!r}, where there is none; "
            "run make measure to fill it, or unset the variable for the book's own results"
        )


def status(measurement: Measurement, folder: Path | None = None) -> Status:
    """Return whether a measurement's result is valid for the code as it is now.

    It is where it was measured with this code, or where both have the same fingerprint: see `attestations`.

    Raises:
        ValueError: the room's fingerprints are damaged.
    """
    path = (folder or folder_for(measurement.room)) / f"{measurement.name}.json"
    own = path.parent == results_folder(measurement.room)
    file = f"{measurement.room}/results/{path.name}" if own else str(path)
    command = f"CHAPTER={measurement.room}"
    try:
        result = read_result(path)
    except FileNotFoundError:
        return Status(MISSING, f"{file} is missing; run make measure {command}", None)
    except DamagedResultError as error:
        return Status(DAMAGED, str(error), None)
    if failed := set(seeds_of(measurement.seeds)) - set(result.seeds):
        why = f"{file} lacks {len(failed)} of {measurement.seeds} seeds; run make measure {command}"
        return Status(STALE, why, result)
    both = f"run make attest {command}, or make measure {command}"
    try:
        now = measurement.code()
    except FileNotFoundError as error:
        why = f"{file} was measured with data that is not there ({error.filename}); {both}"
        return Status(UNATTESTED, why, result)
    measured = code_of(result)
    known = attestations_of(measurement.room).get(measurement.name)
    if known is not None and known.measured != measured:
        known = None  # of another result
    if measured == now.whole and same_versions(measurement, result.provenance.get("versions", {})):
        return Status(CURRENT, "", result, now, known)
    if known is not None and known.code == now and same_versions(measurement, known.versions):
        return Status(ATTESTED, "", result, now, known)
    if measured == now.whole or (known is not None and known.code == now):
        what = "other versions of packages"
    elif known is None:
        what = "code of which no fingerprint is kept"
        if "reading" not in result.provenance:
            what += " and which it names by a digest of an older form"
    else:
        what = _changed(known.code, now)
    if _note(measurement, now).exists():
        why = f"{file} is not what the code measures now; run make measure {command}"
        return Status(STALE, why, result, now, known)
    return Status(UNATTESTED, f"{file} was measured with {what}; {both}", result, now, known)


def _changed(then: Code, now: Code) -> str:
    """Which part of the code is another one."""
    if then.reading == now.reading:
        return "other code of its trainings"
    return "other code that reads its trainings" if then.training == now.training else "other code"


def same_versions(measurement: Measurement, then: Mapping[str, Any]) -> bool:
    """Return whether the packages that a measurement's values depend on have the versions of then."""
    return all(then.get(name, one) == one for name, one in measurement.versions().items())


def note_stale(measurement: Measurement) -> None:
    """Remember that the code, as it is now, gave other values than the ones kept.

    Where that cannot be written, the result stays unattested, which no page shows without a mark either.
    """
    note = _note(measurement, measurement.code())
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()


def _note(measurement: Measurement, code: Code) -> Path:
    folder = build_folder() or Path(os.devnull)
    told = [f"{name}{one}" for name, one in sorted(measurement.versions().items())]
    name = "-".join([measurement.label, code.whole[:16], *told])
    return folder / "measuring" / "stale" / name


def environment() -> dict[str, Any]:
    """What a result says of where it was measured: commit, device, kind of machine, precision and versions."""
    told = dict(circumstances())
    versions = {"python": platform.python_version()}
    for package in ("torch", "numpy", "scipy", "measured-transformer"):
        try:
            versions[package.replace("-", "_")] = version(package).partition("+")[0]
        except PackageNotFoundError:
            versions[package.replace("-", "_")] = "not installed"
    return {
        **told,
        "versions": versions,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def same_kind(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether values must be equal to the last bit: the same arithmetic, and the same torch and numpy.

    A result of a processor whose arithmetic nobody looked at is of another kind than any machine.
    """
    packages = ("torch", "numpy")
    versions = [[one.get("versions", {}).get(name) for name in packages] for one in (then, now)]
    known = ARITHMETIC in str(now.get("kind", "")) or str(now.get("kind", "")).startswith("cuda")
    return known and then.get("kind") == now.get("kind") and versions[0] == versions[1]


def commit() -> str:
    """The commit of the code, with a mark where files differ from it; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    folder = Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
