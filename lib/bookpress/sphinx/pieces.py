"""The pieces that pages are made of beyond those of docutils, and how they look as HTML.

Any other builder prints what a piece holds and nothing around it.
"""

# docutils names its nodes in lower case, and these are nodes
# ruff: noqa: N801

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri
from sphinx.writers.html5 import HTML5Translator

from bookpress.sphinx.words import SIGNS

NOTEBOOKS = "_notebooks"
"""Folder of the notebooks, beside the pages."""
_BODY_OF_EXERCISE = re.compile(r'<section id="(exercise|solution)-content">')


class measured_value(nodes.inline):
    """A measured number in the prose, with the `expression` it got from; `full` if of the last full run."""


class verdict_badge(nodes.inline):
    """A verdict, as a sign and a word."""


class verdict_reference(nodes.inline):
    """A badge whose `claim` is looked for once the page is complete."""


class claim_card(nodes.General, nodes.Element):
    """One `claim` and its `verdict`, with all that belongs to it; `scorecard` is its row's address."""


class claims_table(nodes.General, nodes.Element):
    """The table of a page's claims; its rows are linked once the page is complete."""


class fold(nodes.General, nodes.Element):
    """Text behind a `summary` that opens it."""


class score_row(nodes.row):
    """A row of the Scorecard, about one `claim`; what it can be found by is known in the end."""


class score_item(nodes.General, nodes.Element):
    """A `claim` on the page of its source document; a sister of the row in the Scorecard."""


class score_outcome(nodes.General, nodes.Element):
    """The place for `what` came out for a `claim`: in this build, in the full run, or where."""


class score_form(nodes.General, nodes.Element):
    """The filters of the Scorecard, for those who run scripts; filled in when rows are known."""


class score_counts(nodes.General, nodes.Element):
    """The place for counts of claims: `form` says which, `source` of which document."""


class drawings(nodes.General, nodes.Element):
    """The drawings of one figure, of which the theme shows one; `size` is theirs in pixels.

    They need a box of their own: the theme hides a caption right beside a hidden drawing.
    """


class ran_box(nodes.General, nodes.Element):
    """The box that says what a chapter ran on."""


class runs_table(nodes.General, nodes.Element):
    """The table of all chapters, filled in when all are known."""


class notebook_link(nodes.inline):
    """A visible link to the notebook of the page `docname`."""


def _visit_measured(translator: HTML5Translator, node: nodes.Element) -> None:
    extra: dict[str, Any] = {"data-measured": node["expression"]}
    if node.get("full"):
        extra = {"data-full": node["expression"], "title": "measured by the last full run"}
    translator.body.append(translator.starttag(node, "span", "", **extra))


def _visit_badge(translator: HTML5Translator, node: nodes.Element) -> None:
    symbol = SIGNS.get(node.astext(), "!")
    translator.body.append(translator.starttag(node, "span", ""))
    translator.body.append(f'<span class="verdict-sign" aria-hidden="true">{symbol}</span> ')


