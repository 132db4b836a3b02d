"""The front door on a tiny book: numbers and figures of another page, and the table of all chapters."""

from __future__ import annotations

import re

import pytest
import room_pages
import tiny_pages

ASKED = room_pages.PAGE.replace("\nmeasured:", "\nquestion: Which came *first*?\nmeasured:", 1)
TOC = """\
format: jb-book
root: index
parts:
- caption: Before you start
  chapters:
  - file: front
- caption: Positions
  numbered: 1
  chapters:
  - file: good
"""
FRONT = """\
# Front

Words that are added raise it to {measured}`some_room/floor:.2f`.

```{chapter-figure} good
:name: fig-one
```

```{chapters-table}
```
"""


def make(folder, page=ASKED, front=FRONT):
    book = room_pages.make(folder, page)
    book.write("_toc.yml", TOC)
    book.write("front.md", front)
    return book


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    book = make(tmp_path_factory.mktemp("front"))
    assert book.build() == []
    return book


def test_a_number_of_another_room_is_the_one_of_its_page(printed):
    number = printed.page("front").select_one("[data-measured]").get_text()
    assert number == printed.page("good").select_one("[data-measured='floor:.2f']").get_text()


def test_a_figure_of_another_page_is_its_own_drawing_in_both_themes(printed):
    here = printed.page("front").select(".chapter-figure img")
    there = printed.page("good").select("figure#fig-one img")
    assert [image["src"] for image in here] == [image["src"] for image in there]
    assert [set(image["class"]) & {"only-light", "only-dark"} for image in here] == [
        {"only-light"},
        {"only-dark"},
    ]
    assert all(image["alt"] for image in here)


def test_the_table_has_every_numbered_chapter_and_its_question(printed):
    rows = printed.page("front").select("table.chapters-table tbody tr")
    assert [row.get_text(" ", strip=True) for row in rows] == [
        "Positions",
        "1 Positional encoding Which came first ?",
    ]
    assert rows[1].select_one("a")["href"] == "good.html"


def test_what_is_missing_is_complained_of(printed, tmp_path):
    """A chapter without a question, a figure and a value that nobody has."""
    wrong = FRONT.replace("fig-one", "fig-none").replace("floor", "flour")
    book = make(tmp_path, room_pages.PAGE, wrong)
    found = "\n".join(book.build())
    assert "good.md asks no question" in found
    assert "good has no figure 'fig-none'" in found
    assert "flour" in found


def test_where_no_cell_runs_no_figure_is_missed(tmp_path):
    book = make(tmp_path)
    book.settings["nb_execution_mode"] = "off"
    assert not [line for line in book.build() if "[measured." in line]
    assert not book.page("front").select("img")


LIVE = f"""{tiny_pages.FRONT}
# A page with a viewer

```{{code-cell}} ipython3
---
mystnb:
  figure:
    caption: Two heads.
    name: fig-even
  image:
    alt: Two matrices of one shade.
---
import numpy as np
from measured_transformer.viewer.attention import attention_viewer

attention_viewer(np.full((1, 1, 2, 3, 3), 1 / 3), ["a", "b", "c"], title="Even heads")
```
"""
SHOWS = """\
# Front

```{chapter-figure} viewer
:name: fig-even
:live:
```
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    book = tiny_pages.make(tmp_path_factory.mktemp("live"))
    book.write("claims/none.toml", "")
    book.write("viewer.md", LIVE)
    book.write("front.md", SHOWS)
    assert book.build() == []
    return book


def test_a_viewer_of_another_page_stands_here_without_its_caption(shown):
    there = shown.page("viewer").select_one("figure#fig-even")
    here = shown.page("front").select_one(".chapter-viewer")
    assert here.select_one("script.av-data") == there.select_one("script.av-data")
    assert [i["src"] for i in here.select("img")] == [i["src"] for i in there.select("img")]
    assert there.select("figcaption")
    assert not here.select("figcaption, figure, [id=fig-even]")


def test_it_begins_when_a_reader_comes_near(shown, browser):
    text = (shown.root / "_build/html/front.html").read_text("utf-8")
    room = '<div style="height: 5000px"></div><div class="docutils container chapter-viewer">'
    far = shown.root / "_build/html/far.html"
    far.write_text(
        re.sub(r'<div class="chapter-viewer[^>]*>', room.replace("docutils container ", ""), text)
    )
    assert "5000px" in far.read_text()
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(far.as_uri())
    page.wait_for_timeout(300)
    assert page.locator(".av-live").count() == 0
    page.locator(".chapter-viewer").scroll_into_view_if_needed()
    page.locator(".av-live").wait_for(timeout=10_000)
    assert page.locator(".av-live").count() == 1
    page.goto("about:blank")
    page.goto(f"{far.as_uri()}#live=1.0~shared")
    page.locator(".av-live").wait_for(timeout=10_000)
    assert page.evaluate("scrollY") > 2000, "what is shared is shown at once"
    assert errors == []
    page.close()


def test_a_drawing_is_not_live(printed, tmp_path):
    book = make(tmp_path, front=FRONT.replace(":name: fig-one", ":name: fig-one\n:live:"))
    assert "good has no figure 'fig-one' that is live" in "\n".join(book.build())


# Parts --------------------------------------------------------------------------------------------

PARTS = """\
format: jb-book
root: index
parts:
- caption: Fruit
  numbered: 1
  chapters:
  - file: fruit/index
  - file: fruit/apples
  - file: fruit/pears
