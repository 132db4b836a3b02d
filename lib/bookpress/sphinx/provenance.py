"""What a page's numbers ran on: a box on each chapter, and a table of all chapters.

Directives:
    {ran}          on a chapter: its words say how large each profile is; the box adds profile,
                   device, versions, time and date, and offers the notebook
    {runs-table}   on a page about the book: the same facts for every chapter
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docutils import nodes
from measured_transformer.evidence.records import number_text
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from bookpress.sphinx.evidence import payloads_of
from bookpress.sphinx.foot import facts
from bookpress.sphinx.nodes import notebook_link, ran_box, runs_table
from bookpress.sphinx.page import page_of, warn
from bookpress.sphinx.rooms import judged, room_of

_RUN = "measured_run"
_HAS_TABLE = "measured_runs_table"
_NAMES: Mapping[str, str] = {
    "python": "Python",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "measured_transformer": "measured-transformer",
}


class _Ran(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        if room_of(self.env):
            warn(
                "the foot of this page says by itself what ran; take {ran} away",
                "ran",
                self.get_location(),
            )
            return []
        page = page_of(self.env, self.state.document)
        run = payloads_of(self.env, self.state.document)["run"]
        if page.notebook is None:
            warn("a page without cells has nothing that ran", "ran", self.get_location())
            return []
        box = ran_box()
        self.set_source_info(box)
        head = nodes.paragraph("", "", classes=["ran-head"])
        head += nodes.strong("", "What ran")
        box += head
        if self.content:
            self.state.nested_parse(self.content, self.content_offset, box)
        listed = nodes.definition_list(classes=["ran-facts"])
        for term, text in _facts(run, page.seconds):
            item = nodes.definition_list_item("", nodes.term("", term))
            item += nodes.definition("", nodes.paragraph("", text))
            listed += item
        box += listed
        box += nodes.paragraph("", "", notebook_link(docname=self.env.docname))
        return [box]


class _RunsTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname][_HAS_TABLE] = True
        return [runs_table()]


def _facts(run: Mapping[str, Any] | None, seconds: float | None) -> list[tuple[str, str]]:
    facts = []
    if run is not None:
        offset = f", seeds moved by {run['seed_offset']}" if run["seed_offset"] else ""
        facts.append(("Profile", f"{run['profile']}{offset}"))
        facts.append(("Device", run["device"]))
        facts.append(("Versions", _versions(run["versions"])))
        facts.append(("Date", run["date"][:10]))
        seconds = run["seconds"] if seconds is None else seconds
    if seconds is not None:
        facts.append(("Time", f"{number_text(seconds, '.0f')} s"))
    return facts


def _versions(versions: Mapping[str, str]) -> str:
    order = [name for name in _NAMES if name in versions]
    order += sorted(versions.keys() - _NAMES.keys())
    return ", ".join(f"{_NAMES.get(name, name)} {versions[name]}" for name in order)


class FillRunsTable(SphinxPostTransform):
    """Put what every chapter ran on into the table."""

    default_priority = 10

    def run(self, **kwargs: object) -> None:
        """Replace each placeholder by a table of all executed pages."""
        for holder in list(self.document.findall(runs_table)):
            holder.replace_self(self._table())

    def _table(self) -> nodes.Node:
        body = nodes.tbody()
        for docname in sorted(self.env.found_docs):
            run = self.env.metadata.get(docname, {}).get(_RUN)
            if run is None:
                continue
            link = nodes.reference("", self.env.titles[docname].astext(), internal=True)
            link["refuri"] = self.app.builder.get_relative_uri(self.env.docname, docname)
            chapter = nodes.entry("", nodes.paragraph("", "", link))
            facts = nodes.entry()
            for term, text in run:
                facts += nodes.paragraph("", "", nodes.strong("", f"{term}: "), nodes.Text(text))
            body += nodes.row("", chapter, facts)
        if not body.children:
            return nodes.paragraph("", "No chapter has run yet.")
        header = nodes.row()
        for title in ("Chapter", "Ran on"):
            header += nodes.entry("", nodes.paragraph("", title))
        columns = [nodes.colspec(colwidth=30), nodes.colspec(colwidth=70)]
        group = nodes.tgroup("", *columns, nodes.thead("", header), body, cols=2)
        return nodes.table("", group, classes=["runs-table"])


def _keep_run(app: Sphinx, doctree: nodes.document) -> None:
    if room := room_of(app.env) if doctree.settings is not None else None:
        app.env.metadata[app.env.docname][_RUN] = facts(judged(app.env, room))
        return
    page = page_of(app.env, doctree)
    if page.notebook is None:
        return
    run = payloads_of(app.env, doctree)["run"]
    if run is None:  # cells that only show something
        app.env.metadata[app.env.docname].pop(_RUN, None)
        return
    app.env.metadata[app.env.docname][_RUN] = _facts(run, page.seconds)


def _remember_read(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    env.measured_pages_read = list(docnames)  # type: ignore[attr-defined]


def _write_tables_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have pages with the table written again whenever a chapter was read again."""
    read = getattr(env, "measured_pages_read", [])
    if not any(_RUN in env.metadata.get(docname, {}) for docname in read):
        return []
    return [docname for docname in env.found_docs if _HAS_TABLE in env.metadata.get(docname, {})]


def setup(app: Sphinx) -> None:
    """Register the box and the table."""
    app.add_directive("ran", _Ran)
    app.add_directive("runs-table", _RunsTable)
    app.add_post_transform(FillRunsTable)
    app.connect("doctree-read", _keep_run)
    app.connect("env-before-read-docs", _remember_read)
    app.connect("env-updated", _write_tables_again)
