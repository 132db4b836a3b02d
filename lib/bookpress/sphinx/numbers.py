"""Numbers of chapters, figures and tables, without loading pages again for them.

To number figures, Sphinx loads and walks every page, also where one page changed; to put a number into a
reference, it loads the page that holds the figure. Here the little of each page that this needs is kept: its
sections, its tables of contents, and what has a number, as long as the page is not read again.

Chapters are numbered by Sphinx, through all numbered parts; the page that opens a part is passed over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from docutils import nodes
from sphinx import addnodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment
from sphinx.environment.collectors.toctree import TocTreeCollector

from bookpress.chapters import is_part_page

_KEPT = "bookpress_bones"


@dataclass(frozen=True)
class Bones:
    """What numbering looks at: nodes as in the page, in their order, and those that have an id by it."""

    children: list[nodes.Node]
    ids: dict[str, nodes.Node]


def bones_of(env: BuildEnvironment, docname: str) -> Bones:
    """The bones of a page; the page is loaded for them once after it was read."""
    known: dict[str, Bones] = env.__dict__.setdefault(_KEPT, {})
    if docname not in known:
        doctree = type(env).get_doctree(env, docname)
        places: dict[int, nodes.Node] = {}
        children = _bones(env, doctree, places)
        ids: dict[str, nodes.Node] = {}
        for bone in (one for child in children for one in child.findall()):
            bone.document = None  # type: ignore[assignment]  # the whole page would hang on it
            # by the id that it has: a page may list under it what a transform put this in the place of
            ids |= dict.fromkeys(bone["ids"] if isinstance(bone, nodes.Element) else (), bone)
        ids |= {name: places[id(node)] for name, node in doctree.ids.items() if id(node) in places}
        known[docname] = Bones(children, ids)
    return known[docname]


def _bones(
    env: BuildEnvironment, node: nodes.Element, places: dict[int, nodes.Node]
) -> list[nodes.Node]:
    found: list[nodes.Node] = []
    for child in node.children:
        if not isinstance(child, nodes.Element):
            continue
        bone: nodes.Element | None = None
        if isinstance(child, addnodes.toctree):
            bone = child.copy()
        elif isinstance(child, nodes.section | nodes.figure | nodes.table):
            bone = child.copy()
            if not isinstance(child, nodes.section):
                heads = (nodes.caption, nodes.title)
                bone.extend(one.deepcopy() for one in child.children if isinstance(one, heads))
            bone.extend(_bones(env, child, places))
        elif any(domain.get_enumerable_node_type(child) for domain in env.domains.values()):
            bone = child.deepcopy()
        else:
            found += _bones(env, child, places)
        if bone is not None:
            places[id(child)] = bone
            found.append(bone)
    return found


def _forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    del app
    env.__dict__.get(_KEPT, {}).pop(docname, None)


def _from_bones(number: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Let Sphinx number figures by looking at bones where it would load pages."""

    @functools.wraps(number)
    def numbered(self: TocTreeCollector, env: BuildEnvironment) -> list[str]:
        env.get_doctree = functools.partial(bones_of, env)  # type: ignore[method-assign,assignment]
        try:
            return number(self, env)
        finally:
            del env.get_doctree

    return numbered


def _past_part_pages(number: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Let chapters be numbered as if no part had a page of its own."""

    @functools.wraps(number)
    def numbered(self: TocTreeCollector, env: BuildEnvironment) -> list[str]:
        def without(docname: str) -> nodes.document:
            doctree = type(env).get_doctree(env, docname)
            for contents in doctree.findall(addnodes.toctree):
                if contents.get("numbered"):
                    entries = contents["entries"]
                    contents["entries"] = [one for one in entries if not is_part_page(str(one[1]))]
            return doctree

        env.get_doctree = without  # type: ignore[method-assign]
        try:
            return number(self, env)
        finally:
            del env.get_doctree

    numbered.passes_over_part_pages = True  # type: ignore[attr-defined]
    return numbered


def _pass_over_part_pages(app: Sphinx) -> None:
    """Do so when all extensions are loaded: one of them brings the numbering through all parts."""
    del app
    number = TocTreeCollector.assign_section_numbers
    if not hasattr(number, "passes_over_part_pages"):
        TocTreeCollector.assign_section_numbers = _past_part_pages(number)  # type: ignore[method-assign]


class _Reading:
    """A build environment whose pages are bones."""

    def __init__(self, env: BuildEnvironment) -> None:
        self._env = env
        self.get_doctree = functools.partial(bones_of, env)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class Standard(StandardDomain):
    """Sphinx's standard domain, with quicker references to numbers."""

    def resolve_xref(
        self,
        env: BuildEnvironment,
        fromdocname: str,
        builder: Builder,
        typ: str,
        target: str,
        node: pending_xref,
        contnode: nodes.Element,
    ) -> nodes.Element | None:
        """Resolve a reference as Sphinx does."""
        if typ == "numref":
            docname, label = (self.labels.get(target) or self.anonlabels.get(target, ("", "")))[:2]
            if docname and label in bones_of(env, docname).ids:
                env = cast("BuildEnvironment", _Reading(env))
        return super().resolve_xref(env, fromdocname, builder, typ, target, node, contnode)


def setup(app: Sphinx) -> None:
    """Take the place of the standard domain and of the numbering of figures."""
    app.add_domain(Standard, override=True)
    app.connect("env-purge-doc", _forget)
    app.connect("builder-inited", _pass_over_part_pages)
    if not hasattr(TocTreeCollector.assign_figure_numbers, "__wrapped__"):
        number = _from_bones(TocTreeCollector.assign_figure_numbers)
        TocTreeCollector.assign_figure_numbers = number  # type: ignore[method-assign]
