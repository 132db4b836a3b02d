"""The rows of the Scorecard as files beside its page, for whoever wants to compute with them."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from measured_book.evidence.registry import SOURCES, Claim
from sphinx.application import Sphinx

from bookpress.sphinx.claim_nodes import claims_of
from bookpress.sphinx.outcomes import Outcome
from bookpress.sphinx.scores import OURS, SCORECARD, Row, page_with, rows_of
from bookpress.sphinx.words import rule_in_words

FORMATS = ("json", "csv")
_RUN = ("seeds", "device", "date")


def exported(claims: Mapping[str, Claim], rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return all rows as plain data: counts, and for each claim what is declared and what came out."""
    return {
        "title": "Scorecard",
        "sources": dict(SOURCES),
        "counts": _counts(row for row in rows.values() if row["group"] != OURS),
        "counts_of_our_checks": _counts(row for row in rows.values() if row["group"] == OURS),
        "claims": [_claim(claims[claim_id], row) for claim_id, row in rows.items()],
    }


def _counts(rows: Iterable[Row]) -> dict[str, int]:
    return dict(Counter(row["verdict"] for row in rows))


def _claim(claim: Claim, row: Row) -> dict[str, Any]:
    link = None
    if row["covered"] and row["page"]:
        link = f"{row['page']}.html" + (f"#{row['anchor']}" if row["anchor"] else "")
    rules = {"": claim.rule} if claim.rule else {part.name: part.rule for part in claim.parts}
    return {
        "id": claim.id,
        "source": claim.source,
        "place": claim.place,
        "quote": claim.quote,
        "our_check": claim.ours,
        "statement": claim.statement,
        "kind": claim.kind,
        "scope": claim.scope,
        "said_of": claim.said_of,
        "misprint": claim.misprint,
        "test": claim.test,
        "rules": {name: rule_in_words(rule.as_dict()) for name, rule in rules.items()},
        "references": list(claim.references),
        "chapter": claim.chapter,
        "status": claim.status,
        "expected": claim.expected,
        "verdict": row["verdict"],
        "link": link,
        "measured": row["outcome"],
    }


def as_json(data: Mapping[str, Any]) -> str:
    """Return the export as JSON, the same for the same rows."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


def as_csv(data: Mapping[str, Any]) -> str:
    """Return the claims of the export as a table, a line a claim, its parts in one cell."""
    names = [
        "id",
        "source",
        "place",
        "kind",
        "status",
        "quote",
        "our_check",
        "statement",
        "scope",
        "said_of",
        "misprint",
        "test",
    ]
    names += ["chapter", "link", "verdict", "measured", *_RUN]
    text = io.StringIO()
    table = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\r\n")
    table.writeheader()
    for claim in data["claims"]:
        table.writerow({**claim, **_run(claim["measured"])})
    return text.getvalue()


def _run(outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {"measured": ""}
    measured = "; ".join(
        f"{part['label']}: {part['words']} ({part['verdict']})" if part["name"] else part["words"]
        for part in outcome["parts"]
    )
    return {"measured": measured, **{name: outcome[name] for name in _RUN}}


def _write(app: Sphinx, error: Exception | None) -> None:
    """Write the files beside the page of the Scorecard, where there is one and they differ."""
    page = page_with(app.env, SCORECARD) if error is None and app.builder.format == "html" else None
    if page is None or not rows_of(app.env):
        return
    data = exported(claims_of(app.env), rows_of(app.env))
    for end, text in (("json", as_json(data)), ("csv", as_csv(data))):
        path = Path(app.outdir) / f"{page}.{end}"
        content = text.encode("utf-8")
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def setup(app: Sphinx) -> None:
    """Have the files written at the end of a build."""
    app.connect("build-finished", _write)
