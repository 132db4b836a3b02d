"""The foot of a room's page: what ran, in one line, with its data and how to repeat it behind it.

The same facts stand in the table of what every chapter ran on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from docutils import nodes
from measured_book.evidence.results import chapters_folder
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookpress.sphinx import data, errata, lab_notes, rooms
from bookpress.sphinx.downloads import repository_of
from bookpress.sphinx.editions import edition_in
from bookpress.sphinx.nodes import fold, notebook_link, ran_line
from bookpress.sphinx.page import page_of
from bookpress.sphinx.rooms import Judged, Shown
from bookpress.sphinx.shown_data import Source

_MARKED = re.compile(r"(``[^`]+``|`[^`]+`|\$[^$]+\$)")

_AFTER_CLAIMS_ARE_LINKED = 120


def facts(*judged: Judged) -> list[tuple[str, str]]:
    """Say what the results of a page's rooms were measured on: term and words."""
    measured = [shown for one in judged for shown in one.results.values()]
    results = [shown for shown in measured if shown.result is not None]
    if not results:
        return []
    told = [shown.provenance for shown in results]
    found = [
        ("Seeds", _range([str(count) for count in sorted({len(r.seeds) for r in results})])),
        ("Device", _listed(each.get("device") for each in told)),
        ("Date", _range(sorted({str(each.get("date", ""))[:10] for each in told}))),
        ("Commit", _listed(str(each.get("commit", ""))[:12] for each in told)),
    ]
    return [(term, words) for term, words in found if words]


def _range(ordered: Sequence[str]) -> str:
    ends = [text for text in ordered if text]
    return "" if not ends else ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"


def _listed(texts: Iterable[object]) -> str:
    return "; ".join(dict.fromkeys(str(text) for text in texts if text))


def _add_foot(app: Sphinx, doctree: nodes.document) -> None:
    """Put the line at the end of a page, and complain of results that do not hold."""
    env = app.env
    judged = _judged(env) if doctree.settings is not None else {}
    if not judged:
        return
    rooms.complain(env)
    whole: nodes.Element = next(iter(doctree.findall(nodes.section)), doctree)
    foot = ran_line("", _line(app, judged, page_of(env, doctree).notebook is not None))
    behind = [
        node
        for room, one in judged.items()
        for node in (_measurements(env, room, one), *_repeat(room, one))
    ]
    foot += fold("", *behind, summary="Data, and how to repeat this")
    whole.append(foot)


def _judged(env: BuildEnvironment) -> dict[str, Judged]:
    """What the rooms of the page being read say, its own first."""
    return {room: rooms.judged(env, room) for room in rooms.rooms_of(env)}


def _line(app: Sphinx, judged: Mapping[str, Judged], has_cells: bool) -> nodes.paragraph:
    env = app.env
    told = dict(facts(*judged.values()))
    words = []
    if "Seeds" in told:
        words.append(f"{told['Seeds']} {'seed' if told['Seeds'] == '1' else 'seeds'}")
    words += [told[term] for term in ("Device", "Date") if term in told]
    if "Commit" in told:
        words.append(f"commit {told['Commit']}")
    line = nodes.paragraph("", "", nodes.strong("", "What ran"), nodes.Text(": "))
    line += nodes.Text(f"{', '.join(words) or 'nothing yet'}. ")
    code = f"{repository_of(app)}/blob/{edition_in(app).code_at}/lib/measured_book/rooms"
    ways: list[nodes.Node] = [
        nodes.reference("", named, refuri=f"{code}/{file}", internal=False)
        for named, file in _code_of(judged)
    ]
    if has_cells:
        ways.append(notebook_link(docname=env.docname, words="Notebook"))
    if notes := lab_notes.way_to(env, env.docname):
        ways.append(notes)
    if wrong := errata.way_to(env, env.docname):
        ways.append(wrong)
    listed = nodes.inline(classes=["way"])
    for number, way in enumerate(ways):
        listed += nodes.Text(" \N{MIDDLE DOT} " if number else "")
        listed += way
    line += listed
    return line


def _code_of(rooms_of_page: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The files that measure and judge: what each is called, and where it lies among the rooms."""
    for number, room in enumerate(rooms_of_page):
        of = f" of {room}" if number else ""
        if (chapters_folder() / room / "reading.py").is_file():
            yield f"Measuring code{of}", f"{room}/measure.py"
            yield f"Judging code{of}", f"{room}/reading.py"
        else:
            yield f"Code{of}", f"{room}/measure.py"


def _measurements(env: BuildEnvironment, room: str, judged: Judged) -> nodes.bullet_list:
    listed = nodes.bullet_list(classes=["ran-results"])
    for name, shown in judged.results.items():
        line = nodes.paragraph("", "", nodes.literal("", name), nodes.Text(": "))
        line += [*inline(_what(shown)), nodes.Text(". ")]
        if shown.seeds:
            line += nodes.Text(f"{len(shown.seeds)} {'seed' if len(shown.seeds) == 1 else 'seeds'}")
        if ways := data.links(env, Source(room, name)):
            line += [nodes.Text("; "), *ways, nodes.Text(".")]
        if why := rooms.doubt_of(shown):
            line += [nodes.Text(" "), nodes.inline("", f"{why}.", classes=["claim-doubt"])]
        listed += nodes.list_item("", line)
    return listed


def inline(text: str) -> list[nodes.Node]:
    """Return a line of a docstring as nodes: code between backticks and mathematics between dollar signs."""
    found: list[nodes.Node] = []
    for part in _MARKED.split(text):
        if len(part) > 2 and part[0] == part[-1] == "`":
            found.append(nodes.literal("", part.strip("`")))
        elif len(part) > 2 and part[0] == part[-1] == "$":
            found.append(nodes.math("", part[1:-1]))
        elif part:
            found.append(nodes.Text(part))
    return found


def _what(shown: Shown) -> str:
    return shown.what.rstrip(".")


def _repeat(room: str, judged: Judged) -> list[nodes.Node]:
    first = next(iter(judged.results), None)
    shell = f"make measure CHAPTER={room}"
    found: list[nodes.Node] = [
        nodes.paragraph("", "In a copy of the repository, all of it again:"),
        nodes.literal_block(shell, shell, language="bash"),
    ]
    if first is not None:
        call = (
            "from measured_book.measuring import measure\n"
            f"from measured_book.rooms.{room}.measure import {first}\n\n"
            f"measure({first}, seeds=2)"
        )
        found += [
            nodes.paragraph("", "In a notebook, the first of these with two seeds:"),
            nodes.literal_block(call, call, language="python"),
        ]
    return found


def setup(app: Sphinx) -> None:
    """Give every page of a room its foot."""
    app.connect("doctree-read", _add_foot, priority=_AFTER_CLAIMS_ARE_LINKED)
