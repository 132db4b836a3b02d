"""The pages of the reference: each entry is made of the code and docstring of what it describes.

Sphinx's autodoc collects them. Here its entries get signatures as the source writes them (shapes
included), docstrings whose mathematics and names it understands, and a table of what a page holds.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject  # type: ignore[attr-defined]
from sphinx.ext import viewcode
from sphinx.util.docutils import SphinxDirective

from bookpress.sphinx.docstrings import Names, Scope, as_rst, one_by_one, read_names

PACKAGES = ("measured_transformer", "measured_book")
ROOMS = "rooms"
"""The package whose packages, the rooms, have no entries: each serves its chapter alone."""
_BEFORE_NAPOLEON, _AFTER_NAPOLEON = 400, 600
_COLON = "\ue000"
_ARGUMENTS = re.compile(r"\s*<dl>\n(<dd>.*?)</dl>\s*", re.DOTALL)
_SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', re.DOTALL)
_UNSEEN = re.compile(r'<span class="(?:p|w|pre)">([^<]*)</span>')
_PATHS = re.compile(r"(?:\b[a-z_]\w*\.)+(?=[A-Z])")
_SIMPLE = (type(None), bool, int, float, str, tuple)


@functools.cache
def names() -> Names:
    """The public names of the library and of the laboratory, its rooms left out."""
    return read_names(*map(_folder, PACKAGES), without=ROOMS)


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise RuntimeError(f"expected the package {package}, got none; install it with pip")
    return Path(found.origin).parent


# Docstrings -------------------------------------------------------------------------------------


def hide_colon(
    app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]
) -> None:
    """Keep Napoleon from taking what stands before the first colon for the type of a property."""
    if what in ("property", "attribute", "data") and lines:
        lines[0] = lines[0].replace(":", _COLON)


def rewrite_docstring(
    app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]
) -> None:
    """Turn a docstring's mathematics and names into markup, and say what a class derives from."""
    if not name.startswith(PACKAGES):
        return
    scope = names().scope(name, _arguments(item))
    lines[:] = [line.replace(_COLON, ":") for line in one_by_one(lines)]
    lines[:] = as_rst(lines, names(), scope)
    if what == "module" and name.count(".") > 1:
        lines[:0] = [".. container:: where", "", f"   ``{name}``", ""]
    first = (inspect.getdoc(item) or "").partition("\n")[0]
    if what == "class" and first and lines and lines[0].split() == first.split():
        bases = [base for base in item.__bases__ if base.__name__ in ("Module", "Protocol")]
        bases += [base for base in item.__bases__ if _full_name(base) in names().kinds]
        lines += ["", f"Base: {', '.join(map(_link, bases))}.", ""] if bases else []


def _arguments(item: Any) -> list[str]:
    try:
        return list(inspect.signature(item).parameters)
    except (TypeError, ValueError):  # no callable, or one without a signature
        return []


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _link(cls: type) -> str:
    full = _full_name(cls)
    if full in names().kinds:
        return f":py:obj:`{cls.__name__} <{full}>`"
    return "``torch.nn.Module``" if cls.__name__ == "Module" else f"``{full}``"


# Signatures -------------------------------------------------------------------------------------


def rewrite_signature(
    app: Sphinx, what: str, name: str, item: Any, options: Any, signature: str | None, returns: Any
) -> tuple[str, str | None] | None:
    """Write a signature with the annotations of the source, in which the library's names are links.

    Autodoc would evaluate the annotations, and lose the words of a shape and the names of aliases.
    """
    if not signature or not name.startswith(PACKAGES):
        return None
    try:
        found = inspect.signature(item)
    except (TypeError, ValueError):
        return None
    scope = names().scope(name)
    parameters = [
        parameter.replace(
            annotation=_annotation(parameter.annotation, scope), default=_default(parameter.default)
        )
        for number, parameter in enumerate(found.parameters.values())
        if number or parameter.name != "self"
    ]
    result = found.return_annotation
    shown = found.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    if what in ("class", "exception") or result is inspect.Signature.empty:
        return str(shown), None
    return str(shown), str(_annotation(result, scope))


