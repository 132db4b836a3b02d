"""The Sphinx extension that prints the book's pages.

What a chapter's cells measured arrives here in the executed notebook and leaves as prose, cards,
tables and figures: `evidence` (values, verdicts and claims), `figures` (light and dark drawings),
`provenance` (what a page ran on), `downloads` (each page's notebook) and `offline` (pages that
load nothing from elsewhere). `nodes` are the nodes that they put on the page, `words` what cards
say. `page` finds the executed notebook of the page being read.

`scores` gathers what came out for all claims (`outcomes`: as data, `claim_nodes`: as nodes) and keeps the
pages that show it up to date: `scorecard` has their directives, `scorefill` completes them, and
`exports` writes the same rows as files.

`rooms` is about pages whose chapter has a room: `claim_lines` writes their claims, `data` offers what their
figures show (`shown_data` finds it in their code), `foot` says what ran, and `lab_notes` how tests came about.
`parity` puts what a GPU measured beside what a CPU did.

`strict` fails a build whose pages and measurements do not agree. `citations`, `navigation` and
`numbers` keep Sphinx from doing the same work for each citation, page and reference anew; `parallel_read` has a
second process read a share of the pages.

`reference` makes entries of the library's docstrings, with `docstrings`, which knows what stands in
them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from bookpress.sphinx import (
    citations,
    data,
    downloads,
    evidence,
    exports,
    figures,
    foot,
    lab_notes,
    navigation,
    nodes,
    numbers,
    offline,
    page,
    parallel_read,
    parity,
    provenance,
    reference,
    rooms,
    scorecard,
    scorefill,
    scores,
    strict,
)
from bookpress.staleness import setup_staleness


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything; Sphinx calls this once for each build."""
    for part in (
        parallel_read,
        citations,
        navigation,
        numbers,
        nodes,
        page,
        rooms,
        evidence,
        figures,
        data,
        foot,
        lab_notes,
        parity,
        provenance,
        downloads,
        offline,
        reference,
    ):
        part.setup(app)
    for part in (scores, scorecard, scorefill, exports, strict):
        part.setup(app)
    setup_staleness(app)
    return {
        "env_version": _version(),
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }


def _version() -> int:
    """Return a number that changes with this package, so that pages it made before are made anew."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")
