"""The table of contents beside each page, made of titles alone.

The theme asks Sphinx for the titles of all pages, once a page. Sphinx copies every page's whole outline
for that, each heading and each entry of the reference, and throws all but the titles away. Here it is given
outlines that hold nothing else to begin with.

Pages with a module's source stand in no table of contents, so the one beside them is the same for all that lie
as deep, and is made once.

The list of a page's headings that is for paper holds the first ones alone, as paper shows them: in the
reference all of them are a tenth of a page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bs4 import Tag
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders import Builder

_TITLES = "measured_titles"
_SOURCES = "_modules"
"""The folder of the pages with modules' sources, which holds no other pages."""
_BESIDE = "measured_beside_sources"


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
    del pagename, templatename, doctree
    if "toctree" in context:
        context["toctree"] = _from_titles(app.builder, context["toctree"])


def _from_titles(builder: Builder, make: Callable[..., str]) -> Callable[..., str]:
    def toctree(**settings: Any) -> str:
        if not settings.get("titles_only"):
            return make(**settings)
        env = builder.env
        titles = _titles(builder)
        whole, env.tocs = env.tocs, titles
        try:
            return make(**settings)
        finally:
            env.tocs = whole

    return toctree


def _titles(builder: Builder) -> dict[str, nodes.bullet_list]:
    """The titles of all pages, made once for each builder; outlines are complete by then."""
    found: dict[str, nodes.bullet_list] | None = getattr(builder, _TITLES, None)
    if found is None:
        found = titles_of(builder.env.tocs)
        setattr(builder, _TITLES, found)
    return found


def first_headings(headings: Any) -> str:
    """Return a page's list of headings, as the theme makes it, without those inside of others.

    Args:
        headings: the list or what holds it, as elements of Beautiful Soup; or nothing.
    """
    if not isinstance(headings, Tag):
        return ""
    whole = headings if headings.name == "ul" else headings.find("ul")
    if not isinstance(whole, Tag):
        return ""
    links = (item.find("a", recursive=False) for item in whole.find_all("li", recursive=False))
    items = "".join(f"<li>{link}</li>" for link in links if link is not None)
    return f'<ul class="section-nav">{items}</ul>' if items else ""


def _give_first_headings(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Let the page's template ask for the first headings, where the theme knows headings."""
    del app, pagename, templatename, doctree
    all_of_them = context.get("generate_toc_html")
    if all_of_them is not None:
        context["first_headings"] = lambda: first_headings(all_of_them())


def _share_beside_sources(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Let pages with sources that lie as deep as one another share the table of contents beside them."""
    del templatename, doctree
    make = context.get("generate_toctree_html")
    if make is not None and pagename.split("/")[0] == _SOURCES:
        known: dict[Any, str] = app.builder.__dict__.setdefault(_BESIDE, {})
        context["generate_toctree_html"] = shared(make, known, pagename.count("/"))


def shared(make: Callable[..., Any], known: dict[Any, str], depth: int) -> Callable[..., str]:
    """Return what gives the text that `make` makes, made once for each depth and each set of arguments.

    Args:
        make: makes the table of contents.
        known: what was made before.
        depth: of the page's folder: the links are relative.
    """

    def toctree(*arguments: Any, **settings: Any) -> str:
        key = (depth, arguments, *sorted(settings.items()))
        if key not in known:
            known[key] = str(make(*arguments, **settings))
        return known[key]

    return toctree


def setup(app: Sphinx) -> None:
    """Connect before the theme, which makes the table of contents with what it finds, and after it."""
    app.connect("html-page-context", give_titles, priority=100)
    app.connect("html-page-context", _give_first_headings, priority=700)
    app.connect("html-page-context", _share_beside_sources, priority=700)
