"""What a source document gets right and what it gets wrong, at the head of its page: ``{source-summary} CS``.

An effect that did not appear here has a list of its own: it is not confirmed, and its opposite is not shown.

The claims are chosen when all verdicts are known: for each kind of outcome those that say most, from as many
chapters as possible. So the summary cannot say something else than the rows below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from docutils import nodes
from measured_book.evidence.registry import SOURCES
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from bookpress.sphinx.claim_nodes import Shows, claims_of, note_registry
from bookpress.sphinx.outcomes import base_of, order
from bookpress.sphinx.page import warn
from bookpress.sphinx.ranks import sharpness, surprise_rank
from bookpress.sphinx.scores import OURS, SHOWS_ROWS, Row, rows_of

MANY = 5
"""Claims that a list shows at most."""
_LISTS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("What it gets right", ("confirmed",)),
    ("What it gets wrong", ("refuted",)),
    ("What did not appear here", ("not reproduced",)),
    ("What depends", ("conditional", "underspecified")),
    ("What is said of another size", ("does not carry over",)),
    ("Misprints", ("misprint",)),
)
_KINDS = ("experiment", "pretrained", "arithmetic", "identity", "cited")


class source_summary(nodes.General, nodes.Element):  # noqa: N801 (docutils' own way)
    """The place for the summary; holds the statement of each claim of the document."""


class _SourceSummary(Shows):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        source = str(self.arguments[0])
        if source not in SOURCES:
            problem = f"expected one of the sources {', '.join(SOURCES)}, got {source!r}"
            warn(problem, "claim", self.get_location())
            return []
        self.env.metadata[self.env.docname][SHOWS_ROWS] = True
        note_registry(self.env)
        place = source_summary()
        claims = claims_of(self.env)
        for claim_id in sorted((key for key in claims if claims[key].source == source), key=order):
            said = self.paragraph(claims[claim_id].statement)
            said["claim"], said["kind"] = claim_id, claims[claim_id].kind
            place += said
        return [place]


class FillSummaries(SphinxPostTransform):
    """Choose the claims of each list, and count."""

    default_priority = 10

    def run(self, **kwargs: object) -> None:
        """Replace every placeholder of the page."""
        rows = rows_of(self.env)
        for place in list(self.document.findall(source_summary)):
            claimed = [child for child in place.children if isinstance(child, nodes.Element)]
            said = {child["claim"]: child for child in claimed}
            place.replace_self(list(_summary(said, rows)) if rows else [])


def _summary(said: Mapping[str, nodes.Element], rows: Mapping[str, Row]) -> Iterator[nodes.Node]:
    decided = {word for _, words in _LISTS for word in words}
    own = [claim for claim in said if rows[claim]["group"] != OURS]
    tested = [claim for claim in own if rows[claim]["verdict"] in decided]
    holder = nodes.container(classes=["source-summary"])
    for title, words in _LISTS:
        fit = [claim for claim in tested if rows[claim]["verdict"] in words]
        if fit:
            counts = ", ".join(
                f"{many} {word}"
                for word in words
                if (many := sum(rows[claim]["verdict"] == word for claim in fit))
            )
            head = nodes.paragraph("", "", nodes.strong("", title))
            head += nodes.Text(f": {counts} of {len(tested)} claims.")
            chosen = choose(fit, rows, {claim: said[claim]["kind"] for claim in fit})
            listed = nodes.bullet_list()
            for claim in chosen:
                listed += _item(claim, said[claim], rows[claim])
            holder += nodes.container("", head, listed)
    yield holder
    if rest := len(own) - len(tested):
        others = "One more is" if rest == 1 else f"{rest} more are"
        yield nodes.paragraph("", f"{others} cited, undecided or still to be tested.")


def choose(claims: Sequence[str], rows: Mapping[str, Row], kinds: Mapping[str, str]) -> list[str]:
    """Return at most `MANY` claims: experiments before formulas, sharp ones first, few from a chapter.

    Args:
        claims: their ids, with verdicts of one list.
        rows: by id.
        kinds: claim -> its kind.
    """

    def says(claim: str) -> tuple[float, float, float]:
        sharp = sharpness(rows[claim])
        return (
            float(_KINDS.index(kinds[claim])),
            -surprise_rank(rows[claim]),
            -(sharp or 0.0),
        )

    left = sorted(claims, key=says)
    chosen: list[str] = []
    for is_new in (True, False):
        for claim in left:
            chapters = {rows[other]["chapter"] for other in chosen}
            bases = {base_of(other) for other in chosen}
            if len(chosen) == MANY or base_of(claim) in bases:
                continue
            if not is_new or rows[claim]["chapter"] not in chapters:
                chosen.append(claim)
    return sorted(chosen, key=order)


def _item(claim: str, said: nodes.Element, row: Row) -> nodes.list_item:
    link = nodes.reference("", claim, internal=True, refid=claim)
    last = [child for child in said.children if isinstance(child, nodes.paragraph)]
    words = last[-1] if last else nodes.paragraph()
    if not last:
        said += words
    axis = (row["outcome"] or {}).get("axis")
    words += nodes.Text(" ")
    if axis:
        words += nodes.inline("", f"It turns on {axis}. ", classes=["claim-axis"])
    words += link
    return nodes.list_item("", *said.children)


def setup(app: Sphinx) -> None:
    """Register the directive and what completes it."""
    app.add_node(source_summary)
    app.add_directive("source-summary", _SourceSummary)
    app.add_post_transform(FillSummaries)
