"""The front door: the table of all chapters, and figures of chapters on another page.

Directives:
    {chapters-table}                    every chapter of the numbered parts of `_toc.yml`, with the question
                                        that its own page asks: ``question:`` in its front matter
    {chapter-figure} book/norms/scale   a figure of another page, as it was drawn there; `name` says which

Nothing is typed twice, so the table misses no chapter, and a figure on the front page is the chapter's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx_external_toc.parsing import parse_toc_yaml

from bookpress.chapters import TOC, front_matter
from bookpress.sphinx.nodes import drawings
from bookpress.sphinx.page import warn

QUESTION = "question"
"""The key of a page's front matter that holds the question it answers."""
_SHOWS = "measured_shows_figures_of"
"""Page metadata: the pages whose figures this one shows."""


class chapter_figure(nodes.General, nodes.Element):  # noqa: N801 (docutils' own way)
    """The place for the figure `name` of the page `docname`."""


# All chapters -------------------------------------------------------------------------------------


class _ChaptersTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        source = Path(self.env.srcdir)
        self.env.note_dependency(str(source / TOC))
        body = nodes.tbody()
        number = 0
        for part, chapters in numbered_parts(source):
            caption = nodes.paragraph("", "", nodes.strong("", part))
            body += nodes.row("", nodes.entry("", caption, morecols=2, classes=["chapters-part"]))
            for docname in chapters:
                number += 1
                body += self._row(number, docname)
        header = nodes.row()
        for title in ("Number", "Chapter", "Its question"):
            header += nodes.entry("", nodes.paragraph("", title))
        widths = (nodes.colspec(colwidth=width) for width in (6, 30, 64))
        group = nodes.tgroup("", *widths, nodes.thead("", header), body, cols=3)
        return [nodes.table("", group, classes=["chapters-table"])]

    def _row(self, number: int, docname: str) -> nodes.row:
        path = Path(self.env.doc2path(docname))
        self.env.note_dependency(str(path))
        link = pending_xref(
            "",
            nodes.inline("", docname),
            refdomain="std",
            reftype="doc",
            reftarget=f"/{docname}",
            refexplicit=False,
            refwarn=True,
            refdoc=self.env.docname,
        )
        asked = nodes.entry()
        question = question_of(path)
        if question is None:
            warn(
                f"{path.name} asks no question: give its front matter the line "
                "`question: What does it answer?`, for the table of chapters",
                QUESTION,
                self.get_location(),
            )
        else:
            self.state.nested_parse(StringList([question], self.env.docname), 0, asked)
        return nodes.row(
            "",
            nodes.entry("", nodes.paragraph("", str(number))),
            nodes.entry("", nodes.paragraph("", "", link)),
            asked,
        )


def numbered_parts(source: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield caption and pages of each numbered part of the book whose root this is, in reading order."""
    for part in parse_toc_yaml(source / TOC).root.subtrees:
        if part.numbered:
            yield str(part.caption), [str(item) for item in part.items]


def question_of(path: Path) -> str | None:
    """Return the question that a page asks in its front matter; None where it asks none."""
    found = front_matter(path.read_text("utf-8")).get(QUESTION)
    return str(found).strip() if found else None


# Figures of other pages ---------------------------------------------------------------------------


class _ChapterFigure(SphinxDirective):
    required_arguments = 1
    option_spec = {"name": directives.unchanged_required}  # noqa: RUF012 (docutils' own way)

    def run(self) -> list[nodes.Node]:
        place = chapter_figure(docname=self.arguments[0], name=self.options.get("name", ""))
        self.set_source_info(place)
        shown = self.env.metadata[self.env.docname].setdefault(_SHOWS, [])
        shown.append(self.arguments[0])
        return [place]


class PlaceChapterFigures(SphinxPostTransform):
    """Put the drawings of other pages' figures where directives left room for them."""

    default_priority = 4  # before `figures.OneDrawing` chooses between the two drawings

    def run(self, **kwargs: object) -> None:
        """Replace every placeholder of the page."""
        for place in list(self.document.findall(chapter_figure)):
            found = self._drawn(place["docname"], place["name"])
            if found is not None:
                place.replace_self(nodes.container("", found, classes=["chapter-figure"]))
                continue
            if self.config.nb_execution_mode != "off":  # where no cell runs there is no figure
                warn(
                    f"{place['docname']} has no figure {place['name']!r} with drawings for both themes",
                    "figure",
                    place,
                )
            place.parent.remove(place)

    def _drawn(self, docname: str, name: str) -> drawings | None:
        if docname not in self.env.found_docs:
            return None
        for figure in self.env.get_doctree(docname).findall(nodes.figure):
            if name in figure["ids"]:
                for pair in figure.findall(drawings):
                    copied = pair.deepcopy()
                    for image in copied.findall(nodes.image):
                        image["ids"] = []
                    return copied
        return None


def _read_with_its_chapters(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Write a page again when one is read whose figure it shows."""
    del app
    read = set(docnames)
    docnames += [
        name
        for name in sorted(env.found_docs - read)
        if read & set(env.metadata[name].get(_SHOWS, ()))
    ]


def setup(app: Sphinx) -> None:
    """Register the directives and what completes them."""
    app.add_node(chapter_figure)
    app.add_directive("chapters-table", _ChaptersTable)
    app.add_directive("chapter-figure", _ChapterFigure)
    app.add_post_transform(PlaceChapterFigures)
    app.connect("env-before-read-docs", _read_with_its_chapters)
