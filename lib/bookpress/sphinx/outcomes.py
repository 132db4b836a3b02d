"""What came out for a claim, as plain data.

An outcome is a dictionary of what pages show of a record: ``verdict``, ``axis``, ``seeds`` (how
many), ``device``, ``date`` and ``parts``, each with ``name``, ``label``, ``words``, ``verdict`` and
its statistics. A record of one rule has one part named ``""``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from measured_book.evidence.registry import SOURCES
from measured_book.evidence.verdicts import parts_of

from bookpress.sphinx.words import measurement_in_words, turns_on, word_of_part

Outcome = dict[str, Any]

_ID = re.compile(r"([A-Z]+)-(\d+)\.(\d+)([a-z]?)")


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """Return what pages show of a record."""
    seeds = None if record.get("seeds") is None else len(record["seeds"])
    return {
        "verdict": record["verdict"],
        "verdict_own": record.get("verdict_own", record["verdict"]),
        "axis": turns_on(record),
        "seeds": seeds,
        "device": record["device"],
        "date": record["date"][:10],
        "parts": [
            {
                "name": name,
                "label": part.get("label", ""),
                "words": measurement_in_words(part, seeds),
                "verdict": word_of_part(part, record),
                **{
                    key: part["statistics"].get(key)
                    for key in ("effect", "interval", "p", "p_holm")
                },
            }
            for name, part in parts_of(record).items()
        ],
    }


def order(claim_id: str) -> tuple[int, int, int, str]:
    """Return the place of an id in the order of the sources: DA-4.2 before DA-4.10, 4.12a before b."""
    match = _ID.fullmatch(claim_id)
    if match is None:
        raise ValueError(f"expected an id such as CS-1.3 or DA-2.1a, got {claim_id!r}")
    source, section, row, letter = match.groups()
    return tuple(SOURCES).index(source), int(section), int(row), letter


def base_of(claim_id: str) -> str:
    """Return an id without the letter of its scoped row: DA-4.12 for DA-4.12a."""
    return claim_id.rstrip("abcdefghijklmnopqrstuvwxyz")
