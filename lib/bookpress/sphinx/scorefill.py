"""What came out, put into the pages of claims once all pages are read."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from docutils import nodes
from measured_book.evidence.registry import SOURCES
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from bookpress.second_seeds import kept_verdicts
from bookpress.sphinx.claim_nodes import badge, claims_of, counted, measurement, sentence
from bookpress.sphinx.exports import FORMATS
from bookpress.sphinx.nodes import (
    score_counts,
    score_form,
    score_outcome,
    score_row,
)
from bookpress.sphinx.ranks import second_set, selects_html
from bookpress.sphinx.scores import (
    OURS,
    PLANNED,
    SCORECARD,
    SOURCE,
    UNRECORDED,
    Row,
    page_with,
    rows_of,
)
from bookpress.sphinx.words import SIGNS, SYMBOLS

VERDICTS = (*SYMBOLS, UNRECORDED, PLANNED)
"""Every word that a row can have as its verdict, in the order of the pages."""
_GROUPS: Mapping[str, str] = {**SOURCES, OURS: "our own checks"}
"""What rows are counted with, in words."""


class FillScores(SphinxPostTransform):
    """Put outcomes, counts and filters into the places that directives left for them."""

    default_priority = 10

    def run(self, **kwargs: object) -> None:
        """Replace every placeholder of the page."""
        rows = rows_of(self.env)
        for row in self.document.findall(score_row):
            row["verdict"] = rows[row["claim"]]["verdict"]
        for place in list(self.document.findall(score_outcome)):
            found = self._outcome(place["claim"], place["what"], rows) if rows else ()
            place.replace_self(list(found))
        for counts in list(self.document.findall(score_counts)):
            counts.replace_self(list(self._counts(counts["form"], counts["source"], rows)))
        for form in list(self.document.findall(score_form)):
            form.replace_self(list(self._form(rows)))

    # One claim

    def _outcome(self, claim_id: str, what: str, rows: Mapping[str, Row]) -> Iterator[nodes.Node]:
        row = rows[claim_id]
        if what == "self":
            uri = self._scorecard(claim_id)
            word = nodes.Text(claim_id)
            yield nodes.strong("", "", self._link(word, uri) if uri else word)
        elif what == "place":
            words = nodes.Text(f"{sentence(SOURCES[row['source']])[:-1]}, {row['place']}")
            page = page_with(self.env, SOURCE, row["source"])
            if page is None:
                yield words
            else:
                uri = self.app.builder.get_relative_uri(self.env.docname, page)
                yield self._link(words, f"{uri}#{claim_id}")
        elif what == "badge":
            yield badge(row["verdict"])
            if row["doubt"]:
                yield nodes.Text(" ")
                yield nodes.inline("", f"({row['doubt']})", classes=["claim-doubt"])
        elif what == "measured":
            if row["covered"]:
                yield measurement(row["outcome"], cited=row["cited"], brief=True)
        elif what == "where":
            yield self._where(row)
        else:
            yield from self._way(claim_id, is_block=what == "link")

    def _way(self, claim_id: str, *, is_block: bool) -> Iterator[nodes.Node]:
        """Lead from a claim's line to its row in the Scorecard, where there is one."""
        if uri := self._scorecard(claim_id):
            words = f"{claim_id} in the Scorecard" if is_block else claim_id
            link = self._link(nodes.Text(words), uri)
            yield nodes.paragraph("", "", link) if is_block else link

    def _where(self, row: Row) -> nodes.paragraph:
        words = nodes.paragraph("", "", classes=["score-where"])
        if row["covered"] and row["page"]:
            uri = self.app.builder.get_relative_uri(self.env.docname, row["page"])
            uri += f"#{row['anchor']}" if row["anchor"] else ""
            words += [nodes.Text("In "), self._link(nodes.Text(row["title"]), uri)]
        else:
            words += nodes.Text(f"Chapter to come: {row['title']}")
        return words

    # Counts

    def _counts(
        self, form: str, source: str | None, rows: Mapping[str, Row]
    ) -> Iterator[nodes.Node]:
        if form == "sources":
            yield self._sources(rows)
            return
        if form == "again":
            yield self._second_set(rows)
            return
        within = [row for row in rows.values() if source in (None, row["source"])]
        chosen = [row for row in within if row["group"] != OURS]
        counts = Counter(row["verdict"] for row in chosen)
        covered = sum(row["covered"] for row in chosen)
        here = {"source": source} if source else {}
        words = nodes.paragraph("", "", classes=["score-total"])
        claims = f"{len(chosen)} {'claim' if len(chosen) == 1 else 'claims'}"
        words += self._filtered(claims, here)
        planned = len(chosen) - covered
        words += nodes.Text(
            f": {covered} covered by a chapter, {planned} planned."
            if planned
            else ", all covered by a chapter."
        )
        yield words
        yield self._list_of(counts, here)
        if ours := len(within) - len(chosen):
            yield self._apart(ours, [row for row in within if row["group"] == OURS])

    def _second_set(self, rows: Mapping[str, Row]) -> nodes.paragraph:
        """Say how much of the book a second set of seeds was asked, and name those that it judges otherwise."""
        known, kept = claims_of(self.env), kept_verdicts()
        covered = [claim for claim, row in rows.items() if row["covered"]]
        asked = [claim for claim in covered if known[claim].kind == "experiment"]
        told, differ = second_set(rows, asked, kept)
        words = nodes.paragraph("", told, classes=["score-second-set"])
        for count, claim in enumerate(differ):
            words += nodes.Text(", " if count else " ")
            words += nodes.reference("", claim, refuri=f"#{claim}", internal=True)
            words += nodes.Text(f" ({rows[claim]['verdict']}; with other seeds {kept[claim][0]})")
        if differ:
            words += nodes.Text(".")
        return words

    def _list_of(self, counts: Mapping[str, int], here: Mapping[str, str]) -> nodes.bullet_list:
        listed = nodes.bullet_list(classes=["score-counts"])
        for verdict in VERDICTS:
            if counts[verdict]:
                number = nodes.inline("", f" {counts[verdict]}", classes=["score-number"])
                inner = nodes.inline("", "", badge(verdict), number)
                link = self._filtered(inner, {**here, "verdict": verdict})
                listed += nodes.list_item("", nodes.paragraph("", "", link))
        return listed

    def _apart(self, ours: int, rows: Iterable[Row]) -> nodes.paragraph:
        """Count the rows of which the source says nothing, for themselves."""
        words = nodes.paragraph("", "Counted apart: ", classes=["score-apart"])
        told = "1 check of our own" if ours == 1 else f"{ours} checks of our own"
        words += self._filtered(told, {"source": OURS})
        verdicts = counted(row["verdict"] for row in rows)
        words += nodes.Text(f", of which the source says nothing ({verdicts}).")
        return words

    def _sources(self, rows: Mapping[str, Row]) -> nodes.table:
        """Return a table: a row for each source document, a column for each verdict there is."""
        present = Counter(row["verdict"] for row in rows.values())
        verdicts = [verdict for verdict in VERDICTS if present[verdict]]
        header = nodes.row()
        for title in ("Source", "claims", *verdicts):
            header += nodes.entry("", nodes.paragraph("", title))
        body = nodes.tbody()
        for source, words in _GROUPS.items():
            own = [row for row in rows.values() if row["group"] == source]
            if not own:
                continue
            page = page_with(self.env, SOURCE, source)
            name: nodes.Node = nodes.Text(sentence(words)[:-1])
            if page is not None:
                name = self._link(name, self.app.builder.get_relative_uri(self.env.docname, page))
            line = nodes.row("", nodes.entry("", nodes.paragraph("", "", name)))
            line += self._cell(len(own), {"source": source})
            counts = Counter(row["verdict"] for row in own)
            for verdict in verdicts:
                line += self._cell(counts[verdict], {"source": source, "verdict": verdict})
            body += line
        total = nodes.row("", nodes.entry("", nodes.paragraph("", "All")))
        total += self._cell(len(rows), {})
        for verdict in verdicts:
            total += self._cell(present[verdict], {"verdict": verdict})
        body += total
        columns = [nodes.colspec(colwidth=30), *(nodes.colspec(colwidth=10) for _ in header[1:])]
        group = nodes.tgroup("", *columns, nodes.thead("", header), body, cols=len(header))
        return nodes.table("", group, classes=["score-sources"])

    def _cell(self, count: int, chosen: Mapping[str, str]) -> nodes.entry:
        inner = self._filtered(str(count), chosen) if count else nodes.Text("0")
        return nodes.entry("", nodes.paragraph("", "", inner), classes=["" if count else "none"])

    # Links

    def _scorecard(self, fragment: str) -> str | None:
        page = page_with(self.env, SCORECARD)
        if page is None:
            return None
        if page == self.env.docname:
            return f"#{fragment}"
        return f"{self.app.builder.get_relative_uri(self.env.docname, page)}#{fragment}"

    def _filtered(self, inner: nodes.Node | str, chosen: Mapping[str, str]) -> nodes.Node:
        """Link to the Scorecard that shows what is chosen; filters are a matter of web pages."""
        node = nodes.Text(inner) if isinstance(inner, str) else inner
        fragment = "&".join(f"{key}={word.replace(' ', '-')}" for key, word in chosen.items())
        uri = self._scorecard(fragment)
        return node if uri is None or self.app.builder.format != "html" else self._link(node, uri)

    @staticmethod
    def _link(inner: nodes.Node, uri: str) -> nodes.reference:
        return nodes.reference("", "", inner, internal=True, refuri=uri)

    # The form

    def _form(self, rows: Mapping[str, Row]) -> Iterator[nodes.Node]:
        if self.app.builder.format != "html":
            return
        name = self.env.docname.rpartition("/")[2]
        files = " and ".join(
            f'<a href="{name}.{end}" download>{end.upper()}</a>' for end in FORMATS
        )
        yield nodes.raw("", form_html(rows), format="html")
        text = f'<p class="score-files">Take all rows with you as {files}.</p>'
        yield nodes.raw("", text, format="html")


