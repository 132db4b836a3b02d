"""A source's own words, as they stand above our restatement of them, wherever a claim is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from docutils import nodes
from measured_book.evidence.quotations import GAP
from measured_book.evidence.registry import Claim

OURS = "Our check"
"""What a row is called of which the source says nothing."""

_MATH = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$")
_NO_COMMAND = re.compile(r"\\(?:time|abs)\b")
"""What a source writes as a command of TeX that there is not: shown as it stands."""


def quotation(claim: Claim, place: str = "") -> list[nodes.Element]:
    """Return what the source says, or why the question is ours; nothing for a paper.

    Args:
        claim: of the registry.
        place: where it says so, for a page that does not tell otherwise.
    """
    if claim.ours:
        said = nodes.paragraph("", "", nodes.strong("", f"{OURS}. "), nodes.Text(claim.ours))
        return [nodes.container("", said, classes=["claim-quote", "claim-ours"])]
    if not claim.quote:
        return []
    said = nodes.paragraph("", "", *quoted(claim.quote))
    if place:
        said += [nodes.Text(" "), nodes.inline("", place, classes=["claim-quote-place"])]
    return [nodes.block_quote("", said, classes=["claim-quote"])]


def quoted(quote: str) -> Iterator[nodes.Node]:
    """Yield a quotation between its marks: words letter by letter, formulas as formulas."""
    told = quote.replace(GAP, "[\N{HORIZONTAL ELLIPSIS}]")
    at = 0
    yield nodes.Text("\N{LEFT DOUBLE QUOTATION MARK}")
    for found in _MATH.finditer(told):
        if found.start() > at:
            yield nodes.Text(told[at : found.start()])
        tex = (found[1] or found[2]).strip()
        yield nodes.literal("", tex) if _NO_COMMAND.search(tex) else nodes.math("", tex)
        at = found.end()
    yield nodes.Text(f"{told[at:]}\N{RIGHT DOUBLE QUOTATION MARK}")
