"""What the numbers of all chapters ran on, in one table: ``{runs-table}``."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from bookpress.sphinx.foot import facts
from bookpress.sphinx.nodes import runs_table
from bookpress.sphinx.rooms import judged, rooms_of

_RUN = "measured_run"
_HAS_TABLE = "measured_runs_table"


class _RunsTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname][_HAS_TABLE] = True
        return [runs_table()]


class FillRunsTable(SphinxPostTransform):
    """Put what every chapter ran on into the table."""

    default_priority = 10

    def run(self, **kwargs: object) -> None:
        """Replace each placeholder by a table of all pages that belong to a room."""
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
            return nodes.paragraph("", "No chapter has measured anything yet.")
        header = nodes.row()
        for title in ("Chapter", "Ran on"):
            header += nodes.entry("", nodes.paragraph("", title))
        columns = [nodes.colspec(colwidth=30), nodes.colspec(colwidth=70)]
        group = nodes.tgroup("", *columns, nodes.thead("", header), body, cols=2)
        return nodes.table("", group, classes=["runs-table"])


def _keep_run(app: Sphinx, doctree: nodes.document) -> None:
    if own := rooms_of(app.env) if doctree.settings is not None else []:
        found = facts(*(judged(app.env, room) for room in own))
        app.env.metadata[app.env.docname][_RUN] = found


def _remember_read(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    env.measured_pages_read = list(docnames)  # type: ignore[attr-defined]


def _write_tables_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have pages with the table written again whenever a chapter was read again."""
    read = getattr(env, "measured_pages_read", [])
    if not any(_RUN in env.metadata.get(docname, {}) for docname in read):
        return []
    return [docname for docname in env.found_docs if _HAS_TABLE in env.metadata.get(docname, {})]


def setup(app: Sphinx) -> None:
    """Register the table."""
    app.add_directive("runs-table", _RunsTable)
    app.add_post_transform(FillRunsTable)
    app.connect("doctree-read", _keep_run)
    app.connect("env-before-read-docs", _remember_read)
    app.connect("env-updated", _write_tables_again)
