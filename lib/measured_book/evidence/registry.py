"""The registry of claims: those of all rooms, by their id.

Each room declares its own in ``rooms/<room>/claims.toml``; `declarations` says what stands there and reads it.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import resources
from pathlib import Path

from measured_book.evidence.declarations import parse_claims
from measured_book.evidence.schema import (
    KINDS,
    RULES,
    SOURCES,
    STATUSES,
    Bound,
    Claim,
    Difference,
    Equivalence,
    Identity,
    Number,
    Part,
    Proportion,
    Rule,
    Threshold,
    Written,
)

__all__ = [
    "KINDS",
    "RULES",
    "SOURCES",
    "STATUSES",
    "Bound",
    "Claim",
    "Difference",
    "Equivalence",
    "Identity",
    "Number",
    "Part",
    "Proportion",
    "Rule",
    "Threshold",
    "Written",
    "claim",
    "claims",
    "claims_files",
    "read_claims",
]


def read_claims(folder: Path) -> dict[str, Claim]:
    """Return the claims of all TOML files in a folder by their id.

    Raises:
        ValueError: a file breaks the schema, or two files hold the same id.
    """
    return _read({path.name: path for path in sorted(folder.glob("*.toml"))})


def claims_files() -> dict[str, Path]:
    """The files of claims that come with the library: room of the chapter -> its file."""
    folder = Path(str(resources.files("measured_book") / "rooms"))
    return {path.parent.name: path for path in sorted(folder.glob("*/claims.toml"))}


def _read(files: Mapping[str, Path], *, of_rooms: bool = False) -> dict[str, Claim]:
    claims: dict[str, Claim] = {}
    origin: dict[str, str] = {}
    for name, path in files.items():
        for claim_id, claim in parse_claims(path.read_text("utf-8"), name).items():
            if claim_id in claims:
                raise ValueError(
                    f"{name}, claim {claim_id}, field id: expected each id once, "
                    f"got one in {origin[claim_id]} too"
                )
            room = name.partition("/")[0] if of_rooms else ""
            claims[claim_id] = dataclasses.replace(claim, room=room)
            origin[claim_id] = name
    return claims


@lru_cache(maxsize=1)
def _packaged() -> dict[str, Claim]:
    return _read(
        {f"{room}/{path.name}": path for room, path in claims_files().items()}, of_rooms=True
    )


def claims(
    chapter: str | None = None,
    *,
    ids: str | None = None,
    source: str | None = None,
    kind: str | None = None,
    status: str | None = None,
) -> dict[str, Claim]:
    """Return the packaged claims by id: all of them, or those that match.

    >>> rotary = claims(ids="DD-7.*", source="DD")
    >>> rotary["DD-7.6"].statement
    'The dot product of rotated queries and keys captures the relative position m - n.'
    >>> [claim_id for claim_id, found in rotary.items() if found.kind == "cited"]
    ['DD-7.9']
    >>> sorted({found.chapter for found in claims("book/training/w*").values()})
    ['book/training/warm-up']

    Args:
        chapter: the document name of a chapter, or a pattern of shell style such as ``book/norms/*``.
        ids: an id, or a pattern such as ``DA-4.*``.
        source: a key of `SOURCES`.
        kind: one of `KINDS`.
        status: one of `STATUSES`.

    Raises:
        ValueError: an unknown source, kind or status; or a file of claims breaks the schema.
    """
    for name, value, known in (
        ("source", source, tuple(SOURCES)),
        ("kind", kind, KINDS),
        ("status", status, STATUSES),
    ):
        if value is not None and value not in known:
            raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
    return {
        claim_id: found
        for claim_id, found in _packaged().items()
        if (chapter is None or fnmatchcase(found.chapter, chapter))
        and (ids is None or fnmatchcase(claim_id, ids))
        and source in (None, found.source)
        and kind in (None, found.kind)
        and status in (None, found.status)
    }


def claim(claim_id: str) -> Claim:
    """Return the claim with this id.

    Raises:
        KeyError: no such claim; the message gives the nearest ids.
        ValueError: a file of claims breaks the schema; the message names file, claim and field.
    """
    known = _packaged()
    if claim_id not in known:
        near = difflib.get_close_matches(claim_id, known, n=3, cutoff=0.5)
        hint = f"nearest are {', '.join(near)}" if near else "none is near"
        raise KeyError(f"no claim {claim_id!r} in the registry; {hint}")
    return known[claim_id]
