"""Each page's notebook: the page's text as plain Markdown, and its code, without outputs.

The notebook is written from the document tree of the HTML page, at the moment that page is
written: references, citations, measured values and claims are resolved there already, and nothing
is read a second time. It needs the installed library, with the extras that its first cell names, and nothing
else of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urljoin

import nbformat as _nbformat
from docutils import nodes
from nbformat import NotebookNode
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookpress.extras import alone_of, extras_of, requirements_of
from bookpress.first_cell import first_cell
from bookpress.sphinx.editions import edition_in
from bookpress.sphinx.nodes import (
    NOTEBOOKS,
    cite_box,
    claim_line,
    data_link,
    measured_value,
    notebook_link,
    ran_line,
)
from bookpress.sphinx.rooms import rooms_of

nbformat: Any = _nbformat  # it has no types of its own

_AFTER_THE_THEME = 900
_CHECKS = re.compile(r"^from measured_book(\.exercises)? import (.*, )?check\b", re.MULTILINE)


# The document tree as Markdown ------------------------------------------------------------------


@dataclass
class Writer:
    """Turns a page's document tree into the cells of a notebook.

    Attributes:
        code: cell index -> source of the executed notebook's code cells.
        base: address under which the book is published; "" where it is not.
        docname: the page.
        numbers: id of a figure, table or exercise -> its number on the page.
        cells: what has been written so far.
    """

    code: Mapping[int, str]
    base: str = ""
    docname: str = ""
    numbers: Mapping[str, str] = field(default_factory=dict)
    cells: list[NotebookNode] = field(default_factory=list)
    _blocks: list[str] = field(default_factory=list)
    _next_code: int = -1

    def write(self, tree: nodes.Element) -> list[NotebookNode]:
        """Return the cells for a whole page."""
        self._walk(tree, depth=0)
        self._flush()
        self._code_before(max(self.code, default=-1) + 1)
        return self.cells

    # Blocks -----------------------------------------------------------------

    def _walk(self, node: nodes.Node, depth: int) -> None:
        """Write a node at the top level, where code cells can interrupt the text."""
        if isinstance(node, nodes.section):
            for child in node.children:
                if isinstance(child, nodes.title):
                    self._blocks.append(f"{'#' * (depth + 1)} {self.inline(child)}")
                else:
                    self._walk(child, depth + 1)
        elif _element(node) == "cell_code":
            self._code_cell(cast(nodes.container, node), depth)
        elif isinstance(node, nodes.Element) and _holds_cells(node):
            for child in node.children:
                if isinstance(child, nodes.title):
                    self._blocks.append(f"**{self.inline(child).strip()}**")
                else:
                    self._walk(child, depth)
        elif isinstance(node, nodes.Element) and _is_exercise(node):
            self._exercise(node)
        else:
            self._blocks += self.block(node)

    def _exercise(self, node: nodes.Element) -> None:
        """Write an exercise; the code that it begins with becomes a cell to go on from."""
        rest = node.deepcopy()
        starts = [block for block in rest.findall(nodes.literal_block) if _is_start(block)]
        for block in starts:
            block.parent.remove(block)
        self._blocks += self.block(rest)
        for block in starts:
            self._flush()
            self.cells.append(nbformat.v4.new_code_cell(block.astext().rstrip()))

    def _code_cell(self, node: nodes.container, depth: int) -> None:
        index = int(node["cell_index"])
        self._code_before(index)
        self._add_code(index)
        for figure in node.findall(nodes.figure):
            self._blocks += self.block(figure)

    def _code_before(self, index: int) -> None:
        """Add the cells that the page hides: what follows may need them."""
        for hidden in sorted(self.code):
            if self._next_code <= hidden < index:
                self._add_code(hidden)

    def _add_code(self, index: int) -> None:
        self._flush()
        self._next_code = index + 1
        if self.code.get(index, "").strip():
            self.cells.append(nbformat.v4.new_code_cell(self.code[index].rstrip()))

    def _flush(self) -> None:
        text = "\n\n".join(block for block in self._blocks if block.strip())
        if text:
            self.cells.append(nbformat.v4.new_markdown_cell(text))
        self._blocks = []

    def block(self, node: nodes.Node) -> list[str]:
        """Return the Markdown blocks of a node."""
        if isinstance(node, _SILENT):
            return []
        for kind, write in _BLOCKS:
            if isinstance(node, kind):
                return write(self, cast(Any, node))
        if isinstance(node, (nodes.Inline, nodes.Text, nodes.reference)):
            return [self.inline(node)]
        return self.blocks(node)

    def number_of(self, node: nodes.Element) -> str:
        """Return the number that the page gives to a figure, table or exercise, or nothing."""
        return next((self.numbers[label] for label in node["ids"] if label in self.numbers), "")

    def blocks(self, node: nodes.Node) -> list[str]:
        """Return the Markdown blocks of a node's children."""
        return [text for child in node.children for text in self.block(child)]

    # Inline -----------------------------------------------------------------

    def inline(self, node: nodes.Node) -> str:
        """Return the Markdown of running text."""
        if isinstance(node, nodes.Text):
            return _escape(node.astext().replace("\n", " "))
        if isinstance(node, _SILENT):
            return ""
        if isinstance(node, nodes.math):
            return f"${node.astext()}$"
        if isinstance(node, nodes.literal):
            return f"`{node.astext()}`"
        inner = "".join(self.inline(child) for child in node.children)
        if isinstance(node, measured_value) and node.get("doubt"):
            return f"{inner} (does not hold now: {node['doubt']})"
        if isinstance(node, nodes.strong):
            return f"**{inner}**"
        if isinstance(node, nodes.emphasis):
            return f"*{inner}*"
        if isinstance(node, nodes.subscript):
            return f"<sub>{inner}</sub>"
        if isinstance(node, nodes.superscript):
            return f"<sup>{inner}</sup>"
        if isinstance(node, nodes.inline) and "verdict" in node["classes"]:
            return f"**{inner}**"
        if isinstance(node, nodes.reference):
            return self._reference(node, inner)
        return inner

    def _reference(self, node: nodes.reference, inner: str) -> str:
        address = node.get("refuri", "")
        if address.startswith(("http://", "https://", "mailto:")):
            return f"[{inner}]({address})"
        if self.base and address and not address.startswith("#"):
            return f"[{inner}]({urljoin(f'{self.base}/{self.docname}.html', address)})"
        return inner  # a place that a notebook cannot go to


