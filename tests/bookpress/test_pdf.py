"""The book as one document for paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from bookpress.edition import Edition
from bookpress.pdf import count_pages, order, page_numbers, slug, whole
from bs4 import BeautifulSoup

EDITION = Edition("v0.2", "a" * 40, "0.2.0", "2027", "A Book", "We", "https://r", "https://site/b")
ONE = """<html><body><nav>menu</nav><article class="bd-article"><section id="one"><h1>1. One
<a class="headerlink" href="#one">#</a></h1>
<p>See <a href="two.html#deep">two</a>, <a href="#fig">the figure</a>, <a href="../reference/x.html#y">x</a>,
<a href="https://example.org/">elsewhere</a>.</p>
<figure id="fig"><a href="../../_images/l.png">
<img class="only-light" loading="lazy" src="../../_images/l.png"></a>
<img class="only-dark" src="../../_images/d.png"><figcaption>Seen.</figcaption></figure>
<details class="hide"><summary>Show the source</summary><pre>code</pre></details>
<details><summary>Solution</summary><p>It is 3.</p></details>
<div class="cite">BibTeX</div></section></article></body></html>"""
TWO = '<article class="bd-article"><section id="two"><h1>2. Two</h1><h2 id="deep">Deep</h2></section></article>'


@pytest.fixture
def document(tmp_path: Path) -> BeautifulSoup:
    for name, text in (("one", ONE), ("two", TWO)):
        path = tmp_path / "book" / "part" / f"{name}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    parts = [("A part", ["book/part/one", "book/part/two"])]
    return BeautifulSoup(whole(tmp_path, parts, EDITION), "html.parser")


def test_links_lead_to_the_page_in_the_document_or_to_its_address(document: BeautifulSoup):
    links = {link.get_text(): link["href"] for link in document.select("#part-one a")}
    assert links == {
        "two": "#part-two--deep",
        "the figure": "#part-one--fig",
        "x": "https://site/b/v0.2/book/reference/x.html#y",
        "elsewhere": "https://example.org/",
    }
    ids = {node["id"] for node in document.select("[id]")}
    assert {"part-one", "part-one--one", "part-one--fig", "part-two--deep"} <= ids


def test_paper_shows_light_drawings_and_what_is_folded_but_no_buttons(document: BeautifulSoup):
    page = document.select_one("#part-one")
    assert page is not None
    assert [image["src"] for image in page.select("img")] == ["_images/l.png"]
    assert [fold.has_attr("open") for fold in page.select("details")] == [True]
    for gone in ("menu", "BibTeX", "Show the source", "#"):
        assert gone not in page.get_text()


def test_the_contents_name_every_page_and_the_cover_the_edition(document: BeautifulSoup):
    contents = document.select("nav.contents a")
    assert [(a.span.get_text(), a["href"]) for a in contents] == [
        ("1. One", "#part-one"),
        ("2. Two", "#part-two"),
    ]
    assert [a.select_one("[data-page]")["data-page"] for a in contents] == ["part-one", "part-two"]
    cover = document.select_one("section.cover")
    assert cover is not None
    assert "v0.2, version 0.2.0, commit aaaaaaaaaaaa, 2027" in cover.get_text()


def test_the_reference_and_the_scorecard_are_left_to_the_pages():
    toc = {
        "root": "book/index",
        "parts": [
            {"caption": "One", "chapters": [{"file": "book/a/b"}]},
            {"caption": "Reference", "chapters": [{"file": "book/reference/index"}]},
            {
                "caption": "About",
                "chapters": [{"file": "book/about/lab-notes"}, {"file": "book/about/x"}],
            },
        ],
    }
    assert list(order(toc)) == [
        ("", ["book/index"]),
        ("One", ["book/a/b"]),
        ("About", ["book/about/x"]),
    ]
    assert slug("book/a/b", "c") == "a-b--c"


def test_a_page_that_is_not_printed_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="to be a printed page, got none"):
        whole(tmp_path, [("", ["book/nowhere"])], EDITION)


def test_pages_of_a_pdf_are_counted(tmp_path: Path):
    (tmp_path / "x.pdf").write_bytes(
        b"<< /Type /Pages >> << /Type /Page\n>> <</Type /Page /Parent 1 0 R>>"
    )
    assert count_pages(tmp_path / "x.pdf") == 2


def test_places_of_a_pdf_are_found_on_their_pages():
    """Pages are kept in a tree, and not in the order of their numbers."""
    pdf = b"""%PDF-1.4
1 0 obj
<</Type /Page>>
endobj
2 0 obj
<</Type /Page>>
endobj
7 0 obj
<</Type /Page>>
endobj
3 0 obj
<</Type /Pages
/Count 2
/Kids [7 0 R 1 0 R]
/Parent 4 0 R>>
endobj
4 0 obj
<</Type /Pages
/Count 3
/Kids [3 0 R 2 0 R]>>
endobj
5 0 obj
<</a-b--c [1 0 R /XYZ 0 841.9 0]
/a#20d [7 0 R /XYZ 0 500 0]
/e [2 0 R /XYZ 0 500 0]>>
endobj
6 0 obj
<</Type /Catalog
/Pages 4 0 R
/Dests 5 0 R>>
endobj
"""
    assert page_numbers(pdf) == {"a-b--c": 2, "a d": 1, "e": 3}
    assert page_numbers(b"%PDF-1.4") == {}
