"""A page for each claim, which is its address: `claims/DD-3.9.html`.

It says what the claim's row of the Scorecard says, where the book discusses it, and how to cite it. The page
stays where it is when the claim moves to another chapter, and needs no script.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from urllib.parse import urljoin, urlparse

from bs4 import BeautifulSoup, Tag
from measured_book.evidence.registry import Claim
from sphinx.application import Sphinx

from bookpress import bibtex, edition
from bookpress.edition import CLAIMS, Edition
from bookpress.sphinx.claim_nodes import claims_of
from bookpress.sphinx.editions import edition_in, edition_words, write_if_new
from bookpress.sphinx.scores import SCORECARD, Row, page_with, rows_of

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<meta name="description" content="{description}">
<link rel="canonical" href="{canonical}">
<link rel="icon" href="../_static/favicon.svg">
<link rel="stylesheet" href="../_static/claim.css">
{mathematics}</head>
<body>
<header><a href="../index.html">{book}</a>, {edition}</header>
<main>
<h1>Claim {pinned}</h1>
{where}
{quote}
<div class="restated">{statement}</div>
<div class="verdict-line">{verdict}</div>
<p class="scope"><strong>Scope.</strong> {scope}</p>
<h2>Source, test and rule</h2>
{source}
{details}
<h2>How to cite it</h2>
<p>Its address in this edition: <a href="{address}">{address}</a></p>
<pre tabindex="0" aria-label="BibTeX">{entry}</pre>
<p><a href="../{scorecard}.html#{id}">{id} in the Scorecard</a>, with all other claims</p>
</main>
</body>
</html>
"""
_MATHJAX = """<script>window.MathJax = {"options": {"processHtmlClass": "math"}}</script>
<script defer src="../_static/mathjax/tex-chtml.js"></script>
"""


def pages(
    scorecard: str,
    docname: str,
    claims: Mapping[str, Claim],
    rows: Mapping[str, Row],
    made: Edition,
) -> dict[str, str]:
    """Return claim -> its page.

    Args:
        scorecard: the printed page that has a row for each claim.
        docname: name of that page.
        claims: the registry.
        rows: what came out for each claim.
        made: the edition that is printed.
    """
    soup = BeautifulSoup(scorecard, "html.parser")
    found = {str(row.get("id")): row for row in soup.select("tr[data-verdict]")}
    return {
        claim_id: _page(found[claim_id], docname, claims[claim_id], row, made)
        for claim_id, row in rows.items()
        if claim_id in found
    }


def _page(printed: Tag, docname: str, claim: Claim, row: Row, made: Edition) -> str:
    for link in printed.select("a[href]"):
        link["href"] = _from_here(str(link["href"]), docname)
    for term in printed.select(".score-said dt"):
        if term.get_text(strip=True) == "Scope":  # it stands above, beside the verdict
            if (told := term.find_next_sibling("dd")) is not None:
                told.decompose()
            term.decompose()

    def inner(selector: str) -> str:
        node = printed.select_one(selector)
        return node.decode_contents().strip() if node is not None else ""

    def outer(selector: str) -> str:
        return "\n".join(str(node) for node in printed.select(selector))

    whole = {
        "quote": outer(".claim-quote"),
        "statement": inner(".claim-statement"),
        "verdict": outer(".score-came .claim-measured") + outer(".score-came .score-verdict"),
        "where": outer(".score-came .score-where"),
        "source": outer(".claim-source"),
        "details": outer(".score-said dl"),
    }
    words = bibtex.plain(claim.statement)
    verdict = str(row["verdict"])
    mathematics = any('class="math' in text for text in whole.values())
    return _PAGE.format(
        title=escape(f"{claim.id}: {words} ({made.title})"),
        description=escape(f"{words} Verdict: {verdict}."),
        canonical=made.address(f"{CLAIMS}/{claim.id}.html", edition=edition.LATEST),
        mathematics=_MATHJAX if mathematics else "",
        book=escape(made.title),
        edition=escape(edition_words(made)),
        pinned=escape(made.pinned(claim.id)),
        address=made.claim_address(claim.id),
        entry=escape(bibtex.claim_entry(made, claim, verdict), quote=False),
        scorecard=docname,
        id=claim.id,
        scope=escape(bibtex.plain(f"{claim.scope} {_of_another_size(claim)}".strip())),
        **whole,
    )


def _of_another_size(claim: Claim) -> str:
    return f"Said of {claim.said_of}." if claim.said_of else ""


def _from_here(address: str, docname: str) -> str:
    """Return a link of the Scorecard's page as it is from a claim's own."""
    if urlparse(address).scheme:
        return address
    here = urljoin(f"/{docname}.html", address).removeprefix("/")
    return here.removeprefix(f"{CLAIMS}/") if here.startswith(f"{CLAIMS}/") else f"../{here}"


def _write(app: Sphinx, error: Exception | None) -> None:
    """Write the pages that differ, and remove those of claims that are no more."""
    page = page_with(app.env, SCORECARD) if error is None and app.builder.format == "html" else None
    if page is None or not rows_of(app.env):
        return
    printed = Path(app.outdir) / f"{page}.html"
    if not printed.is_file():
        return
    folder = Path(app.outdir) / CLAIMS
    folder.mkdir(exist_ok=True)
    made = pages(
        printed.read_text("utf-8"), page, claims_of(app.env), rows_of(app.env), edition_in(app)
    )
    for claim_id, text in made.items():
        write_if_new(folder / f"{claim_id}.html", text)
    for path in folder.glob("*.html"):
        if path.stem not in made:
            path.unlink()


def setup(app: Sphinx) -> None:
    """Have the pages written at the end of a build."""
    app.connect("build-finished", _write, priority=700)