def _element(node: nodes.Node) -> str:
    return str(node.get("nb_element", "")) if isinstance(node, nodes.Element) else ""


def _holds_cells(node: nodes.Element) -> bool:
    return any(_element(child) == "cell_code" for child in node.findall(nodes.container))


def _is_exercise(node: nodes.Element) -> bool:
    return isinstance(node, nodes.Admonition) and "exercise" in node["classes"]


def _is_start(block: nodes.literal_block) -> bool:
    """Return whether a block has an answer checked: what the reader writes goes there."""
    return block.get("language") == "python" and bool(_CHECKS.search(block.astext()))


def _escape(text: str) -> str:
    return re.sub(r"([*`$\\]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def _indent(text: str, first: str) -> str:
    rest = " " * len(first)
    return "\n".join(
        (first if number == 0 else rest) + line if line else ""
        for number, line in enumerate(text.split("\n"))
    )


def _quote(blocks: Iterable[str]) -> str:
    text = "\n\n".join(block for block in blocks if block.strip())
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _write_paragraph(writer: Writer, node: nodes.Element) -> list[str]:
    text = writer.inline(node).strip()
    return [text] if text else []


def _write_list(writer: Writer, node: nodes.Element) -> list[str]:
    ordered = isinstance(node, nodes.enumerated_list)
    items = []
    for number, item in enumerate(node.children, start=int(node.get("start", 1))):
        inner = _item(writer, item)
        items.append(_indent(inner, f"{number}. " if ordered else "- "))
    loose = any("\n\n" in item for item in items)
    return [("\n\n" if loose else "\n").join(items)]


def _item(writer: Writer, item: nodes.Node) -> str:
    """Return a list item; a list right after its first words stays tight."""
    kinds = [type(child) for child in item.children]
    tight = kinds[:1] == [nodes.paragraph] and set(kinds[1:]) <= {
        nodes.bullet_list,
        nodes.enumerated_list,
    }
    return ("\n" if tight else "\n\n").join(writer.blocks(item))


def _write_definitions(writer: Writer, node: nodes.Element) -> list[str]:
    items = []
    for item in node.children:
        term = next(iter(item.findall(nodes.term)), None)
        bodies = [text for d in item.findall(nodes.definition) for text in writer.blocks(d)]
        head = f"**{writer.inline(term)}**: " if term is not None else ""
        items.append(_indent(head + "\n\n".join(bodies), "- "))
    return ["\n".join(items)]


def _write_code(writer: Writer, node: nodes.Element) -> list[str]:
    language = str(node.get("language", ""))
    language = (
        "" if language in ("default", "none", "text") else language.replace("ipython3", "python")
    )
    fence = "```"
    return [f"{fence}{language}\n{node.astext().rstrip()}\n{fence}"]


def _write_math(writer: Writer, node: nodes.Element) -> list[str]:
    text = node.astext().strip()
    number = node.get("number")
    tag = f" \\tag{{{number}}}" if number else ""
    if node.get("nowrap"):
        return [text]
    aligned = "\\\\" in text and "\\begin{" not in text
    body = f"\\begin{{aligned}}{text}\\end{{aligned}}" if aligned else text
    return [f"$$\n{body}{tag}\n$$"]


def _write_quote(writer: Writer, node: nodes.Element) -> list[str]:
    return [_quote(writer.blocks(node))]


def _write_admonition(writer: Writer, node: nodes.Element) -> list[str]:
    children = list(node.children)
    title = type(node).__name__.capitalize()
    if children and isinstance(children[0], nodes.title):
        title = writer.inline(children.pop(0)).strip()
    number = writer.number_of(node)
    if number:
        title = f"{node.get('title', title)} {number} {title}".strip()
    folded = "dropdown" in node["classes"]
    inner = [text for child in children for text in writer.block(child)]
    if folded:
        body = "\n\n".join(inner)
        return [f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"]
    return [_quote([f"**{title}**", *inner])]


def _write_figure(writer: Writer, node: nodes.Element) -> list[str]:
    caption = next((child for child in node.children if isinstance(child, nodes.caption)), None)
    if caption is None:
        return []
    number = writer.number_of(node)
    head = f"**Figure {number}:** " if number else ""
    return [f"{head}{writer.inline(caption)}"]


def _write_image(writer: Writer, node: nodes.Element) -> list[str]:
    return [f"*({node['alt']})*"] if node.get("alt") else []


def _write_table(writer: Writer, node: nodes.Element) -> list[str]:
    rows = [
        [
            "<br>".join(writer.blocks(entry)).replace("\n\n", "<br>").replace("\n", "<br>")
            for entry in row.findall(nodes.entry)
        ]
        for row in node.findall(nodes.row)
    ]
    if not rows:
        return []
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return ["\n".join(f"| {' | '.join(line)} |" for line in lines)]


def _write_ran(writer: Writer, node: nodes.Element) -> list[str]:
    """Write what ran, without the ways to files that a notebook does not lie beside."""
    line = cast(nodes.paragraph, node.children[0]).deepcopy()
    for way in [
        child
        for child in line.children
        if isinstance(child, nodes.inline) and "way" in child["classes"]
    ]:
        line.remove(way)
    return _write_paragraph(writer, line)


def _write_rubric(writer: Writer, node: nodes.Element) -> list[str]:
    return [f"**{writer.inline(node)}**"]


def _write_transition(writer: Writer, node: nodes.Element) -> list[str]:
    return ["---"]


def _write_footnote(writer: Writer, node: nodes.Element) -> list[str]:
    label = next(iter(node.findall(nodes.label)), None)
    inner = [text for child in node.children if child is not label for text in writer.block(child)]
    mark = f"<sup>{label.astext()}</sup> " if label is not None else ""
    return [mark + "\n\n".join(inner)]


_SILENT = (
    cite_box,
    nodes.raw,
    nodes.comment,
    nodes.target,
    nodes.substitution_definition,
    nodes.system_message,
    nodes.label,
    addnodes.index,
    addnodes.toctree,
    nodes.legend,
    notebook_link,
    data_link,
)

Write = Callable[[Writer, Any], list[str]]


_BLOCKS: list[tuple[type | tuple[type, ...], Write]] = [
    ((nodes.paragraph, nodes.line, nodes.caption), _write_paragraph),
    ((nodes.bullet_list, nodes.enumerated_list), _write_list),
    (nodes.definition_list, _write_definitions),
    (nodes.literal_block, _write_code),
    (nodes.math_block, _write_math),
    ((nodes.block_quote, claim_line), _write_quote),
    (nodes.Admonition, _write_admonition),
    (nodes.figure, _write_figure),
    (nodes.image, _write_image),
    (nodes.table, _write_table),
    (nodes.rubric, _write_rubric),
    (nodes.transition, _write_transition),
    (ran_line, _write_ran),
    ((nodes.footnote, nodes.citation), _write_footnote),
]


# The notebook of a page -------------------------------------------------------------------------


def offer_notebook(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Write the notebook of a page with cells, and point the buttons of its header to it."""
    env = app.env
    if doctree is None or "kernelspec" not in env.metadata.get(pagename, {}):
        return
    path = Path(app.outdir) / NOTEBOOKS / f"{pagename}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    notebook = page_notebook(app, pagename, doctree)
    path.write_text(nbformat.writes(notebook) + "\n", "utf-8")
    (Path(app.outdir) / "_sources" / f"{pagename}.ipynb").unlink(missing_ok=True)
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []):
            if button.get("label") == "download-notebook-button":
                button["url"] = context["pathto"](f"{NOTEBOOKS}/{pagename}.ipynb", 1)
            elif button.get("text") == "Colab":
                button["url"] = colab_address(app, pagename)


def colab_address(app: Sphinx, pagename: str) -> str:
    """Return where Colab opens a page's notebook: on the branch that the notebooks are pushed to."""
    colab = app.config.html_theme_options["launch_buttons"]["colab_url"].rstrip("/")
    owner, name = repository_of(app).rsplit("/", 2)[1:]
    branch = app.config.measured_notebooks_branch
    edition = edition_in(app).name
    return f"{colab}/github/{owner}/{name}/blob/{branch}/{edition}/{pagename}.ipynb"


def repository_of(app: Sphinx) -> str:
    """Return the address of the repository, as `_config.yml` has it."""
    return str(app.config.html_theme_options["repository_url"]).rstrip("/")


def page_notebook(app: Sphinx, docname: str, doctree: nodes.document) -> NotebookNode:
    """Return the notebook of a page, from the finished tree of its HTML page.

    Raises:
        FileNotFoundError: MyST-NB kept no notebook of this page; build without old pages then.
    """
    kept = Path(app.env.mystnb_config.output_folder) / f"{docname}.ipynb"  # type: ignore[attr-defined]
    source = nbformat.reads(kept.read_text("utf-8"), as_version=4)
    code = {
        index: cell.source for index, cell in enumerate(source.cells) if cell.cell_type == "code"
    }
    base = app.config.html_baseurl
    writer = Writer(code=code, base=base, docname=docname, numbers=_numbers(app.env, docname))
    cells = writer.write(doctree)
    install = _install_cell(app, docname, code.values())
    cells.insert(1 if cells and cells[0].cell_type == "markdown" else 0, install)
    references = _references(app.env, docname)
    if references:
        listed = "\n".join(f"- {reference}" for reference in references)
        cells.append(nbformat.v4.new_markdown_cell(f"## References\n\n{listed}"))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same each time, so that unchanged pages stay unchanged
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": python, "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def _install_cell(app: Sphinx, docname: str, code: Iterable[str]) -> NotebookNode:
    cells, own = list(code), rooms_of(app.env, docname)
    extras = extras_of(cells, *own)
    source = first_cell(
        requirements_of(extras),
        extras=",".join(extras),
        repository=repository_of(app),
        revision=edition_in(app).code_at,
        alone=alone_of(cells, *own),
    )
    return nbformat.v4.new_code_cell(source)


def _numbers(env: BuildEnvironment, docname: str) -> dict[str, str]:
    """Return the numbers that the page shows for its figures, tables and exercises, by their id."""
    return {
        label: ".".join(map(str, number))
        for kind in env.toc_fignumbers.get(docname, {}).values()
        for label, number in kind.items()
    }


def _references(env: BuildEnvironment, docname: str) -> list[str]:
    """Return what the page cites, each as a line of Markdown."""
    from pybtex.backends.plaintext import Backend
    from pybtex.style.formatting.plain import Style

    domain: Any = env.get_domain("cite")
    keys = {
        target.key
        for reference in domain.citation_refs
        if reference.docname == docname
        for target in reference.targets
    }
    entries = domain.bibdata.data.entries
    known = [entries[key] for key in sorted(keys) if key in entries]
    backend = Backend()
    return [
        _escape(entry.text.render(backend).replace("\n", " "))
        for entry in Style().format_entries(known)
    ]


def setup(app: Sphinx) -> None:
    """Have each page's notebook written beside the page."""
    app.add_config_value("measured_notebooks_branch", "notebooks", "html", str)
    app.connect("html-page-context", offer_notebook, priority=_AFTER_THE_THEME)