def form_html(rows: Mapping[str, Row]) -> str:
    """Return the filters as HTML; the page's script shows them and does what they say."""
    verdicts = Counter(row["verdict"] for row in rows.values())
    boxes = "".join(
        f'<label class="verdict verdict-{_slug(word)}"><input type="checkbox" name="verdict" '
        f'value="{_slug(word)}"><span aria-hidden="true">{SIGNS.get(word, "!")}</span> {word} '
        f'<span class="score-number">{verdicts[word]}</span></label>'
        for word in VERDICTS
        if verdicts[word]
    )
    sources = _options(
        (source, sentence(words)[:-1], sum(row["group"] == source for row in rows.values()))
        for source, words in _GROUPS.items()
    )
    return f"""<form class="score-filter" role="search" aria-label="Filter the claims" hidden>
<fieldset><legend>Verdict</legend>{boxes}</fieldset>
<label>Source <select name="source"><option value="">all sources</option>{sources}</select></label>
<label>Chapter <select name="chapter"><option value="">all chapters</option>{_chapters(rows)}</select></label>
{selects_html(rows)}
<label>Words <input type="search" name="words" autocomplete="off" placeholder="such as softmax"></label>
<label>Order <select name="order"><option value="">by source</option>
<option value="verdict">by verdict</option><option value="chapter">by chapter</option>
<option value="surprise">by surprise</option><option value="effect">by effect</option>
<option value="again">by other seeds</option></select></label>
<button type="reset">Clear</button>
<p class="score-found" role="status">{len(rows)} claims</p>
</form>
<p class="score-empty" hidden>No claim fits all of this. Choose fewer verdicts or other words, or clear
the filters.</p>
"""


