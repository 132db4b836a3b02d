"""How to cite: behind each chapter and each claim, with BibTeX and an address that stays.

A claim's address is a page of its own, `claims/DD-3.9.html`, which `landing` writes; it stays where it is when
the claim moves to another chapter.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from measured_book.evidence.registry import Claim
from sphinx.application import Sphinx

from bookpress import bibtex
from bookpress.edition import CLAIMS, Edition
from bookpress.sphinx.claim_nodes import claims_of
from bookpress.sphinx.editions import edition_in
from bookpress.sphinx.nodes import cite_box, claim_item, claim_line, fold, score_row
from bookpress.sphinx.rooms import room_of

_AFTER_THE_FOOT = 130


def _add(app: Sphinx, doctree: nodes.document) -> None:
    """Put "cite this" behind all claims of the page and, on the page of a room, at its end."""
    edition = edition_in(app)
    claims = claims_of(app.env)
    back = "../" * app.env.docname.count("/")

    def cited(claim: Claim, verdict: str) -> cite_box:
        entry = bibtex.claim_entry(edition, claim, verdict)
        way = nodes.reference("", edition.pinned(claim.id), internal=True)
        way["refuri"] = f"{back}{CLAIMS}/{claim.id}.html"
        return _box("Cite this claim", entry, nodes.paragraph("", "", nodes.strong("", "", way)))

    for line in doctree.findall(claim_line):
        claim = claims.get(line["claim"])
        body = next(
            (c for c in line.findall(nodes.container) if "claim-body" in c["classes"]), None
        )
        if claim is not None and body is not None:
            body += cited(claim, line["verdict"])
    for item in doctree.findall(claim_item):
        if item["claim"] in claims:
            item += cited(claims[item["claim"]], item["verdict"])
    for row in doctree.findall(score_row):
        head = next((p for p in row.findall(nodes.paragraph) if "claim-head" in p["classes"]), None)
        if head is not None:
            uri = f"{back}{CLAIMS}/{row['claim']}.html"
            cite = nodes.reference("", "cite", refuri=uri, internal=True, classes=["claim-cite"])
            cite["reftitle"] = f"Address and BibTeX of {row['claim']}"
            head += [nodes.Text(" "), nodes.inline("", "", cite)]
    if doctree.settings is not None and room_of(app.env) is not None:
        _add_to_chapter(app, edition, doctree)


def _add_to_chapter(app: Sphinx, edition: Edition, doctree: nodes.document) -> None:
    title = next((node.astext() for node in doctree.findall(nodes.title)), "")
    docname = app.env.docname
    said = bibtex.sentence(edition, title, edition.address(f"{docname}.html"))
    whole: nodes.Element = next(iter(doctree.findall(nodes.section)), doctree)
    entry = bibtex.chapter_entry(edition, docname, title)
    whole += _box("Cite this chapter", entry, nodes.paragraph("", said))


def _box(summary: str, entry: str, *before: nodes.Node) -> cite_box:
    code = nodes.literal_block(entry, entry, language="bibtex")
    return cite_box("", fold("", *before, code, summary=summary))


def _visit(translator: Any, node: nodes.Element) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="cite"))


def _depart(translator: Any, node: nodes.Element) -> None:
    translator.body.append("</div>\n")


def _skip(translator: object, node: nodes.Element) -> None:
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Have "cite this" added once claims and the foot stand."""
    skip: dict[str, Any] = dict.fromkeys(("latex", "text", "man", "texinfo"), (_skip, None))
    pages: dict[str, Any] = dict.fromkeys(("html", "singlehtml"), (_visit, _depart))
    app.add_node(cite_box, **pages, **skip)
    app.connect("doctree-read", _add, priority=_AFTER_THE_FOOT)
