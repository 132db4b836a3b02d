"""The table of contents from titles alone is the one that Sphinx makes of whole outlines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from bookpress.sphinx.navigation import first_headings, give_titles, shared, titles_of
from bs4 import BeautifulSoup
from docutils import nodes
from sphinx import addnodes
from sphinx.environment.adapters.toctree import global_toctree_for_doc


def outline(name: str, *inner: nodes.Element) -> nodes.bullet_list:
    """A page's outline as Sphinx collects it: its title, and below it what stands on the page."""
    link = nodes.reference("", "", nodes.Text(name), refuri=name, anchorname="", internal=True)
    item = nodes.list_item("", addnodes.compact_paragraph("", "", link))
    if inner:
        item += nodes.bullet_list("", *inner)
    return nodes.bullet_list("", item)


def heading(page: str, name: str) -> nodes.list_item:
    link = nodes.reference("", "", nodes.Text(name), refuri=page, anchorname=f"#{name}")
    return nodes.list_item("", addnodes.compact_paragraph("", "", link))


def contents(*pages: str, **settings: Any) -> addnodes.toctree:
    entries = [(None, page) for page in pages]
    return addnodes.toctree("", parent="index", entries=entries, **settings)


def environment() -> Any:
    """What Sphinx's table of contents asks of an environment: four pages, one of them below another."""
    main = nodes.document(None, None)  # type: ignore[arg-type]
    main += contents("one", "two", caption="Part", rawcaption="Part")
    main += contents("three")
    below = contents("four")
    tocs = {
        "one": outline("one", heading("one", "first"), heading("one", "second")),
        "two": outline("two", heading("two", "other"), below),
        "three": outline("three"),
        "four": outline("four", heading("four", "deep")),
    }
    return SimpleNamespace(
        master_doctree=main,
        tocs=tocs,
        metadata={name: {} for name in tocs},
        toctree_includes={"index": ["one", "two", "three"], "two": ["four"]},
        config=SimpleNamespace(include_patterns=["**"], exclude_patterns=[]),
    )


BUILDER = {"get_relative_uri": lambda self, start, end: f"{start}>{end}", "tags": None}


def table(env: Any, page: str) -> str:
    builder = type("Builder", (), BUILDER)()
    made = global_toctree_for_doc(env, page, builder, titles_only=True)
    assert made is not None
    return made.pformat()


def test_titles_give_the_same_table_of_contents_on_every_page() -> None:
    for page in ("one", "two", "three", "four", "elsewhere"):
        whole, titles = environment(), environment()
        titles.tocs = titles_of(titles.tocs)
        assert table(titles, page) == table(whole, page)
        assert "first" not in table(titles, page)
        assert "four" in table(titles, page), "a page below another was lost"


def test_outlines_themselves_stay_whole() -> None:
    env = environment()
    before = {name: toc.pformat() for name, toc in env.tocs.items()}
    shortened = titles_of(env.tocs)
    assert "first" in before["one"]
    assert "first" not in shortened["one"].pformat()
    assert {name: toc.pformat() for name, toc in env.tocs.items()} == before


def test_a_page_that_wants_headings_gets_them() -> None:
    env = environment()
    whole = env.tocs
    seen = []

    def make(**settings: Any) -> str:
        seen.append(env.tocs is whole)
        if settings.get("fails"):
            raise ValueError("no such page")
        return "made"

    env.all_docs = set(env.tocs)
    app: Any = SimpleNamespace(builder=SimpleNamespace(env=env))
    context: dict[str, Any] = {"toctree": make}
    give_titles(app, "one", "page.html", context, None)
    assert context["toctree"](maxdepth=2) == context["toctree"](titles_only=True) == "made"
    assert seen == [True, False]
    with pytest.raises(ValueError, match="no such page"):
        context["toctree"](titles_only=True, fails=True)
    assert env.tocs is whole
    empty: dict[str, Any] = {}
    give_titles(app, "search", "search.html", empty, None)
    assert empty == {}


HEADINGS = """<ul class="nav"><li class="toc-h2"><a class="nav-link" href="#one">One</a>
<ul><li><a href="#inner">Inner</a></li></ul></li><li><a href="#two">Two <code>f</code></a></li></ul>"""


def test_paper_gets_the_first_headings_of_a_page() -> None:
    whole = BeautifulSoup(HEADINGS, "html.parser")
    for given in (whole, whole.ul):
        made = BeautifulSoup(first_headings(given), "html.parser")
        assert [link["href"] for link in made.select("ul.section-nav > li > a")] == ["#one", "#two"]
        assert made.get_text() == "OneTwo f"
    assert whole.select("a[href='#inner']"), "the list beside the page stays whole"


def test_a_page_without_headings_has_none_on_paper() -> None:
    assert first_headings("") == first_headings(None) == ""
    assert first_headings(BeautifulSoup("", "html.parser")) == ""


def test_what_is_beside_pages_with_sources_is_made_once_for_each_depth() -> None:
    asked = []

    def make(*arguments: Any, **settings: Any) -> BeautifulSoup:
        asked.append((arguments, settings))
        return BeautifulSoup(f"<ul><li>{len(asked)}</li></ul>", "html.parser")

    known: dict[Any, str] = {}
    first = shared(make, known, 1)("sidebar", titles_only=True)
    assert first == "<ul><li>1</li></ul>"
    assert shared(make, known, 1)("sidebar", titles_only=True) == first
    assert shared(make, known, 2)("sidebar", titles_only=True) == "<ul><li>2</li></ul>"
    assert shared(make, known, 1)("sidebar", titles_only=False) == "<ul><li>3</li></ul>"
    assert shared(make, known, 1)("raw", titles_only=True) == "<ul><li>4</li></ul>"
