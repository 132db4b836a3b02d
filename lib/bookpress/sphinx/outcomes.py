"""What came out for a claim, as plain data: of this build's pages, and of the last full run.

An outcome is a dictionary of what pages show of a record: ``verdict``, ``axis``, ``seeds`` (how
many), ``profile``, ``seed_offset``, ``device``, ``date`` and ``parts``, each with ``name``,
``label``, ``words``, ``verdict`` and its statistics. A record of one rule has one part named ``""``.
An outcome of the last full run also says whether it is ``stale``, and what has ``changed`` since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measured_transformer.evidence.profile import Profile
from measured_transformer.evidence.records import read_records
from measured_transformer.evidence.registry import SOURCES, Claim
from measured_transformer.evidence.verdicts import parts_of

from bookpress import chapters, fingerprint
from bookpress.partial import code_at
from bookpress.records import all_committed
from bookpress.rejudge import judged_alike, only_declarations
from bookpress.sphinx.words import measurement_in_words

Outcome = dict[str, Any]

CELLS = "the chapter's cells"
"""What has changed where nothing has that the chapter uses."""
_ID = re.compile(r"([A-Z]+)-(\d+)\.(\d+)([a-z]?)")


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """Return what pages show of a record."""
    seeds = None if record.get("seeds") is None else len(record["seeds"])
    turns = record["verdict"] in ("conditional", "underspecified")
    return {
        "verdict": record["verdict"],
        "axis": record.get("axis") if turns else None,
        "seeds": seeds,
        "profile": record["profile"],
        "seed_offset": record["seed_offset"],
        "device": record["device"],
        "date": record["date"][:10],
        "parts": [
            {
                "name": name,
                "label": part.get("label", ""),
                "words": measurement_in_words(part, seeds),
                "verdict": verdict_of_part(part),
                **{
                    key: part["statistics"].get(key)
                    for key in ("effect", "interval", "p", "p_holm")
                },
            }
            for name, part in parts_of(record).items()
        ],
    }


def verdict_of_part(part: Mapping[str, Any]) -> str:
    """Return the verdict of a part, after Holm's correction where there is one."""
    statistics = part["statistics"]
    return str(statistics.get("verdict_holm", statistics["verdict"]))


def full_outcomes(root: Path, claims: Mapping[str, Claim]) -> dict[str, Outcome]:
    """Return the outcomes of the committed records of full runs by claim, marked where stale.

    Args:
        root: the book's root folder, which the chapters' names begin from.
        claims: the registry.

    Raises:
        ValueError: a file of records is damaged; the message names it.
    """
    found: dict[str, Outcome] = {}
    for path in all_committed(root, "full"):
        payload = read_records(path)
        changed = changed_since(root, payload, claims)
        for claim_id, record in payload["records"].items():
            outcome = outcome_of(record)
            found[claim_id] = {**outcome, "stale": changed is not None, "changed": changed or []}
    return found


def changed_since(
    root: Path, payload: Mapping[str, Any], claims: Mapping[str, Claim]
) -> list[str] | None:
    """Tell whether what records measured has changed since: the chapter's cells, or what they use.

    The records hold the fingerprint of what their chapter used, and that of the code which their profile
    executes of its cells. The chapter as it is now, at the records' own profile and seeds, has both or has
    changed. Where nothing has but how claims are declared (`rejudge.DECLARATIONS`), the records still hold
    if their values, judged as `claims` declare it now, give the same.

    Returns:
        None where nothing has changed, else the names of what has, as far as the records tell: files
        from the book's root, and `CELLS`.
    """
    path = root / f"{payload.get('chapter')}.md"
    if not path.is_file():
        return ["the chapter"]
    try:
        current = Profile(payload["profile"], payload["seed_offset"])
        stamp = fingerprint.stamp(root, path, current)
        before = payload.get("parts") or stamp.parts
        names = sorted(before.keys() | stamp.parts.keys())
        changed = [name for name in names if before.get(name) != stamp.parts.get(name)]
        known = payload["stamp"] == fingerprint.digest_of(before)
        if not known or not only_declarations(changed):
            return changed
        notebook = chapters.read_notebook(path.read_text("utf-8"), path)
        if payload["code"] != code_at(notebook, current.name):
            return [*changed, CELLS]
        alike = not changed or judged_alike(claims, payload["chapter"], payload)
    except (KeyError, ValueError):
        return []
    return None if alike else changed


def order(claim_id: str) -> tuple[int, int, int, str]:
    """Return the place of an id in the order of the sources: DA-4.2 before DA-4.10, 4.12a before b."""
    match = _ID.fullmatch(claim_id)
    if match is None:
        raise ValueError(f"expected an id such as CS-1.3 or DA-2.1a, came {claim_id!r}")
    source, section, row, letter = match.groups()
    return tuple(SOURCES).index(source), int(section), int(row), letter


def base_of(claim_id: str) -> str:
    """Return an id without the letter of its scoped row: DA-4.12 for DA-4.12a."""
    return claim_id.rstrip("abcdefghijklmnopqrstuvwxyz")
