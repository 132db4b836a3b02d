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
    """A measured number in the prose, with the `expression` that it comes from."""


class verdict_badge(nodes.inline):
    """A verdict, as a sign and a word."""


class claim_line(nodes.General, nodes.Element):
    """One `claim` and its `verdict`: a line that unfolds, then a comment."""


class claim_fold(nodes.General, nodes.Element):
    """What unfolds: its first child is the line, all others stand behind it."""


class claim_summary(nodes.paragraph):
    """The line of a claim: its sentence, its verdict and its effect."""


class claims_list(nodes.General, nodes.Element):
    """All claims of a page; its items are linked once the page is complete."""


class claim_item(nodes.list_item):
    """A `claim` of the list, with its `statement`, its `verdict` and the `section` that discusses it."""


class ran_line(nodes.General, nodes.Element):
    """What ran, in one line at the foot of a page, with the ways to its data behind it."""


class cite_box(nodes.General, nodes.Element):
    """How to cite what it stands behind; pages have it, notebooks do not."""


class data_link(nodes.inline):
    """A visible link from the page `docname` to a `file` of data; `label` says which."""


class figure_data(nodes.legend):
    """The links under a figure to its data.

    A legend whose `<figcaption>` the caption has opened, also where several nodes stand before the caption:
    docutils opens a second one unless the caption is a figure's second node.
    """


class fold(nodes.General, nodes.Element):
    """Text behind a `summary` that opens it."""


class score_row(nodes.row):
    """A row of the Scorecard, about one `claim`; what it can be found by is known in the end."""


class score_item(nodes.General, nodes.Element):
    """A `claim` on the page of its source document; a sister of the row in the Scorecard."""


class score_outcome(nodes.General, nodes.Element):
    """The place for `what` is known of a `claim`: its verdict, what was measured, or where."""


class score_form(nodes.General, nodes.Element):
    """The filters of the Scorecard, for those who run scripts; filled in when rows are known."""


class score_counts(nodes.General, nodes.Element):
    """The place for counts of claims: `form` says which, `source` of which document."""


class drawings(nodes.General, nodes.Element):
    """The drawings of one figure, of which the theme shows one; `size` is theirs in pixels.

    They need a box of their own: the theme hides a caption right beside a hidden drawing.
    """


class runs_table(nodes.General, nodes.Element):
    """The table of all chapters, filled in when all are known."""


class notebook_link(nodes.inline):
    """A visible link to the notebook of the page `docname`, perhaps in `words` of its own."""


def _visit_measured(translator: HTML5Translator, node: nodes.Element) -> None:
    extra: dict[str, Any] = {"data-measured": node["expression"]}
    if node.get("doubt"):
        extra["title"] = node["doubt"]
        node["classes"].append("doubtful")
    translator.body.append(translator.starttag(node, "span", "", **extra))


def _depart_measured(translator: HTML5Translator, node: nodes.Element) -> None:
    if why := node.get("doubt"):
        sign = '<span class="doubt-sign" aria-hidden="true">\N{WARNING SIGN}\ufe0e</span>'
        said = f'<span class="unseen"> (does not hold now: {translator.encode(why)})</span>'
        translator.body.append(sign + said)
    translator.body.append("</span>")


def _visit_badge(translator: HTML5Translator, node: nodes.Element) -> None:
    symbol = SIGNS.get(node.astext(), "!")
    translator.body.append(translator.starttag(node, "span", ""))
    translator.body.append(f'<span class="verdict-sign" aria-hidden="true">{symbol}</span> ')


