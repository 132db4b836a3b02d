"""The table of contents beside each page, made of titles alone.

The theme asks Sphinx for the titles of all pages, once a page. Sphinx copies every page's whole outline
for that, each heading and each entry of the reference, and throws all but the titles away. Here it is given
outlines that hold nothing else to begin with. Pages that have no place in the table, such as those of the
library's source, share it with the others of their folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders import Builder

_PRINT = "measured_print"


def titles_of(outlines: Mapping[str, nodes.bullet_list]) -> dict[str, nodes.bullet_list]:
    """Return each page's outline without the headings inside the page.

    An outline that holds tables of contents of its own stays whole, since those lead to further pages.
    """
    return {
        name: outline if _leads_on(outline) else _first_level(outline)
        for name, outline in outlines.items()
    }


def _leads_on(outline: nodes.Element) -> bool:
    return next(iter(outline.findall(addnodes.toctree)), None) is not None


def _first_level(outline: nodes.bullet_list) -> nodes.bullet_list:
    kept = outline.copy()
    for item in outline.children:
        entry = item.copy()
        if isinstance(item, nodes.Element) and isinstance(entry, nodes.Element):
            entry.extend([c.deepcopy() for c in item if not isinstance(c, nodes.bullet_list)])
        kept.append(entry)
    return kept


def give_titles(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Let the page's template make its table of contents from titles where it wants titles only."""
    del templatename, doctree
    if "toctree" in context:
        folder = None if pagename in app.builder.env.all_docs else pagename.rpartition("/")[0]
        context["toctree"] = _from_titles(app.builder, context["toctree"], folder)


def _from_titles(
    builder: Builder, make: Callable[..., str], folder: str | None
) -> Callable[..., str]:
    """Wrap a page's `toctree`; `folder` is that of a page outside the table, which shares it."""

    def toctree(**settings: Any) -> str:
        if not settings.get("titles_only"):
            return make(**settings)
        prints = _prints(builder)
        key = (folder, *sorted(settings.items()))
        if folder is None or key not in prints.shared:
            env = builder.env
            whole, env.tocs = env.tocs, prints.titles
            try:
                prints.shared[key] = make(**settings)
            finally:
                env.tocs = whole
        return prints.shared[key]

    return toctree


@dataclass
class _Print:
    """What one print of all pages has in common: titles, and tables of contents that pages share."""

    titles: dict[str, nodes.bullet_list]
    shared: dict[tuple[Any, ...], str] = field(default_factory=dict)


def _prints(builder: Builder) -> _Print:
    """The print that a builder makes; it makes one only, and outlines are complete by then."""
    found: _Print | None = getattr(builder, _PRINT, None)
    if found is None:
        found = _Print(titles_of(builder.env.tocs))
        setattr(builder, _PRINT, found)
    return found


def setup(app: Sphinx) -> None:
    """Connect before the theme, which makes the table of contents with what it finds."""
    app.connect("html-page-context", give_titles, priority=100)