def _depart_span(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append("</span>")


def _visit_card(translator: HTML5Translator, node: nodes.Element) -> None:
    label = f"Claim {node['claim']}, {node['verdict']}"
    extra: dict[str, Any] = {"role": "group", "aria-label": label, "data-claim": node["claim"]}
    kind = f"claim claim-{node['verdict'].replace(' ', '-')}"
    translator.body.append(translator.starttag(node, "div", CLASS=kind, **extra))


def _depart_card(translator: HTML5Translator, node: nodes.Element) -> None:
    if uri := node.get("scorecard"):
        address, name = translator.encode(uri), node["claim"]
        link = f'<a href="{address}">{name} in the Scorecard</a>'
        translator.body.append(f'<p class="claim-more">{link}</p>\n')
    translator.body.append("</div>\n")


def _visit_box(translator: HTML5Translator, node: nodes.Element) -> None:
    extra: dict[str, Any] = {"role": "group", "aria-label": "What ran"}
    translator.body.append(translator.starttag(node, "div", CLASS="ran", **extra))


def _visit_drawings(translator: HTML5Translator, node: nodes.Element) -> None:
    width, height = node["size"]
    extra: dict[str, Any] = {"style": f"--proportions: {width} / {height}"}
    translator.body.append(translator.starttag(node, "div", CLASS="drawings", **extra))


def _depart_div(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append("</div>\n")


def _visit_fold(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append(translator.starttag(node, "details", CLASS="fold"))
    translator.body.append(f"<summary>{translator.encode(node['summary'])}</summary>\n")


def _depart_fold(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append("</details>\n")


def _visit_link(translator: HTML5Translator, node: nodes.Element) -> None:
    docname = node["docname"]
    here = translator.builder.get_target_uri(docname)
    address = relative_uri(here, f"{NOTEBOOKS}/{docname}.ipynb")
    translator.body.append(
        f'<a class="notebook-link" href="{address}" download>Download this page as a notebook</a>'
    )
    raise nodes.SkipNode


def _visit_row(translator: HTML5Translator, node: nodes.Element) -> None:
    extra: dict[str, Any] = {
        f"data-{name}": node[name] for name in ("source", "chapter", "verdict")
    }
    translator.body.append(translator.starttag(node, "tr", "", **extra))
    vars(node)["column"] = 0  # what docutils counts cells with


def _depart_row(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append("</tr>\n")


def _visit_item(translator: HTML5Translator, node: nodes.Element) -> None:
    extra: dict[str, Any] = {"role": "group", "aria-label": f"Claim {node['claim']}"}
    translator.body.append(translator.starttag(node, "div", CLASS="score-item", **extra))


def _skip(translator: object, node: nodes.Element) -> None:
    raise nodes.SkipNode


def _nothing(translator: Any, node: nodes.Element) -> None:
    """Add nothing around the children."""


def _mend_markup(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Take away what says something untrue to assistive technology.

    Entries of docutils' bibliography are no items of its list, and the anchors that sphinx-exercise
    gives to the bodies of exercises and solutions are the same for all of them.
    """
    if body := context.get("body"):
        body = body.replace(
            '<div role="list" class="citation-list">', '<div class="citation-list">'
        )
        body = body.replace(' role="doc-biblioentry"', "")
        context["body"] = _BODY_OF_EXERCISE.sub(r'<section class="\1-content">', body)


def _as_row(translator: Any, node: nodes.Element) -> None:
    translator.visit_row(node)


def _after_row(translator: Any, node: nodes.Element) -> None:
    translator.depart_row(node)


def _add(app: Sphinx, piece: type[nodes.Element], visit: Any, depart: Any, other: Any) -> None:
    """Register a piece: one way for web pages, another for everything else."""
    pages: dict[str, Any] = dict.fromkeys(("html", "singlehtml"), (visit, depart))
    others: dict[str, Any] = dict.fromkeys(("latex", "text", "man", "texinfo"), other)
    app.add_node(piece, **pages, **others)


def setup(app: Sphinx) -> None:
    """Register all pieces."""
    plain = (_nothing, _nothing)
    _add(app, measured_value, _visit_measured, _depart_span, plain)
    _add(app, verdict_badge, _visit_badge, _depart_span, plain)
    _add(app, claim_card, _visit_card, _depart_card, plain)
    _add(app, fold, _visit_fold, _depart_fold, plain)
    _add(app, drawings, _visit_drawings, _depart_div, plain)
    _add(app, ran_box, _visit_box, _depart_div, plain)
    _add(app, notebook_link, _visit_link, None, (_skip, None))
    _add(app, score_row, _visit_row, _depart_row, (_as_row, _after_row))
    _add(app, score_item, _visit_item, _depart_div, plain)
    app.connect("html-page-context", _mend_markup)