def _depart_span(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append("</span>")


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
    words = node.get("words", "Download this page as a notebook")
    translator.body.append(
        f'<a class="notebook-link" href="{address}" download>{translator.encode(words)}</a>'
    )
    raise nodes.SkipNode


def _visit_line(translator: HTML5Translator, node: nodes.Element) -> None:
    label = f"Claim {node['claim']}, {node['verdict']}"
    extra: dict[str, Any] = {"role": "group", "aria-label": label, "data-claim": node["claim"]}
    kind = f"claim-line claim-{node['verdict'].replace(' ', '-')}"
    translator.body.append(translator.starttag(node, "div", CLASS=kind, **extra))


def _visit_unfolding(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append(translator.starttag(node, "details"))


def _visit_summary(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append("<summary>")


def _depart_summary(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append("</summary>\n")


def _visit_ran_line(translator: HTML5Translator, node: nodes.Element) -> None:
    extra: dict[str, Any] = {"role": "group", "aria-label": "What ran"}
    translator.body.append(translator.starttag(node, "div", CLASS="ran-line", **extra))


def _visit_data(translator: HTML5Translator, node: nodes.Element) -> None:
    here = translator.builder.get_target_uri(node["docname"])
    address, label = relative_uri(here, node["file"]), translator.encode(node["label"])
    translator.body.append(
        f'<a class="data-link" href="{address}" download aria-label="{label}">{node.astext()}</a>'
    )
    raise nodes.SkipNode


def _visit_row(translator: HTML5Translator, node: nodes.Element) -> None:
    extra: dict[str, Any] = {
        f"data-{name}": node[name] for name in ("source", "chapter", "verdict")
    }
    ranks: dict[str, Any] = node.get("ranks", {})
    extra |= {f"data-{name}": str(value) for name, value in ranks.items()}
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


def _as_item(translator: Any, node: nodes.Element) -> None:
    translator.visit_list_item(node)


def _after_item(translator: Any, node: nodes.Element) -> None:
    translator.depart_list_item(node)


def _visit_figure_data(self: HTML5Translator, node: figure_data) -> None:
    self.body.append(self.starttag(node, "div", CLASS="legend"))


def _as_legend(translator: Any, node: nodes.Element) -> None:
    translator.visit_legend(node)


def _after_legend(translator: Any, node: nodes.Element) -> None:
    translator.depart_legend(node)


def _as_paragraph(translator: Any, node: nodes.Element) -> None:
    translator.visit_paragraph(node)


def _after_paragraph(translator: Any, node: nodes.Element) -> None:
    translator.depart_paragraph(node)


def _add(app: Sphinx, piece: type[nodes.Element], visit: Any, depart: Any, other: Any) -> None:
    """Register a piece: one way for web pages, another for everything else."""
    pages: dict[str, Any] = dict.fromkeys(("html", "singlehtml"), (visit, depart))
    others: dict[str, Any] = dict.fromkeys(("latex", "text", "man", "texinfo"), other)
    app.add_node(piece, **pages, **others)


def setup(app: Sphinx) -> None:
    """Register all nodes."""
    plain = (_nothing, _nothing)
    _add(app, measured_value, _visit_measured, _depart_measured, plain)
    _add(app, verdict_badge, _visit_badge, _depart_span, plain)
    _add(app, claim_line, _visit_line, _depart_div, plain)
    _add(app, claim_fold, _visit_unfolding, _depart_fold, plain)
    _add(app, claim_summary, _visit_summary, _depart_summary, (_as_paragraph, _after_paragraph))
    _add(app, claim_item, _as_item, _after_item, (_as_item, _after_item))
    _add(app, ran_line, _visit_ran_line, _depart_div, plain)
    _add(app, figure_data, _visit_figure_data, _depart_div, (_as_legend, _after_legend))
    _add(app, data_link, _visit_data, None, (_skip, None))
    _add(app, fold, _visit_fold, _depart_fold, plain)
    _add(app, drawings, _visit_drawings, _depart_div, plain)
    _add(app, notebook_link, _visit_link, None, (_skip, None))
    _add(app, score_row, _visit_row, _depart_row, (_as_row, _after_row))
    _add(app, score_item, _visit_item, _depart_div, plain)
    app.connect("html-page-context", _mend_markup)
