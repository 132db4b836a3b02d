"""Which code is known to compute what a room's results hold: the room's file `fingerprints.json`.

For each measurement it says which code the result was measured with, the fingerprint of that code, and the code
that was last seen to have the same fingerprint: the code as it is now, if its digests are those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock
from measured_transformer.training.folders import build_folder, write_whole

from measured_book.evidence.results import Result, chapters_folder, json_text
from measured_book.measuring.fingerprints import Fingerprint, as_plain, from_plain
from measured_book.measuring.measurement import Code

NAME = "fingerprints.json"
FORM = 1


@dataclass(frozen=True)
class Attestation:
    """What is known of one measurement's code.

    Attributes:
        measured: the code that its result was measured with, in the words of `code_of`.
        code: code of the same fingerprint.
        versions: of the packages that its values depend on, then.
        fingerprint: of both.
        date: when that was seen.
    """

    measured: str
    code: Code
    versions: Mapping[str, str]
    fingerprint: Fingerprint
    date: str = field(default="", compare=False)


def code_of(result: Result) -> str:
    """The code that a result was measured with: one digest, of today's form or of an older one."""
    told = result.provenance
    if "reading" in told:
        return Code(str(told.get("training", "")), str(told["reading"])).whole
    return str(told.get("digest", ""))


def file_of(room: str) -> Path:
    """Where a room keeps them."""
    return chapters_folder() / room / NAME


def attestations_of(room: str) -> dict[str, Attestation]:
    """What is known of a room's measurements, by name; nothing where the room keeps no such file.

    Raises:
        ValueError: the file is damaged or of another form; one sentence that names it and the remedy.
    """
    path = file_of(room)
    remedy = f"restore it from the repository, or delete it and run make attest CHAPTER={room}"
    try:
        told = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected fingerprints in JSON, got {error}; {remedy}") from None
    try:
        if not isinstance(told, dict):
            raise ValueError(f"a {type(told).__name__}")
        if told["format"] != FORM:
            raise ValueError(f"form {told['format']!r}")
        return {name: _read(one) for name, one in told["measurements"].items()}
    except KeyError as error:
        raise ValueError(
            f"{path}: expected fingerprints of form {FORM}, got nothing under {error}; {remedy}"
        ) from None
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected fingerprints of form {FORM}, got {error}; {remedy}"
        ) from None


def keep_attestation(room: str, name: str, attestation: Attestation) -> None:
    """Write what is known of one measurement into its room's file, beside what stands there.

    Whoever else writes into that file meanwhile waits.

    Raises:
        ValueError: the file that is there is damaged.
        OSError: it cannot be written to.
    """
    build = build_folder()
    folder = file_of(room).parent if build is None else build / "measuring" / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{room}.fingerprints.lock"):
        known = attestations_of(room)
        if known.get(name) == attestation:
            return
        known[name] = attestation
        told = {
            "format": FORM,
            "measurements": {name: _written(known[name]) for name in sorted(known)},
        }
        write_whole(file_of(room), json_text(told))


def _read(told: Mapping[str, Any]) -> Attestation:
    return Attestation(
        str(told["measured"]),
        Code(str(told["training"]), str(told["reading"])),
        {str(name): str(one) for name, one in told["versions"].items()},
        from_plain(told),
        str(told.get("date", "")),
    )


def _written(one: Attestation) -> dict[str, Any]:
    return {
        "measured": one.measured,
        "training": one.code.training,
        "reading": one.code.reading,
        "versions": dict(sorted(one.versions.items())),
        "date": one.date,
        **as_plain(one.fingerprint),
    }
