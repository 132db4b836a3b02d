"""The Sphinx extension that prints the book's pages.

A chapter belongs to a room, whose kept results are judged here (`rooms`) and leave as prose, claims and
tables, while its cells, executed before, leave as figures: `evidence` (values and claims; `claim_lines` writes
a claim as a line), `figures` (light and dark drawings), `data` (what figures show, as files; `shown_data` finds
it in their code), `foot` (what ran), `lab_notes` (how tests came about), `errata` (what was wrong),
`provenance` (what all pages ran on), `downloads` (each page's notebook), `offline` (pages that load nothing
from elsewhere) and `assets` (style sheets that are there before pages). `nodes` are the nodes that they put on
the page, `words` what claims say. `page` finds the executed notebook of the page being read.

`scores` gathers what came out for all claims (`outcomes`: as data, `claim_nodes`: as nodes) and keeps the
pages that show it up to date: `scorecard` has their directives, `scorefill` completes them, and
`ranks` adds what they can be sorted by, `summaries` says what each source gets right and wrong, and
`exports` writes the same rows as files.

`front` is about the first page: the table of all chapters, and figures of chapters shown there; `courses` makes
the table that lecturers plan with; `parity` puts what a GPU measured beside what a CPU did.

`editions` knows which edition is printed, `cite` says how to cite chapters and claims, `landing` writes the
page that is a claim's address, `head` tells others of a page's address, picture (`cards`) and edition,
`licences` lists what others wrote, and `letters` tells works of one year apart.

`strict` fails a build whose pages and measurements do not agree. `citations`, `navigation` and
`numbers` keep Sphinx from doing the same work for each citation, page and reference anew; `parallel_read` has a
second process read half of the pages, and others write them.

`terms` links the first mention of a term to the glossary, `finding` tells the search page what leads where, and
`lengths` counts the words of chapters.

`reference` makes entries of the library's docstrings, with `docstrings`, which knows what stands in
them; `loads` makes the tables of checkpoints, files and packages that the library reads. `sources` gives the
pages of the library's source their frame, and `highlighting` keeps marks that nobody sees out of code.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from bookpress.sphinx import (
    assets,
    cards,
    carry,
    citations,
    cite,
    courses,
    data,
    downloads,
    editions,
    errata,
    evidence,
    exports,
    figures,
    finding,
    foot,
    former,
    front,
    head,
    highlighting,
    lab_notes,
    landing,
    lengths,
    letters,
    licences,
    live,
    loads,
    navigation,
    nodes,
    numbers,
    offline,
    page,
    parallel_read,
    parity,
    provenance,
    ranks,
    reference,
    rooms,
    scorecard,
    scorefill,
    scores,
    sources,
    strict,
    summaries,
    terms,
)
from bookpress.staleness import setup_staleness


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything; Sphinx calls this once for each build."""
    for part in (
        editions,
        parallel_read,
        citations,
        letters,
        navigation,
        numbers,
        nodes,
        page,
        rooms,
        evidence,
        figures,
        live,
        data,
        front,
        foot,
        cite,
        lab_notes,
        errata,
        courses,
        parity,
        provenance,
        downloads,
        assets,
        offline,
        reference,
        loads,
        highlighting,
        sources,
        terms,
        lengths,
        finding,
        former,
    ):
        part.setup(app)
    for part in (
        scores,
        scorecard,
        scorefill,
        ranks,
        carry,
        summaries,
        exports,
        landing,
        licences,
        cards,
        head,
        strict,
    ):
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
    for path in sorted([*Path(__file__).parent.glob("*.py"), *sources.TEMPLATES.iterdir()]):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")
