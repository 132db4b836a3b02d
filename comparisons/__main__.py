"""`python -m comparisons`: what our instruments and others' say of the same weights, and how far apart."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from comparisons import beside_captum, beside_hooks, beside_transformer_lens
from comparisons.families import differences
from comparisons.row import EQUAL, Row
from comparisons.subjects import Subject, drawn, trained

PACKAGES = ("torch", "captum", "transformer-lens", "transformers", "numpy")
SINGLE = 1e-5
"""How far apart two float32 computations of the same may lie, as a share of the largest value."""


def compared(subject: Subject) -> Iterator[Row]:
    """What both libraries and ours say of one model."""
    yield from beside_captum.rows(subject)
    yield from beside_transformer_lens.rows(subject)
    yield from beside_hooks.rows(subject)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print and write down; the exit status is 1 when something should agree and does not."""
    parser = argparse.ArgumentParser(prog="python -m comparisons", description=__doc__)
    parser.add_argument("--json", type=Path, help="a file to write the table to")
    options = parser.parse_args(arguments)
    learned = [trained(arm) for arm in ("attention only", "whole blocks")]
    rows = [row for subject in (drawn(), *learned) for row in compared(subject)]
    heads = [found for subject in learned for found in beside_transformer_lens.found_heads(subject)]
    families = differences()
    for row in rows:
        left = row.difference if row.after is None else row.after
        mark = " " if row.holds else "!"
        kind = "equal" if row.same else "differs, once undone"
        print(f"{mark} {row.peer:16} {row.model:26} {row.quantity:52} {kind}: {left:.1e}")
    for found in heads:
        print(f"  {found}")
    for each in families:
        print(
            f"  transformers     {each['family']:6} {each['weights']:18} {each['difference']:.1e}"
        )
    table: dict[str, Any] = {
        "about": "python -m comparisons; see comparisons/README.md",
        "date": date.today().isoformat(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "equal below": EQUAL,
        "rows": [row.told() for row in rows],
        "heads": heads,
        "families": families,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(table, indent=1) + "\n")
    apart = [found for found in heads if found["ours"] != found["theirs"]]
    failed = [row for row in rows if not row.holds]
    failed_families = [each for each in families if each["difference"] > SINGLE]
    if disagree := len(failed) + len(failed_families) + len(apart):
        print(f"{disagree} do not agree", file=sys.stderr)
    return int(bool(disagree))


if __name__ == "__main__":
    sys.exit(main())
