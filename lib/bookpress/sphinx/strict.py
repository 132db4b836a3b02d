"""A book that contradicts its measurements is not printed, whatever flags the build runs with.

Complaints of this package (a claim without a place, a verdict other than the one discussed, a value
that no cell measured, a bare numeral in prose) are warnings while pages are read, so that all of
them are seen at once. In the end a single one fails the build: with ``-W`` as any warning does, and
without it too. The next build reads every page again and complains again. Only a result that does not hold
for the code as it is now lets a plain build print its page, with marks (`rooms`).

A page that was to be written and is not there fails the build, too. Sphinx says nothing of what a process that
writes pages ran into while further ones were being started.
"""

from __future__ import annotations

import logging
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.logging import NAMESPACE

from bookpress.prose import lint
from bookpress.sphinx.page import TYPE, warn
from bookpress.sphinx.rooms import INVALID

_BEFORE_OTHERS_ADD_TO_IT, _AFTER_ALL_OTHERS = 100, 999


class ContradictionError(SphinxError):
    """The pages and what was measured do not agree."""

    category = "The book and its measurements do not agree"


class UnwrittenError(SphinxError):
    """Pages that were to be written are not there."""

    category = "Pages are missing"


class _Complaints(logging.Handler):
    """Counts the complaints of this package, also those of other processes that read pages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "type", None) == TYPE and getattr(record, "subtype", "") != INVALID:
            self.seen.add(f"{getattr(record, 'location', '')} {record.getMessage()}")


def _listen(app: Sphinx) -> None:
    complaints = _Complaints()
    logging.getLogger(NAMESPACE).addHandler(complaints)

    def end(app: Sphinx, error: Exception | None) -> None:
        logging.getLogger(NAMESPACE).removeHandler(complaints)
        if error is None and complaints.seen and not app.keep_going:
            many = len(complaints.seen)
            raise ContradictionError(
                f"{many} {'complaint' if many == 1 else 'complaints'}, see above"
            )

    app.connect("build-finished", end, priority=_AFTER_ALL_OTHERS)


def _miss(app: Sphinx, error: Exception | None) -> None:
    """Complain of pages that were not written."""
    if error is not None or app.builder.name != "html":
        return
    names = sorted(app.env.all_docs)
    missing = [name for name in names if not Path(app.builder.get_outfilename(name)).is_file()]  # type: ignore[attr-defined]
    if missing:
        raise UnwrittenError(
            f"{len(missing)} of {len(names)} were not written, {missing[0]} among them; print again"
        )


def _lint(app: Sphinx, docname: str, source: list[str]) -> None:
    """Complain of measured numerals that somebody typed into the prose of a page."""
    if docname not in app.env.found_docs or not str(app.env.doc2path(docname)).endswith(".md"):
        return
    for finding in lint(source[0], docname):
        message = f"bare numeral {finding.numeral!r} in prose; {finding.remedy}"
        warn(message, "numeral", (docname, finding.line))


def setup(app: Sphinx) -> None:
    """Read the prose of every page, count what this package complains of, and look for every page."""
    app.connect("builder-inited", _listen)
    app.connect("source-read", _lint, priority=_BEFORE_OTHERS_ADD_TO_IT)
    app.connect("build-finished", _miss, priority=_BEFORE_OTHERS_ADD_TO_IT)