- caption: Nuts
  numbered: 1
  chapters:
  - file: nuts/index
  - file: nuts/almonds
"""
CHAPTER = """\
---
question: What about {0}?
---

# {0}

```{{figure}} dot.svg
:name: fig-{0}
:alt: A dot.

A dot.
```
"""
SECOND = """\
# Nuts in brief

See {numref}`fig-almonds`.

```{chapters-table} Nuts
```
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    book = tiny_pages.make(tmp_path_factory.mktemp("parts"))
    extensions = [*tiny_pages.EXTENSIONS, "sphinx_external_toc", "sphinx_multitoc_numbering"]
    book.settings = {"extensions": extensions, "numfig_secnum_depth": 1}
    book.write("claims/none.toml", "")
    book.write("_toc.yml", PARTS)
    book.write("index.md", "# Tiny\n\n```{chapters-table}\n```\n\n```{bibliography}\n```\n")
    for name in ("fruit/apples", "fruit/pears", "nuts/almonds"):
        folder, _, title = name.partition("/")
        book.write(
            f"{folder}/dot.svg", '<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"/>'
        )
        book.write(f"{name}.md", CHAPTER.format(title))
    book.write("fruit/index.md", "# Fruit in brief\n\n```{chapters-table} Fruit\n```\n")
    book.write(
        "nuts/index.md",
        SECOND,
    )
    assert book.build() == []
    return book


def rows_of(page):
    return [row.get_text(" ", strip=True) for row in page.select("table.chapters-table tbody tr")]


def test_the_page_that_opens_a_part_takes_no_number(parts):
    headings = {
        name: parts.page(name).select_one("article h1").contents[0].get_text(strip=True)
        for name in ("fruit/index", "fruit/apples", "fruit/pears", "nuts/index", "nuts/almonds")
    }
    assert headings["fruit/index"] == "Fruit in brief"
    assert headings["nuts/index"] == "Nuts in brief"
    numbers = [
        headings[name].rstrip(". ") for name in ("fruit/apples", "fruit/pears", "nuts/almonds")
    ]
    assert numbers == ["1", "2", "3"]
    assert "Fig. 3.1" in parts.page("nuts/almonds").select_one("figcaption").get_text()
    assert "Fig. 3.1" in parts.page("nuts/index").select_one("article").get_text()


def test_it_lists_its_chapters_and_the_front_page_lists_all(parts):
    assert rows_of(parts.page("fruit/index")) == [
        "1 apples What about apples?",
        "2 pears What about pears?",
    ]
    assert rows_of(parts.page("nuts/index")) == ["3 almonds What about almonds?"]
    assert len(rows_of(parts.page("index"))) == 5


def test_a_part_that_is_not_there_is_named(tmp_path, parts):
    book = tiny_pages.make(tmp_path)
    book.settings = dict(parts.settings)
    book.write("claims/none.toml", "")
    book.write(
        "_toc.yml",
        TOC.replace("- file: front", "- file: index").replace("root: index", "root: top"),
    )
    book.write("top.md", "# Tiny\n\n```{bibliography}\n```\n")
    book.write("index.md", "# One\n\n```{chapters-table} Potions\n```\n")
    book.write("good.md", CHAPTER.format("good"))
    book.write("dot.svg", '<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"/>')
    assert "expected one of the numbered parts Positions, got 'Potions'" in "\n".join(book.build())
