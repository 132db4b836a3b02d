"""What the Scorecard and its sister pages show: gathered while chapters are read, kept, compared.

A chapter leaves what came out for its claims in the environment when it is read. Once all are
read, this becomes one row for each claim of the registry. Pages that show rows are written again
exactly when a row has changed since they were last written, whichever page, result or file of the
library changed it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from measured_book.evidence.registry import Claim
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookpress.sphinx.claim_nodes import claims_of, reread_for_registry
from bookpress.sphinx.outcomes import order, outcome_of

SHOWS_ROWS = "measured_shows_rows"
"""Page metadata: the page shows rows."""
SCORECARD = "measured_scorecard"
"""Page metadata: the page is the Scorecard."""
SOURCE = "measured_source"
"""Page metadata: the source document whose claims the page walks through."""
PLANNED, UNRECORDED = "planned", "not recorded"
OURS = "ours"
"""The group of the rows of which their source says nothing; all others are grouped by their source."""

Row = dict[str, Any]


def keep_outcomes(
    env: BuildEnvironment,
    docname: str,
    claims: Mapping[str, Claim],
    records: Mapping[str, Any],
    anchors: Mapping[str, str],
    doubts: Mapping[str, str],
) -> None:
    """Keep what a page measured of its claims, where it discusses each, and why one may not hold."""
    kept = {
        claim_id: {
            "anchor": anchors.get(claim_id),
            "outcome": outcome_of(records[claim_id]) if claim_id in records else None,
            "doubt": doubts.get(claim_id, ""),
        }
        for claim_id, claim in claims.items()
        if claim.status == "covered"
    }
    _outcomes(env).pop(docname, None)
    if kept:
        _outcomes(env)[docname] = kept


def rows_of(env: BuildEnvironment) -> dict[str, Row]:
    """Return the rows, once all pages are read: claim -> what pages show of it."""
    found: dict[str, Row] = getattr(env, "measured_rows", {})
    return found


def page_with(env: BuildEnvironment, key: str, value: object = True) -> str | None:
    """Return the page whose metadata says so, the first by name where there are several."""
    pages = (name for name in sorted(env.found_docs) if env.metadata[name].get(key) == value)
    return next(pages, None)


def gather(env: BuildEnvironment) -> dict[str, Row]:
    """Return a row for each claim of the registry, in the order of the sources."""
    claims = claims_of(env)
    rows = {}
    for claim_id in sorted(claims, key=order):
        claim = claims[claim_id]
        kept = _outcomes(env).get(claim.chapter, {}).get(claim_id, {})
        outcome = kept.get("outcome")
        if claim.status == "planned":
            verdict = PLANNED
        elif claim.kind == "cited":
            verdict = "fact"
        else:
            verdict = outcome["verdict"] if outcome else UNRECORDED
        rows[claim_id] = {
            "verdict": verdict,
            "verdict_own": outcome["verdict_own"] if outcome else verdict,
            "covered": claim.status == "covered",
            "source": claim.source,
            "group": group_of(claim),
            "place": claim.place,
            "chapter": claim.chapter,
            "title": _title(env, claim.chapter),
            "page": claim.chapter if claim.chapter in env.found_docs else None,
            "anchor": kept.get("anchor"),
            "cited": claim.kind == "cited",
            "outcome": outcome,
            "doubt": kept.get("doubt", ""),
        }
    return rows


def group_of(claim: Claim) -> str:
    """Return what a claim is counted with: its source, or our own checks."""
    return OURS if claim.ours else claim.source


def _title(env: BuildEnvironment, chapter: str) -> str:
    """Return the title of a chapter; for one that is still to come, the words of its name."""
    if chapter in env.titles:
        return str(env.titles[chapter].astext())
    return chapter.rpartition("/")[2].replace("-", " ").capitalize()


def _outcomes(env: BuildEnvironment) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = env.__dict__.setdefault("measured_outcomes", {})
    return found


# Keeping pages up to date -------------------------------------------------------------------------


def _forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    _outcomes(env).pop(docname, None)


def _merge(app: Sphinx, env: BuildEnvironment, docnames: Iterable[str], other: Any) -> None:
    for docname in docnames:
        _outcomes(env).pop(docname, None)
        if docname in _outcomes(other):
            _outcomes(env)[docname] = _outcomes(other)[docname]


def _write_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Gather the rows, and name the pages to write again where one differs from what they show."""
    pages = _pages(env)
    if not pages:
        return []
    env.measured_rows = gather(env)  # type: ignore[attr-defined]
    return [] if _digest(env) == _written(app) else pages


def _pages(env: BuildEnvironment) -> list[str]:
    """Return the pages that show rows."""
    return sorted(name for name in env.found_docs if env.metadata[name].get(SHOWS_ROWS))


def _digest(env: BuildEnvironment) -> str:
    """Return what changes whenever a page of rows would."""
    pages = {
        name: [env.metadata[name].get(key) for key in (SCORECARD, SOURCE)] for name in _pages(env)
    }
    return hashlib.sha256(json.dumps([rows_of(env), pages], sort_keys=True).encode()).hexdigest()


def _note(app: Sphinx) -> Path:
    return Path(app.doctreedir) / f"rows-{app.builder.name}.txt"


def _written(app: Sphinx) -> str:
    """Return the digest of what the pages on disk show; nothing where none were written."""
    return _note(app).read_text("utf-8") if _note(app).is_file() else ""


def _remember_written(app: Sphinx, error: Exception | None) -> None:
    """Note what the pages show, only now that all are written."""
    if error is None and rows_of(app.env):
        _note(app).write_text(_digest(app.env), "utf-8")


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.connect("env-get-outdated", reread_for_registry)
    app.connect("env-purge-doc", _forget)
    app.connect("env-merge-info", _merge)
    app.connect("env-updated", _write_again)
    app.connect("build-finished", _remember_written)