def _chapters(rows: Mapping[str, Row]) -> str:
    """Return the chapters as options: those of the book, then those to come."""
    counts = Counter(row["chapter"] for row in rows.values())
    titles = {row["chapter"]: row["title"] for row in rows.values()}
    groups = {"Chapters": True, "Chapters to come": False}
    in_book = {row["chapter"] for row in rows.values() if row["page"]}
    text = ""
    for label, wanted in groups.items():
        options = _options(
            (chapter.rpartition("/")[2], titles[chapter], counts[chapter])
            for chapter in sorted(titles, key=lambda chapter: titles[chapter].lower())
            if (chapter in in_book) == wanted
        )
        text += f'<optgroup label="{label}">{options}</optgroup>' if options else ""
    return text


def _options(found: Iterable[tuple[str, str, int]]) -> str:
    return "".join(
        f'<option value="{html.escape(value)}" data-label="{html.escape(label)}">'
        f"{html.escape(label)} ({count})</option>"
        for value, label, count in found
        if count
    )


def _slug(word: str) -> str:
    return word.replace(" ", "-")


def setup(app: Sphinx) -> None:
    """Register the transform, and the script on the one page that needs it."""
    app.add_post_transform(FillScores)
    app.connect("html-page-context", _add_script)


def _add_script(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, object], doctree: object
) -> None:
    if app.env.metadata.get(pagename, {}).get(SCORECARD):
        app.add_js_file("scorecard.js", loading_method="defer")
