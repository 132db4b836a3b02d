"""Do other seeds give the same verdicts? ``python -m bookpress.second_seeds`` keeps what a second set says.

``MEASURED_SEED_OFFSET=1000 make measure`` measures with other seeds into `_build/seeds-1000`, and
``python -m bookpress.fragile_first`` with half as many, the most fragile verdicts first. This judges the
claims whose results are all there once more, with those values in the place of the book's own, and keeps
their verdicts in `second_seeds.json` beside this file. The Scorecard shows whether they agree. An entry
counts only as long as the claim has the same rule and the book's own results are the same ones.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from measured_book.evidence.registry import Claim, claims
from measured_book.evidence.results import Result, read_result, result_files, results_folder
from measured_book.measuring.attestations import code_of
from measured_book.measuring.judged import Judged
from measured_book.measuring.judging import judge_results, judge_room
from measured_book.measuring.measurement import measurements_of

KEPT = Path(__file__).with_name("second_seeds.json")
"""Claim -> its verdict with other seeds, how many those are, its rule and the digests of the book's results."""


def judged_again(folder: Path) -> dict[str, Any]:
    """Return the entries for all claims that a folder of results with other seeds can judge.

    Args:
        folder: such as `_build/seeds-1000`, with a folder `ROOM/results` for each room.
    """
    found: dict[str, Any] = {}
    for room in sorted(path.name for path in folder.iterdir() if (path / "results").is_dir()):
        own = judge_room(room)
        others = _of_the_same_code(own, folder / room / "results")
        kept = {name: one.result for name, one in own.results.items() if one.result is not None}
        of_no_seed = {name: one for name, one in kept.items() if len(one.seeds) == 1}
        try:
            again = judge_results(room, {**of_no_seed, **others})
        except ValueError as error:  # what a claim asks of its seeds, fewer need not have
            print(f"{room}: left out: {error}", file=sys.stderr)
            continue
        for claim, record in again.records.items():
            drawn = [name for name in own.reads[claim] if len(own.results[name].seeds) > 1]
            if drawn and all(name in others for name in drawn):
                found[claim] = {
                    "verdict": record["verdict_own"],
                    "seeds": max(len(others[name].seeds) for name in drawn),
                    "rule": rule_of(claims()[claim]),
                    "digests": {f"{room}/{name}": _digest(kept[name]) for name in drawn},
                }
    return found


def rule_of(claim: Claim) -> str:
    """A digest of what a claim is judged by: rules and expressions of its parts, and how these combine."""
    parts = {"": (claim.rule, claim.evidence)} if claim.rule is not None else {}
    parts |= {part.name: (part.rule, part.evidence) for part in claim.parts}
    told = {
        name: [
            None if rule is None else rule.as_dict(),
            {key: [one.text for one in many] for key, many in evidence.items()},
        ]
        for name, (rule, evidence) in parts.items()
    }
    return hashlib.sha256(json.dumps([claim.combine, told], sort_keys=True).encode()).hexdigest()[
        :16
    ]


def _of_the_same_code(own: Judged, folder: Path) -> dict[str, Result]:
    """The results of other seeds that the code gave which the book's own results are known to come from."""
    measurements = measurements_of(own.room)
    found = {}
    for name, result in ((path.stem, read_result(path)) for path in result_files(folder)):
        shown = own.results.get(name)
        if shown is None or shown.result is None:
            continue
        by_the_code_now = shown.holds and code_of(result) == measurements[name].code().whole
        if by_the_code_now or _digest(shown.result) == _digest(result):
            found[name] = _in_the_places_of(shown.result, result)
    return found


def _in_the_places_of(own: Result, other: Result) -> Result:
    """Return as many other seeds under the numbers of the book's own; a rule may name seeds by number."""
    if len(own.seeds) != len(other.seeds):
        return other
    return replace(other, coords={**other.coords, "seed": list(own.coords["seed"])})


def _digest(result: Result) -> str:
    told = result.provenance.get("attested") or result.provenance
    return str(told["digest"])


def kept_verdicts(path: Path = KEPT) -> dict[str, tuple[str, int]]:
    """Return verdict and number of seeds for each claim whose entry still counts."""
    entries: Mapping[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return {
        claim: (str(entry["verdict"]), int(entry["seeds"]))
        for claim, entry in entries.items()
        if entry.get("rule") == _rule_now(claim)
        and all(_digest_now(name) == digest for name, digest in entry["digests"].items())
    }


def _rule_now(claim: str) -> str:
    """Return the digest of a claim's rule; nothing where there is no such claim."""
    known = claims()
    return rule_of(known[claim]) if claim in known else ""


@cache
def _digest_now(name: str) -> str:
    """Return the digest of the code that a kept result holds for; nothing where there is no such result."""
    room, _, measurement = name.partition("/")
    try:
        return _digest(read_result(results_folder(room) / f"{measurement}.json"))
    except (OSError, ValueError):
        return ""


def main(folder: Path) -> int:
    """Judge what a folder holds, keep it beside what is kept of other claims, and say what differs."""
    own = json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() else {}
    found = own | judged_again(folder)
    KEPT.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", "utf-8")
    print(f"{len(found)} claims in {KEPT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "_build/seeds-1000")))
