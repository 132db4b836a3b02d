"""The registry of claims on the command line: ``python -m measured_book.evidence``.

Prints a line for each claim that fits, or with ``--long`` all that the registry says of it::

    python -m measured_book.evidence --source DA --status planned
    python -m measured_book.evidence --chapter "book/norms/*"
    python -m measured_book.evidence "DD-13.*" --long
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from measured_book.evidence.registry import (
    KINDS,
    SOURCES,
    STATUSES,
    Claim,
    Rule,
    claims,
)

_COLUMNS = ("id", "kind", "status", "chapter")
_LEAST = 30
"""Characters that a statement gets however narrow the terminal is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the claims that the arguments ask for; returns the exit status.

    It is 1 where no claim fits, and 2 where the registry cannot be read.
    """
    options = _parser().parse_args(arguments)
    try:
        found = claims(
            options.chapter,
            ids=options.ids,
            source=options.source,
            kind=options.kind,
            status=options.status,
        )
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not found:
        print("no claim fits", file=sys.stderr)
        return 1
    found = {claim_id: found[claim_id] for claim_id in sorted(found, key=_order)}
    width = shutil.get_terminal_size(fallback=(120, 24)).columns
    print("\n".join(long_text(found, width) if options.long else table(found, width)))
    return 0


def _order(claim_id: str) -> tuple[int, int, int, str]:
    """Return the place of an id in the order of the sources: DA-4.2 before DA-4.10."""
    source, section, row, letter = re.split(r"[-.]|(?<=\d)(?=[a-z]|$)", claim_id)
    return tuple(SOURCES).index(source), int(section), int(row), letter


def table(found: Mapping[str, Claim], width: int) -> Iterator[str]:
    """Yield the lines of a table of claims, each as wide as a terminal, and a line of counts."""
    rows = [_COLUMNS, *(tuple(getattr(c, name) for name in _COLUMNS) for c in found.values())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    rest = max(_LEAST, width - sum(widths) - 2 * len(widths))
    statements = ["statement", *(c.statement for c in found.values())]
    for row, statement in zip(rows, statements, strict=True):
        cells = (cell.ljust(size) for cell, size in zip(row, widths, strict=True))
        yield "  ".join([*cells, textwrap.shorten(statement, rest, placeholder=" ...")]).rstrip()
    yield ""
    yield counts(found)


def counts(found: Mapping[str, Claim]) -> str:
    """Return how many claims there are, by source, kind and status."""
    parts = [f"{len(found)} {'claim' if len(found) == 1 else 'claims'}"]
    for name, order in (("source", tuple(SOURCES)), ("kind", KINDS), ("status", STATUSES)):
        tally = Counter(getattr(c, name) for c in found.values())
        parts.append(", ".join(f"{tally[key]} {key}" for key in order if tally[key]))
    return "; ".join(parts)


def long_text(found: Mapping[str, Claim], width: int) -> Iterator[str]:
    """Yield each claim in full, line by line."""
    for claim in found.values():
        for name, text in _fields(claim):
            yield from textwrap.wrap(
                f"{name:10}{text}", max(width, 3 * _LEAST), subsequent_indent=" " * 10
            )
        yield ""
    yield counts(found)


def _fields(claim: Claim) -> Iterator[tuple[str, str]]:
    yield "id", f"{claim.id} ({claim.kind}, {claim.status})"
    yield "source", f"{SOURCES[claim.source]}, {claim.place}"
    if claim.quote:
        yield "quote", claim.quote
    if claim.ours:
        yield "our check", claim.ours
    yield "statement", claim.statement
    if claim.said_of:
        yield "said of", claim.said_of
    if claim.misprint:
        yield "misprint", f"the words say {claim.misprint} ({claim.meant_in})"
    if claim.other_seeds:
        yield "other seeds", claim.other_seeds
    yield "chapter", claim.chapter
    yield "scope", claim.scope
    yield "test", claim.test
    if claim.references:
        yield "reference", ", ".join(claim.references)
    if claim.seeds is not None:
        yield "seeds", str(claim.seeds)
    if claim.rule is not None:
        yield "rule", _rule(claim.rule)
    if claim.parts:
        yield "parts", f"{claim.combine}, by {claim.axis}"
    for part in claim.parts:
        label = "" if part.label == part.name else f" ({part.label})"
        yield "", f"{part.name}{label}: {_rule(part.rule)}"
    if claim.expected is not None:
        yield "expected", claim.expected.value


def _rule(rule: Rule) -> str:
    parameters = rule.as_dict()
    return f"{parameters.pop('type')}, {_listed(parameters)}"


def _listed(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m measured_book.evidence",
        description="Show the registry of claims and the rules declared for them.",
    )
    parser.add_argument("ids", nargs="?", help='an id, or a pattern such as "DA-4.*"')
    parser.add_argument("--source", choices=tuple(SOURCES), help="the document a claim is from")
    parser.add_argument("--chapter", help='a document name, or a pattern such as "book/norms/*"')
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--status", choices=STATUSES, help="measured by a chapter, or not yet")
    parser.add_argument("--long", action="store_true", help="all that is declared, not a line each")
    return parser


if __name__ == "__main__":
    sys.exit(main())
