"""The front door: the table of all chapters, and figures of chapters on another page.

Directives:
    {chapters-table}                    every chapter of the numbered parts of `_toc.yml`, with the question
                                        that its own page asks: ``question:`` in its front matter
    {chapters-table} Attention          those of one part
    {chapter-figure} book/norms/scale   a figure of another page, as it was drawn there; `name` says which;
                                        with `live` the viewer that stands there, begun when it is near

Nothing is typed twice, so the table misses no chapter, and a figure on the front page is the chapter's own.
"""

from __future__ import annotations

import re
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

from bookpress.chapters import TOC, front_matter, is_part_page
from bookpress.sphinx.nodes import drawings
from bookpress.sphinx.page import warn

QUESTION = "question"
"""The key of a page's front matter that holds the question it answers."""
_SHOWS = "measured_shows_figures_of"
"""Page metadata: the pages whose figures this one shows."""


_BEGINS = re.compile(r"<script>.*?</script>", re.DOTALL)
_LATER = """<script>(() => {
const box = document.currentScript.parentElement;
const begin = () => {
  for (const one of box.querySelectorAll("template.begins-later")) one.replaceWith(one.content);
};
const shared = location.hash.startsWith("#live=");
if (shared) addEventListener("load", () => box.scrollIntoView());
if (shared || !("IntersectionObserver" in window)) return begin();
new IntersectionObserver((seen, watching) => {
  if (!seen.some((one) => one.isIntersecting)) return;
  watching.disconnect();
  begin();
}, { rootMargin: "200px" }).observe(box);
})();</script>
"""


class chapter_figure(nodes.General, nodes.Element):  # noqa: N801 (docutils' own way)
    """The place for the figure `name` of the page `docname`, `live` or as a drawing."""


# All chapters -------------------------------------------------------------------------------------


class _ChaptersTable(SphinxDirective):
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        only = self.arguments[0] if self.arguments else ""
        source = Path(self.env.srcdir)
        self.env.note_dependency(str(source / TOC))
        body = nodes.tbody()
        number = 0
        parts = list(numbered_parts(source))
        if only and only not in dict(parts):
            known = ", ".join(part for part, _ in parts)
            raise self.error(f"expected one of the numbered parts {known}, got {only!r}")
        for part, chapters in parts:
            if not only:
                body += _part_row(part)
            for docname in chapters:
                number += 1
                if only in ("", part):
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


def _part_row(part: str) -> nodes.row:
    caption = nodes.paragraph("", "", nodes.strong("", part))
    return nodes.row("", nodes.entry("", caption, morecols=2, classes=["chapters-part"]))


def numbered_parts(source: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield caption and chapters of each numbered part of the book whose root this is, in reading order."""
    for part in parse_toc_yaml(source / TOC).root.subtrees:
        if part.numbered:
            chapters = [str(item) for item in part.items]
            yield str(part.caption), [name for name in chapters if not is_part_page(name)]


def question_of(path: Path) -> str | None:
    """Return the question that a page asks in its front matter; None where it asks none."""
    found = front_matter(path.read_text("utf-8")).get(QUESTION)
    return str(found).strip() if found else None


# Figures of other pages ---------------------------------------------------------------------------


class _ChapterFigure(SphinxDirective):
    required_arguments = 1
    option_spec = {"name": directives.unchanged_required, "live": directives.flag}  # noqa: RUF012 (docutils' own way)

    def run(self) -> list[nodes.Node]:
        name, live = self.options.get("name", ""), "live" in self.options
        place = chapter_figure(docname=self.arguments[0], name=name, live=live)
        self.set_source_info(place)
        shown = self.env.metadata[self.env.docname].setdefault(_SHOWS, [])
        shown.append(self.arguments[0])
        return [place]


class PlaceChapterFigures(SphinxPostTransform):
    """Put the drawings of other pages' figures where directives left room for them."""

    default_priority = (
        3  # before MyST-NB chooses what to show, and `figures.OneDrawing` between drawings
    )

    def run(self, **kwargs: object) -> None:
        """Replace every placeholder of the page."""
        for place in list(self.document.findall(chapter_figure)):
            figure = self._figure(place["docname"], place["name"])
            found = (
                None
                if figure is None
                else _begun_later(figure)
                if place["live"]
                else _drawn(figure)
            )
            if found:
                kind = "chapter-viewer" if place["live"] else "chapter-figure"
                place.replace_self(nodes.container("", *found, classes=[kind]))
                continue
            if self.config.nb_execution_mode != "off":  # where no cell runs there is no figure
                what = "that is live" if place["live"] else "with drawings for both themes"
                warn(
                    f"{place['docname']} has no figure {place['name']!r} {what}",
                    "figure",
                    place,
                )
            place.parent.remove(place)

    def _figure(self, docname: str, name: str) -> nodes.figure | None:
        if docname not in self.env.found_docs:
            return None
        figures = self.env.get_doctree(docname).findall(nodes.figure)
        return next((figure for figure in figures if name in figure["ids"]), None)


def _drawn(figure: nodes.figure) -> list[nodes.Element]:
    """Return a copy of a figure's drawings; nothing where it has none for both themes."""
    for pair in figure.findall(drawings):
        copied = pair.deepcopy()
        for image in copied.findall(nodes.image):
            image["ids"] = []
        return [copied]
    return []


def _begun_later(figure: nodes.figure) -> list[nodes.Node]:
    """Return a copy of a viewer, of which nothing runs or is fetched until a reader comes near; or nothing."""
    copied = [
        child.deepcopy()
        for child in figure.children
        if not isinstance(child, nodes.caption | nodes.legend)
    ]
    scripted = [
        raw for child in copied for raw in child.findall(nodes.raw) if _BEGINS.search(raw.astext())
    ]
    for raw in scripted:
        text = _BEGINS.sub(r'<template class="begins-later">\g<0></template>', raw.astext())
        raw.replace_self(nodes.raw("", text, format="html"))
    return [*copied, nodes.raw("", _LATER, format="html")] if scripted else []


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
