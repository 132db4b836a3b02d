"""What a lecturer plans with: a table of the chapters, with their exercises and what their measurements cost.

    {compute-table}    a row for each chapter that has a room, in the order of the book

Minutes are those that all seeds of all measurements took on the machine that the results name, added up from
the results themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from bookpress.chapters import Chapter, front_matter, load_book

_EXERCISE = re.compile(r"^`{3,}\{exercise\}", re.MULTILINE)
_RESULTS = "lib/measured_book/rooms/{room}/results"
_SHOWN = "measured_compute_table"


class _ComputeTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        root = Path(self.env.srcdir)
        chapters = with_rooms(root)
        self.env.metadata[self.env.docname][_SHOWN] = facts(root, chapters)
        body = nodes.tbody()
        for chapter in chapters:
            link = nodes.reference("", chapter.title, internal=True)
            builder = self.env.app.builder
            link["refuri"] = builder.get_relative_uri(self.env.docname, chapter.docname)
            exercises, minutes = facts_of(root, chapter)
            cells = (link, nodes.Text(str(exercises)), nodes.Text(f"{minutes:.0f}"))
            body += nodes.row("", *(nodes.entry("", nodes.paragraph("", "", x)) for x in cells))
        head = nodes.row()
        for title in ("Chapter", "Exercises", "Minutes of one core, all seeds"):
            head += nodes.entry("", nodes.paragraph("", title))
        columns = [nodes.colspec(colwidth=width) for width in (60, 15, 25)]
        group = nodes.tgroup("", *columns, nodes.thead("", head), body, cols=3)
        return [nodes.table("", group, classes=["compute-table"])]


def room_of(chapter: Chapter) -> str | None:
    """The room that a chapter's front matter names."""
    about = front_matter(chapter.path.read_text("utf-8")).get("measured") or {}
    return about.get("room")


def with_rooms(root: Path) -> list[Chapter]:
    """The chapters that have a room, in the order of the book."""
    return [chapter for chapter in load_book(root).chapters if room_of(chapter)]


def facts_of(root: Path, chapter: Chapter) -> tuple[int, float]:
    """Number of a chapter's exercises, and minutes that its kept results took."""
    exercises = len(_EXERCISE.findall(chapter.path.read_text("utf-8")))
    seconds = 0.0
    for path in (root / _RESULTS.format(room=room_of(chapter))).glob("*.json"):
        told = json.loads(path.read_text("utf-8")).get("provenance", {}).get("seconds", 0.0)
        seconds += float(told)
    return exercises, seconds / 60


def facts(root: Path, chapters: Sequence[Chapter]) -> list[tuple[str, int, float]]:
    """The same for all chapters, to see whether a page that shows them is still right."""
    return [(chapter.title, *facts_of(root, chapter)) for chapter in chapters]


def _read_again(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Read a page with the table again when a chapter, an exercise or a result is another."""
    del added, changed, removed
    showing = [name for name in env.all_docs if _SHOWN in env.metadata.get(name, {})]
    if not showing:
        return []
    root = Path(app.srcdir)
    now = facts(root, with_rooms(root))
    return [name for name in showing if env.metadata[name][_SHOWN] != now]


def setup(app: Sphinx) -> None:
    """Register the table."""
    app.add_directive("compute-table", _ComputeTable)
    app.connect("env-get-outdated", _read_again)
