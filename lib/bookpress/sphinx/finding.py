"""What the search page knows beyond the index of words: the glossary, and which pages are chapters.

An entry of the glossary leads to the places that explain it, and all names of the entry lead there:

    Key-value cache
    KV cache
      The keys and values of all earlier tokens; see {doc}`attention/at-inference`.

The search page alone is handed these, and the kind of each page, as one line of data before the script
`finding.js`, a static file of the book. It puts what the glossary knows first, and lists chapters before the
glossary, the glossary before other pages, and the reference last.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import docname_join

from bookpress.sphinx.terms import Term, glossary_of

SEARCH = "search"
"""The name of Sphinx's search page."""
SCRIPT = "finding.js"
REFERENCE, OTHER, GLOSSARY, CHAPTER = range(4)
"""Kinds of pages, the last listed first."""

Place = tuple[str, str, str]
"""A page, the anchor in it (empty for its top), and the title of that section (empty for the page's own)."""


def kinds_of(env: BuildEnvironment) -> dict[str, int]:
    """Return the kind of each page: numbered ones are chapters, those with entries of code are reference."""
    glossary, _ = glossary_of(env)
    described = {entry.docname for entry in env.get_domain("py").data["objects"].values()}

    def kind(name: str) -> int:
        if env.toc_secnumbers.get(name):
            return CHAPTER
        if name == glossary:
            return GLOSSARY
        return REFERENCE if name in described else OTHER

    return {name: kind(name) for name in sorted(env.found_docs)}


def places_of(env: BuildEnvironment, glossary: str, term: Term) -> Iterator[Place]:
    """Yield the places that explain a term, in the glossary's order; a label at a page's top is the page."""
    labels = env.get_domain("std").data["labels"]
    for kind, target in term["leads"]:
        if kind == "doc":
            page = docname_join(glossary, target)
            if page in env.found_docs:
                yield page, "", ""
        elif target in labels:
            page, anchor, title = labels[target]
            yield (page, "", "") if title == env.titles[page].astext() else (page, anchor, title)


def entries_of(env: BuildEnvironment) -> list[dict[str, Any]]:
    """Return the glossary's entries: all `names` of each and their `anchors`, where it `leads`, what it `says`.

    Titles and words are HTML, as the search page wants them.
    """
    glossary, terms = glossary_of(env)
    found: dict[str, dict[str, Any]] = {}
    for name, term in terms.items():
        if term["entry"] in found:
            found[term["entry"]]["names"].append(name)
            found[term["entry"]]["anchors"].append(term["id"])
            continue
        found[name] = {
            "names": [name],
            "anchors": [term["id"]],
            "says": html.escape(term["says"]),
            "leads": [
                (page, anchor, html.escape(title))
                for page, anchor, title in places_of(env, glossary, term)
            ],
        }
    return list(found.values())


def data_of(env: BuildEnvironment) -> dict[str, Any]:
    """Return what the search page is handed."""
    glossary, _ = glossary_of(env)
    return {"glossary": glossary, "kinds": kinds_of(env), "entries": entries_of(env)}


def script_of(data: Mapping[str, Any]) -> str:
    """Return data as a line of JavaScript that can stand in a page."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", r"<\/")
    return f"const FINDING = {text};"


def _hand_over(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, object],
    doctree: nodes.document | None,
) -> None:
    if pagename == SEARCH and glossary_of(app.env)[0]:
        app.add_js_file(None, body=script_of(data_of(app.env)), priority=700)
        app.add_js_file(SCRIPT, priority=701)


def setup(app: Sphinx) -> None:
    """Connect to the writing of pages."""
    app.connect("html-page-context", _hand_over)
