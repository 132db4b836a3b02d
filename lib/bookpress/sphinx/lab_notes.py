"""The lab notes: how tests came about, a section for each chapter that has notes.

The page `measured_lab_notes` (a setting) holds the place ``{lab-notes}``. A chapter's notes lie in a folder
beside it that has the page's name, in a file that has the chapter's: `lab-notes/positional-encoding.md`. Each
becomes a section with the label `lab-notes-positional-encoding`, in the order of the file names.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

_PLACE = re.compile(r"^```\{lab-notes\}\n```$", re.MULTILINE)
_FILES = "measured_lab_notes"
_AFTER_THE_PROSE_IS_READ = 200


def way_to(env: BuildEnvironment, docname: str) -> nodes.reference | None:
    """Return a link to a chapter's notes; nothing where it has none."""
    page, chapter = env.config.measured_lab_notes, Path(docname).name
    if page not in env.found_docs or chapter not in {path.stem for path in _files(env)}:
        return None
    uri = f"{env.app.builder.get_relative_uri(docname, page)}#lab-notes-{chapter}"
    return nodes.reference("", "Lab notes", refuri=uri, internal=True)


def _files(env: BuildEnvironment) -> list[Path]:
    page: str = env.config.measured_lab_notes
    return sorted((Path(env.srcdir) / page).glob("*.md"))


def _take_up(app: Sphinx, docname: str, source: list[str]) -> None:
    """Take the chapters' notes up into their page."""
    if docname != app.config.measured_lab_notes:
        return
    folder = Path(docname).name
    files = [path.name for path in _files(app.env)]
    app.env.metadata[docname][_FILES] = files
    sections = "\n\n".join(
        f"(lab-notes-{Path(name).stem})=\n```{{include}} {folder}/{name}\n:heading-offset: 1\n```"
        for name in files
    )
    source[0] = _PLACE.sub(sections or "No chapter has notes yet.", source[0])


def _read_again(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Read the page again when notes came or went."""
    del added, changed, removed
    page, files = app.config.measured_lab_notes, [path.name for path in _files(env)]
    return [page] if page in env.all_docs and env.metadata[page].get(_FILES) != files else []


def setup(app: Sphinx) -> None:
    """Register the setting, and take the notes up when their page is read."""
    app.add_config_value("measured_lab_notes", "book/about/lab-notes", "env", str)
    app.connect("source-read", _take_up, priority=_AFTER_THE_PROSE_IS_READ)
    app.connect("env-get-outdated", _read_again)
