"""The pages about all claims: the Scorecard, a summary of it, and a walk through each source.

Directives:
    {scorecard}                 every claim of the registry, with filters
    {scorecard-counts}          how many claims there are, and how many of each verdict
    {scorecard-again}           how many experiments a second set of seeds was asked, and what it says
    {scorecard-sources}         the same, a row for each source document
    {source-claims} DA          the claims of a source document that stand at some of its places
    {source-counts} DA          how many claims of a source document there are

Texts of the registry are set when the page is read; what came out is put in when all pages are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import groupby

from docutils import nodes
from docutils.parsers.rst import directives
from measured_book.evidence.registry import SOURCES, Claim
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookpress.sphinx.claim_nodes import Shows, claims_of, declared, note_registry
from bookpress.sphinx.nodes import (
    score_counts,
    score_form,
    score_item,
    score_outcome,
    score_row,
)
from bookpress.sphinx.outcomes import base_of, order
from bookpress.sphinx.page import warn
from bookpress.sphinx.quotes import quotation
from bookpress.sphinx.scores import SCORECARD, SHOWS_ROWS, SOURCE, group_of

_SHOWN = "measured_source_shows"
_SELF, _PLACE, _BADGE, _MEASURED, _WHERE = ("self", "place", "badge", "measured", "where")


class _Rows(Shows):
    """What the directives have in common: their page shows rows of the registry."""

    def note(self, **metadata: object) -> dict[str, Claim]:
        """Make the page one of rows, and return all claims by id, in the order of the sources."""
        self.env.metadata[self.env.docname].update({SHOWS_ROWS: True, **metadata})
        note_registry(self.env)
        claims = claims_of(self.env)
        return {claim_id: claims[claim_id] for claim_id in sorted(claims, key=order)}

    def source(self) -> str | None:
        """Return the source document that the argument names; warn where there is none such."""
        source = str(self.arguments[0])
        if source in SOURCES:
            return source
        problem = f"expected one of the sources {', '.join(SOURCES)}, got {source!r}"
        warn(problem, "claim", self.get_location())
        return None

    def outcome(self, claim_id: str, what: str) -> score_outcome:
        """Return the place for what came out for a claim."""
        return score_outcome(claim=claim_id, what=what)

    def head(self, claim_id: str, *pieces: nodes.Node) -> nodes.paragraph:
        """Return the line that begins a claim: its id, linked to the Scorecard, and pieces."""
        head = nodes.paragraph("", "", classes=["claim-head"])
        head += self.outcome(claim_id, _SELF)
        for piece in pieces:
            head += nodes.Text(" ")
            head += piece
        return head


class _Scorecard(_Rows):
    def run(self) -> list[nodes.Node]:
        claims = self.note(**{SCORECARD: True})
        form = score_form(claims=list(claims))
        self.set_source_info(form)
        body = nodes.tbody()
        for claim in claims.values():
            body += self._row(claim)
        header = nodes.row()
        for title in ("Claim", "What was measured"):
            header += nodes.entry("", nodes.paragraph("", title))
        widths = (nodes.colspec(colwidth=width) for width in (60, 40))
        group = nodes.tgroup("", *widths, nodes.thead("", header), body, cols=2)
        return [form, nodes.table("", group, classes=["scorecard"])]

    def _row(self, claim: Claim) -> score_row:
        said = nodes.entry(classes=["score-said"])
        said += self.head(claim.id)
        said += quotation(claim)
        said += self.paragraph(claim.statement, "claim-statement")
        said += nodes.paragraph("", "", self.outcome(claim.id, _PLACE), classes=["claim-source"])
        said += self.folded("Test and scope", self._texts(claim))
        came = nodes.entry(classes=["score-came"])
        came += self.outcome(claim.id, _MEASURED)
        came += nodes.paragraph("", "", self.outcome(claim.id, _BADGE), classes=["score-verdict"])
        came += self.outcome(claim.id, _WHERE)
        row = score_row("", said, came, claim=claim.id, ids=[claim.id])
        row["source"] = group_of(claim)
        row["chapter"] = claim.chapter.rpartition("/")[2]
        row["verdict"] = ""
        return row

    def _texts(self, claim: Claim) -> Iterator[tuple[str, str]]:
        if claim.kind == "cited":
            read = " and ".join(f"{{cite:t}}`{key}`" for key in claim.references)
            yield "Read", f"{read}."
        else:
            yield from declared(claim)
        if claim.seeds is not None:
            yield "Seeds", str(claim.seeds)


class _Counts(_Rows):
    form = "all"

    def run(self) -> list[nodes.Node]:
        self.note()
        counts = score_counts(form=self.form, source=None)
        self.set_source_info(counts)
        return [counts]


class _SourcesTable(_Counts):
    form = "sources"


class _SecondSet(_Counts):
    form = "again"


class _SourceCounts(_Rows):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        source = self.source()
        if source is None:
            return []
        self.note(**{SOURCE: source})
        counts = score_counts(form="source", source=source)
        self.set_source_info(counts)
        return [counts]


class _SourceClaims(_Rows):
    """Claims at the places that its `places` name: patterns of shell style between semicolons."""

    required_arguments = 1
    option_spec = {"places": directives.unchanged_required}  # noqa: RUF012 (docutils' own way)

    def run(self) -> list[nodes.Node]:
        source = self.source()
        if source is None:
            return []
        claims = self.note(**{SOURCE: source})
        patterns = [text.strip() for text in self.options.get("places", "*").split(";")]
        of_source = {key: claim for key, claim in claims.items() if claim.source == source}
        chosen = self._chosen(of_source, patterns)
        shown = self.env.metadata[self.env.docname].setdefault(_SHOWN, [])
        shown += list(chosen)
        found: list[nodes.Node] = []
        for _, group in groupby(chosen.values(), key=lambda claim: base_of(claim.id)):
            items = [self._item(claim) for claim in group]
            found += items if len(items) == 1 else [self._together(items)]
        return found

    def _chosen(self, claims: Mapping[str, Claim], patterns: Iterable[str]) -> dict[str, Claim]:
        """Return the claims at these places: place by place, the scoped rows of one together."""
        chosen: dict[str, Claim] = {}
        for pattern in patterns:
            here = [claim for claim in claims.values() if fnmatchcase(claim.place, pattern)]
            if not here:
                warn(
                    f"no claim stands at {pattern!r}; the registry has the places "
                    + "; ".join(dict.fromkeys(claim.place for claim in claims.values())),
                    "claim",
                    self.get_location(),
                )
            bases = {base_of(claim.id) for claim in here}
            chosen |= {key: claim for key, claim in claims.items() if base_of(key) in bases}
        return chosen

    def _item(self, claim: Claim) -> score_item:
        item = score_item(claim=claim.id, ids=[claim.id])
        self.set_source_info(item)
        place = nodes.inline("", claim.place, classes=["claim-place"])
        item += self.head(claim.id, self.outcome(claim.id, _BADGE), place)
        item += quotation(claim)
        item += self.paragraph(claim.statement, "claim-statement")
        item += [self.outcome(claim.id, what) for what in (_MEASURED, _WHERE)]
        return item

    def _together(self, items: list[score_item]) -> nodes.container:
        words = "One sentence of the source, taken apart: each row says where it is tested."
        note = nodes.paragraph("", words, classes=["score-split"])
        return nodes.container("", note, *items, classes=["score-group"])


def check_sources(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of claims that the page of their source document leaves out or shows twice."""
    claims = claims_of(env)
    for docname in sorted(env.found_docs):
        source = env.metadata[docname].get(SOURCE)
        if source is None:
            continue
        shown = Counter(env.metadata[docname].get(_SHOWN, ()))
        missing = [key for key in claims if claims[key].source == source and not shown[key]]
        if missing:
            places = sorted({claims[key].place for key in missing})
            warn(
                f"this page leaves out {', '.join(sorted(missing, key=order))}; give their places "
                f"({'; '.join(places)}) to a {{source-claims}} directive",
                "claim",
                docname,
            )
        twice = [key for key, count in shown.items() if count > 1]
        if twice:
            warn(f"this page shows {', '.join(twice)} more than once", "claim", docname)


def setup(app: Sphinx) -> None:
    """Register the directives and the check."""
    app.add_directive("scorecard", _Scorecard)
    app.add_directive("scorecard-counts", _Counts)
    app.add_directive("scorecard-sources", _SourcesTable)
    app.add_directive("scorecard-again", _SecondSet)
    app.add_directive("source-claims", _SourceClaims)
    app.add_directive("source-counts", _SourceCounts)
    app.connect("env-check-consistency", check_sources)
