"""The front door on a tiny book: numbers and figures of another page, and the table of all chapters."""

from __future__ import annotations

import pytest
import room_pages

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