class _Source:
    """A piece of source code, shown as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty or isinstance(value, _SIMPLE):
        return value
    name = getattr(value, "__name__", None)
    return _Source(name if isinstance(name, str) and name.isidentifier() else "...")


def _annotation(annotation: Any, scope: Scope) -> Any:
    """Return an annotation with the library's names in full, marked to be shown short."""
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else _spoken(annotation)

    class Full(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            full = names().meanings.get(scope.module, {}).get(node.id)
            if full not in names().kinds:
                return node
            return ast.UnaryOp(ast.Invert(), ast.parse(full, mode="eval").body)

        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            # the sign that shortens a name belongs before all of it, not before its module
            value = self.visit(node.value)
            if not isinstance(value, ast.UnaryOp):
                return node
            inside = ast.Attribute(value.operand, node.attr, ast.Load())
            return ast.UnaryOp(ast.Invert(), inside)

    return _Source(ast.unparse(Full().visit(ast.parse(text, mode="eval"))))


def _spoken(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


# Pages ------------------------------------------------------------------------------------------


class names_table(nodes.General, nodes.Element):  # noqa: N801
    """The place of the table of all names on the page; filled in when the page is read."""


class NamesDirective(SphinxDirective):
    """``{names}``: a table of the functions and classes that the page describes."""

    def run(self) -> list[nodes.Node]:
        """Mark the place."""
        return [names_table()]


def finish_page(app: Sphinx, doctree: nodes.document) -> None:
    """Fill in the table of names, and link in entries only what has an entry of its own."""
    for entry in doctree.findall(addnodes.desc):
        for reference in list(entry.findall(addnodes.pending_xref)):
            if reference.get("refdomain") != "py":
                continue
            if reference["reftarget"].partition(".")[0] in PACKAGES:
                reference["reftype"] = "obj"  # an annotation may name an alias, which is no class
            else:
                reference.replace_self(reference.children)
    for section in doctree.findall(nodes.section):
        _put_aliases_last(section)
    for place in list(doctree.findall(names_table)):
        place.replace_self(_table(doctree))
    _adopt(doctree)


def _adopt(doctree: nodes.document) -> None:
    """Make every node a node of this page.

    Those that `eval-rst` makes name a document of its own, and that one names the build's environment: stored
    with the page, it would be everything that is known of all pages.
    """
    for node in doctree.findall():
        if node.document is not doctree:
            node.document = doctree


def _put_aliases_last(section: nodes.section) -> None:
    """Move a module's constants and type aliases behind what they serve, and write them short."""
    aliases = [
        node
        for node in section.children
        if isinstance(node, addnodes.desc) and node["objtype"] == "data"
    ]
    for alias in aliases:
        section.remove(alias)
        section.append(alias)
        for shown in alias.findall(addnodes.desc_annotation):
            text = _PATHS.sub("", shown.astext())
            shown[:] = [nodes.Text(text)]


def _table(doctree: nodes.document) -> nodes.table:
    body = nodes.tbody()
    for section in doctree.findall(nodes.section):
        entries = [node for node in section.children if isinstance(node, addnodes.desc)]
        if not entries:
            continue
        body += nodes.row(
            "",
            nodes.entry("", nodes.paragraph("", "", _to(section["ids"][0], section[0].astext())),
                        morecols=1),
            classes=["names-part"],
        )  # fmt: skip
        for entry in entries:
            for signature in entry.findall(addnodes.desc_signature):
                if signature.parent is entry and signature["ids"]:
                    name = nodes.literal("", signature["fullname"])
                    link = _to(signature["ids"][0], "", name)
                    body += nodes.row(
                        "",
                        nodes.entry("", nodes.paragraph("", "", link)),
                        nodes.entry("", nodes.paragraph("", "", *_first_sentence(entry))),
                    )
    group = nodes.tgroup("", nodes.colspec(colwidth=1), nodes.colspec(colwidth=2), body, cols=2)
    return nodes.table("", group, classes=["names-table"])


def _to(anchor: str, text: str, *inner: nodes.Node) -> nodes.reference:
    return nodes.reference("", text, *inner, refid=anchor, internal=True)


def _first_sentence(entry: addnodes.desc) -> Iterator[nodes.Node]:
    """The first sentence of an entry's description, with its mathematics, code and links."""
    for paragraph in entry.findall(nodes.paragraph):
        for node in paragraph.children:
            if isinstance(node, nodes.Text):
                head, stop, _ = node.astext().replace("\n", " ").partition(". ")
                yield nodes.Text(head + stop.strip())
                if stop:
                    return
            else:
                yield node.deepcopy()
        return


def _file_of(app: Sphinx, module: str) -> str | None:
    """Where a module's source lies; viewcode would import each module of the library to find out."""
    path = _folder(module.partition(".")[0]).parent.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((str(file) for file in files if file.is_file()), None)


def mend_signatures(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Make lines of a signature's arguments; Sphinx writes them as a list that defines nothing.

    Marks that no style shows go, which are half of a signature.
    """
    if doctree is None or not any(doctree.findall(addnodes.desc)):
        return

    def lines(found: re.Match[str]) -> str:
        inner = found[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
        return f'<span class="sig-lines">{inner}</span>'

    def spared(found: re.Match[str]) -> str:
        return _UNSEEN.sub(r"\1", _UNSEEN.sub(r"\1", found[0]))  # one mark may stand in another

    context["body"] = _SIGNATURE.sub(spared, _ARGUMENTS.sub(lines, context["body"]))


def _rename_attributes() -> None:
    """Head the list of a class's attributes with the word that its docstring uses."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"


def setup(app: Sphinx) -> None:
    """Connect to autodoc, and add the table."""
    connect: Callable[..., int] = app.connect
    app.setup_extension("sphinx.ext.autodoc")
    connect("autodoc-process-docstring", hide_colon, priority=_BEFORE_NAPOLEON)
    connect("autodoc-process-docstring", rewrite_docstring, priority=_AFTER_NAPOLEON)
    connect("autodoc-process-signature", rewrite_signature)
    connect("doctree-read", finish_page, priority=100)
    connect("html-page-context", mend_signatures)
    app.add_directive("names", NamesDirective)
    app.add_node(names_table)
    viewcode.get_module_filename = _file_of  # type: ignore[assignment]
    _rename_attributes()
