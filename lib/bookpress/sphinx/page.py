"""The executed notebook behind the page that is being read.

MyST-NB lends its renderer to roles and directives for as long as it parses a page; through it they
see the notebook with all its outputs, whether it was executed just now or came from the cache. What
they need later, when the document tree is complete, is kept by a closing directive that every page
with cells gets at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from docutils import nodes
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)

TYPE = "measured"
"""The type of this package's warnings."""
_CLOSING = "closing-of-page"
_KEY = "bookpress.page"


@dataclass(frozen=True)
class Output:
    """One thing that a cell displayed, with what it says of itself.

    Attributes:
        cell: index of the cell in the notebook.
        measured: the output's `measured` metadata; empty for ordinary outputs.
    """

    cell: int
    measured: dict[str, Any]


@dataclass
class Page:
    """What the notebook of one page brought.

    Attributes:
        notebook: with all outputs; None for a page without cells.
        outputs: everything displayed (text streams aside), in order.
    """

    notebook: NotebookNode | None = None
    outputs: list[Output] = field(default_factory=list)


def page_of(env: BuildEnvironment, document: nodes.document) -> Page:
    """Return what the notebook of the page being read brought.

    Works in roles and directives, and after parsing in `doctree-read` handlers of the same page.
    """
    kept = env.temp_data.get(_KEY)
    if isinstance(kept, Page):
        return kept
    page = _read(document)
    env.temp_data[_KEY] = page
    return page


def _read(document: nodes.document) -> Page:
    renderer = document.attributes.get("nb_renderer")
    if renderer is None:
        return Page()
    client = renderer.renderer.nb_client
    notebook = cast(NotebookNode, client.notebook)
    outputs = [
        Output(cell=index, measured=dict(output.get("metadata", {}).get("measured", {})))
        for index, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", [])
        if output.output_type in ("display_data", "execute_result") and output.data
    ]
    return Page(notebook=notebook, outputs=outputs)


def warn(message: str, subtype: str, location: Any) -> None:
    """Complain; `strict` makes a failed build of it."""
    logger.warning(message, type=TYPE, subtype=subtype, location=location)


class _Closing(SphinxDirective):
    """Keep the notebook until the document tree is complete."""

    def run(self) -> list[nodes.Node]:
        page_of(self.env, self.state.document)
        return []


def _append_closing(app: Sphinx, docname: str, content: list[str]) -> None:
    if docname in app.env.found_docs and str(app.env.doc2path(docname)).endswith(".md"):
        content[0] = f"{content[0].rstrip()}\n\n```{{{_CLOSING}}}\n```\n"


def setup(app: Sphinx) -> None:
    """Register the closing directive and put it at the end of every page."""
    app.add_directive(_CLOSING, _Closing)
    app.connect("source-read", _append_closing)
