"""Whether a result holds for the code as it is now."""

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

from measured_transformer.training.device import circumstances
from measured_transformer.training.folders import build_folder

from measured_book.evidence.results import (
    DamagedResultError,
    Result,
    read_result,
    results_folder,
)
from measured_book.evidence.seeds import seed_offset, seeds_of
from measured_book.measuring.measurement import Measurement

CURRENT, ATTESTED, UNATTESTED, STALE, DAMAGED, MISSING = (
    "current",
    "attested",
    "unattested",
    "stale",
    "damaged",
    "missing",
)
RESULTS_VARIABLE = "MEASURED_RESULTS_DIR"
HOLDS = (CURRENT, ATTESTED)
"""The states in which a page shows a result without a mark."""


@dataclass(frozen=True)
class Standing:
    """A measurement's result and whether it holds.

    Attributes:
        state: one of the words of this module.
        why: what is the matter and which command mends it, in one sentence; empty where it holds.
        result: the result; None where it is missing or damaged.
        of_this_code: whether it was measured with, or attested for, the code and versions as they are now.
    """

    state: str
    why: str
    result: Result | None
    of_this_code: bool = False


def folder_for(room: str, offset: int | None = None) -> Path:
    """Where results are read from and written to.

    With a seed offset, results lie apart, in `_build/seeds-<offset>`, and never mix with those of the book.
    `MEASURED_RESULTS_DIR` names a folder for another set of the same seeds, such as a GPU's: there a room's
    results lie in `<room>/results`.

    Raises:
        ValueError: a seed offset outside a book.
    """
    chosen = seed_offset() if offset is None else offset
    if not chosen:
        own, elsewhere = results_folder(room), os.environ.get(RESULTS_VARIABLE, "")
        return Path(elsewhere) / room / "results" if elsewhere else own
    build = build_folder()
    if build is None:
        raise ValueError(
            "expected a book around the working directory, to keep another set of seeds in"
        )
    return build / f"seeds-{chosen}" / room / "results"


def standing(measurement: Measurement, folder: Path | None = None) -> Standing:
    """Whether a measurement's result holds for the code as it is now."""
    path = (folder or folder_for(measurement.room)) / f"{measurement.name}.json"
    file, command = f"{measurement.room}/results/{path.name}", f"CHAPTER={measurement.room}"
    try:
        result = read_result(path)
    except FileNotFoundError:
        return Standing(MISSING, f"{file} is missing; run make measure {command}", None)
    except DamagedResultError as error:
        return Standing(DAMAGED, str(error), None)
    if failed := set(seeds_of(measurement.seeds)) - set(result.seeds):
        why = f"{file} lacks {len(failed)} of {measurement.seeds} seeds; run make measure {command}"
        return Standing(STALE, why, result)
    both = f"run make attest {command}, or make measure {command}"
    try:
        now = measurement.digest()
    except FileNotFoundError as error:
        why = f"{file} was measured with data that is not there ({error.filename}); {both}"
        return Standing(UNATTESTED, why, result)
    for state, told in (
        (CURRENT, result.provenance),
        (ATTESTED, result.provenance.get("attested") or {}),
    ):
        if now == told.get("digest") and same_versions(measurement, told):
            if measurement.trainings is not None and not result.doubles:
                why = f"{file} keeps no first losses that all machines agree in; run make attest {command}"
                return Standing(UNATTESTED, why, result, of_this_code=True)
            return Standing(state, "", result, of_this_code=True)
    if _note(measurement, now).exists():
        why = f"{file} is not what the code measures now; run make measure {command}"
        return Standing(STALE, why, result)
    others = "other versions of packages" if now == result.provenance["digest"] else "other code"
    return Standing(UNATTESTED, f"{file} was measured with {others}; {both}", result)


def same_versions(measurement: Measurement, told: Mapping[str, Any]) -> bool:
    """Whether the packages that a measurement's values depend on are those of a provenance."""
    then = told.get("versions", {})
    return all(then.get(name, one) == one for name, one in measurement.versions().items())


def note_stale(measurement: Measurement) -> None:
    """Remember that the code, as it is now, gave other values than the ones kept.

    Where that cannot be written, the result stays unattested, which no page shows without a mark either.
    """
    note = _note(measurement, measurement.digest())
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()


def _note(measurement: Measurement, digest: str) -> Path:
    folder = build_folder() or Path(os.devnull)
    told = "-".join([digest[:16], *(f"{n}{v}" for n, v in sorted(measurement.versions().items()))])
    return folder / "measuring" / "stale" / f"{measurement.label}-{told}"


def here() -> dict[str, Any]:
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
    """Whether values must be equal to the last bit: the same kind of machine, and the same torch and numpy."""
    packages = ("torch", "numpy")
    versions = [[one.get("versions", {}).get(name) for name in packages] for one in (then, now)]
    return then.get("kind") == now.get("kind") and versions[0] == versions[1]


def commit() -> str:
    """The commit of the code, with a mark where files differ from it; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    folder = Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
