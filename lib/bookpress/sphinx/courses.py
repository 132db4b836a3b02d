"""Tables of the chapters that have a room, in the order of the book.

    {compute-table}    what a lecturer plans with: their exercises, and what their measurements cost
    {rooms-table}      where the code of their rooms lies in the repository

Minutes are those that all seeds of all measurements took on the machine that the results name, added up from
the results themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from bookpress.chapters import TOC, Chapter, front_matter, load_book, rooms_of
from bookpress.sphinx.downloads import repository_of
from bookpress.sphinx.editions import edition_in

_EXERCISE = re.compile(r"^`{3,}\{exercise\}", re.MULTILINE)
_ROOM = "lib/measured_book/rooms/{room}"
_SHOWN = "measured_compute_table"


class _Table(SphinxDirective):
    titles: tuple[str, ...]
    widths: tuple[int, ...]
    kind: str

    def run(self) -> list[nodes.Node]:
        root = Path(self.env.srcdir)
        body = nodes.tbody()
        for chapter in self.chapters(root):
            link = nodes.reference("", chapter.title, internal=True)
            builder = self.env.app.builder
            link["refuri"] = builder.get_relative_uri(self.env.docname, chapter.docname)
            row = nodes.row("", nodes.entry("", nodes.paragraph("", "", link)))
            for cell in self.cells(root, chapter):
                row += nodes.entry("", nodes.paragraph("", "", *cell))
            body += row
        head = nodes.row()
        for title in self.titles:
            head += nodes.entry("", nodes.paragraph("", title))
        columns = [nodes.colspec(colwidth=width) for width in self.widths]
        group = nodes.tgroup("", *columns, nodes.thead("", head), body, cols=len(columns))
        return [nodes.table("", group, classes=[self.kind])]

    def chapters(self, root: Path) -> list[Chapter]:
        return with_rooms(root)

    def cells(self, root: Path, chapter: Chapter) -> Iterator[list[nodes.Node]]:
        raise NotImplementedError


class _ComputeTable(_Table):
    titles = ("Chapter", "Exercises", "Minutes of one core, all seeds")
    widths = (60, 15, 25)
    kind = "compute-table"

    def chapters(self, root: Path) -> list[Chapter]:
        chapters = with_rooms(root)
        self.env.metadata[self.env.docname][_SHOWN] = facts(root, chapters)
        return chapters

    def cells(self, root: Path, chapter: Chapter) -> Iterator[list[nodes.Node]]:
        exercises, minutes = facts_of(root, chapter)
        yield [nodes.Text(str(exercises))]
        yield [nodes.Text(f"{minutes:.0f}")]


class _RoomsTable(_Table):
    titles = ("Chapter", "Room", "Its code")
    widths = (45, 20, 35)
    kind = "rooms-table"

    def chapters(self, root: Path) -> list[Chapter]:
        chapters = with_rooms(root)
        for path in (root / TOC, *(chapter.path for chapter in chapters)):
            self.env.note_dependency(str(path))
        return chapters

    def cells(self, root: Path, chapter: Chapter) -> Iterator[list[nodes.Node]]:
        site, code = repository_of(self.env.app), edition_in(self.env.app).code_at
        names: list[nodes.Node] = []
        files: list[nodes.Node] = []
        for room in rooms_of_chapter(chapter):
            at = f"{code}/{_ROOM.format(room=room)}"
            names += [nodes.Text(", ")] if names else []
            name = nodes.literal("", room)
            names.append(nodes.reference("", "", name, refuri=f"{site}/tree/{at}", internal=False))
            for path in sorted((root / _ROOM.format(room=room)).glob("[a-z]*.py")):
                files += [nodes.Text(", ")] if files else []
                address = f"{site}/blob/{at}/{path.name}"
                files.append(nodes.reference("", path.name, refuri=address, internal=False))
        yield names
        yield files


def rooms_of_chapter(chapter: Chapter) -> list[str]:
    """The rooms that a chapter's front matter names."""
    return rooms_of(front_matter(chapter.path.read_text("utf-8")))


def with_rooms(root: Path) -> list[Chapter]:
    """The chapters that have a room, in the order of the book."""
    return [chapter for chapter in load_book(root).chapters if rooms_of_chapter(chapter)]


def facts_of(root: Path, chapter: Chapter) -> tuple[int, float]:
    """Number of a chapter's exercises, and minutes that its kept results took."""
    exercises = len(_EXERCISE.findall(chapter.path.read_text("utf-8")))
    seconds = 0.0
    for room in rooms_of_chapter(chapter):
        for path in (root / _ROOM.format(room=room) / "results").glob("*.json"):
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
    """Register the tables."""
    app.add_directive("compute-table", _ComputeTable)
    app.add_directive("rooms-table", _RoomsTable)
    app.connect("env-get-outdated", _read_again)
