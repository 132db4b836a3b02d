"""What the search page knows beyond the index of words: the glossary, and which pages are chapters.

An entry of the glossary leads to the places that explain it, and all names of the entry lead there:

    Key-value cache
    KV cache
      The keys and values of all earlier tokens; see {doc}`attention/at-inference`.

The search page alone is handed these, and the kind of each page, as one line of data before the script
`finding.js`, a static file of the book. It puts what the glossary knows first, and lists chapters before the
glossary, the glossary before other pages, and the reference last.

The search page shows titles as text, so a formula in a title is written there in the signs of a letter.
"""

from __future__ import annotations

import functools
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from docutils import nodes
from docutils.utils.math import tex2unichar
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.search import IndexBuilder
from sphinx.util import docname_join

from bookpress.sphinx.terms import Term, glossary_of

SEARCH = "search"
"""The name of Sphinx's search page."""
SCRIPT = "finding.js"
REFERENCE, OTHER, GLOSSARY, CHAPTER = range(4)
"""Kinds of pages, the last listed first."""

_ROOT = re.compile(r"\\sqrt\s*(?:\{([^{}]*)\}|(\w))")
_FRACTION = re.compile(r"\\[td]?frac\s*(?:\{([^{}]*)\}|(\w))\s*(?:\{([^{}]*)\}|(\w))")
_FONT = re.compile(r"\\(?:math\w+|text\w*|operatorname)\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_SIGNS = {
    name: sign
    for table in ("mathalpha", "mathord", "mathbin", "mathrel", "mathop")
    for name, sign in getattr(tex2unichar, table).items()
}

Place = tuple[str, str, str]
"""A page, the anchor in it (empty for its top), and the title of that section (empty for the page's own)."""


# Titles -------------------------------------------------------------------------------------------


def in_signs(tex: str) -> str:
    r"""Return a short formula of TeX in the signs of a letter: `\sqrt{d}` is the root sign and d."""
    text = _FONT.sub(r"\1", tex)
    text = _ROOT.sub(lambda found: f"\N{SQUARE ROOT}{_together(found[1] or found[2])}", text)
    text = _FRACTION.sub(
        lambda found: f"{_together(found[1] or found[2])}/{_together(found[3] or found[4])}", text
    )
    text = _COMMAND.sub(lambda found: _SIGNS.get(found[1], f" {found[1]} "), text)
    return " ".join(re.sub(r"[{}]|\\[,;!: ]", "", text).split())


def _together(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def _in_words(feed: Callable[..., None]) -> Callable[..., None]:
    """Let Sphinx's index of words meet titles whose formulas are signs."""

    @functools.wraps(feed)
    def fed(
        self: IndexBuilder, docname: str, filename: str, title: str, doctree: nodes.document
    ) -> None:
        if list(_formulas(doctree)):
            doctree = doctree.deepcopy()
            for formula in list(_formulas(doctree)):
                formula.replace_self(nodes.Text(in_signs(formula.astext())))
        feed(self, docname, filename, title, doctree)

    return fed


def _formulas(doctree: nodes.document) -> Iterator[nodes.math]:
    for title in doctree.findall(nodes.title):
        yield from title.findall(nodes.math)


# What the search page is handed -------------------------------------------------------------------


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
    """Connect to the writing of pages, and to what the index takes from titles."""
    app.connect("html-page-context", _hand_over)
    if not hasattr(IndexBuilder.feed, "__wrapped__"):
        IndexBuilder.feed = _in_words(IndexBuilder.feed)  # type: ignore[method-assign]
