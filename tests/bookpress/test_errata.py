"""The errata: entries are complete and right about the pages, and their page and links are made of them."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
import yaml
from bookpress.sphinx import errata
from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

ROOT = Path(__file__).parents[2]
FILE = ROOT / "book/about/errata.toml"
KNOWN = errata.read_errata(FILE)
ENTRY = """\
[[erratum]]
chapter = "chapter"
place = "a-place"
said = "Wide heads learn more."
wrong = "They learned *sooner*."
now = "*Sooner*, at {ref}`the place <a-place>`."
found = "a reader"
since = 2026-11-25
mended = 2026-11-29
"""
CHAPTER = "# A chapter\n\nWhat there is.\n\n(a-place)=\n## A place\n\nWide heads learn sooner.\n"
NEEDED = ("chapter", "place", "said", "wrong", "now", "found", "since", "mended")


# The book's own file -------------------------------------------------------------------------------


def source_of(one: errata.Erratum) -> str:
    return (ROOT / f"{one.chapter}.md").read_text("utf-8")


def test_every_entry_names_a_page_of_the_book_and_a_section_of_it():
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text())["parts"]
    pages = {page["file"] for part in parts for page in part["chapters"]}
    assert not {one.chapter for one in KNOWN} - pages
    lost = [
        (one.chapter, one.place) for one in KNOWN if f"\n({one.place})=\n" not in source_of(one)
    ]
    assert not lost


def test_wrong_words_are_gone_and_those_beside_a_gap_stand():
    assert not [one.said for one in KNOWN if one.said and one.said in source_of(one)]
    assert not [one.beside for one in KNOWN if one.beside and one.beside not in source_of(one)]


def test_no_entry_is_there_twice_and_none_is_of_a_day_to_come():
    keys = [(one.chapter, one.said or one.beside, one.wrong) for one in KNOWN]
    assert len(set(keys)) == len(keys) > 40
    assert max(one.mended for one in KNOWN) <= datetime.datetime.now(datetime.UTC).date()


def test_entries_stand_in_the_order_of_the_book():
    order = re.findall(r"file: (\S+)", (ROOT / "_toc.yml").read_text())
    places = [order.index(one.chapter) for one in KNOWN]
    assert places == sorted(places)


def test_the_page_shows_the_entries():
    assert "```{errata}\n```" in FILE.with_suffix(".md").read_text()


# What is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", NEEDED)
def test_an_entry_that_lacks_something_is_refused(tmp_path: Path, key: str):
    path = tmp_path / "errata.toml"
    path.write_text(ENTRY)
    assert len(errata.read_errata(path)) == 1
    path.write_text(re.sub(rf"^{key} = .*\n", "", ENTRY, flags=re.M))
    with pytest.raises(ValueError, match=rf"errata.toml, entry 1: expected .*\b{key}\b"):
        errata.read_errata(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('found = "a reader"', 'found = " "', "expected words for found"),
        ('found = "a reader"', "found = 3", "expected a text for found"),
        ("mended = 2026-11-29", 'mended = "lately"', "expected a day such as .* for mended"),
        ("mended = 2026-11-29", "mended = 2026-11-01", "a day of mending from 2026-11-25 on"),
        ("mended =", 'who = "me"\nmended =', "got who"),
        ("mended =", 'beside = "It."\nmended =', "either the key said or the key beside"),
        ("[[erratum]]", "[[error]]", "expected tables .* alone, got error"),
    ],
)
def test_what_no_entry_may_have_is_refused(tmp_path: Path, old: str, new: str, words: str):
    assert old in ENTRY
    path = tmp_path / "errata.toml"
    path.write_text(ENTRY.replace(old, new))
    with pytest.raises(ValueError, match=words):
        errata.read_errata(path)


# The page ------------------------------------------------------------------------------------------


def add_foot(app: Sphinx, doctree: nodes.document) -> None:
    if way := errata.way_to(app.env, app.env.docname):
        doctree.append(nodes.paragraph("", "", way))


def build(source: Path) -> tuple[BeautifulSoup, BeautifulSoup]:
    """Print a small book; gives its errata and its chapter."""
    with patch_docutils(source), docutils_namespace():
        out = source / "_build"
        settings = {
            "extensions": ["myst_parser"],
            "root_doc": "errata",
            "source_suffix": {
                ".md": "markdown"
            },  # Sphinx's own default keeps what other books registered
            "measured_errata": "errata",
            "exclude_patterns": ["_build"],
        }
        app = Sphinx(source, None, out, out / "trees", "html", settings, status=None, warning=None)
        errata.setup(app)
        app.connect("doctree-read", add_foot)
        app.build()
    return tuple(  # type: ignore[return-value]
        BeautifulSoup((out / f"{name}.html").read_text("utf-8"), "html.parser")
        for name in ("errata", "chapter")
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "errata.md").write_text(
        "# Errata\n\nWhat was wrong.\n\n```{toctree}\nchapter\n```\n\n```{errata}\n```\n"
    )
    (tmp_path / "chapter.md").write_text(CHAPTER)
    (tmp_path / "errata.toml").write_text(ENTRY)
    return tmp_path


def test_an_entry_is_printed_whole_with_the_way_to_its_place(source: Path):
    page, chapter = build(source)
    section = page.select_one("#a-chapter, #errata-chapter")
    assert section is not None
    text = " ".join(section.get_text(" ").split())
    for words in ("A chapter", "“Wide heads learn more.”", "Wrong:", "sooner", "Now:", "a reader"):
        assert words in text
    assert "since 2026-11-25, mended 2026-11-29" in text
    assert "Still to be measured" not in text
    assert section.select_one('a[href="chapter.html#a-place"]')
    foot = chapter.select_one('a[href="errata.html#errata-chapter"]')
    assert foot is not None
    assert foot.get_text() == "Errata (1)"
    assert page.select_one("#errata-chapter")


def test_a_gap_is_said_to_be_one_and_what_is_open_stands_there(source: Path):
    entry = ENTRY.replace('said = "Wide', 'open = "More heads."\nbeside = "Wide')
    (source / "errata.toml").write_text(entry)
    text = " ".join(build(source)[0].get_text(" ").split())
    assert "Missing:" in text
    assert "Wrong:" not in text
    assert "Still to be measured: More heads." in text


def test_an_entry_that_comes_changes_the_page_and_the_foot(source: Path):
    build(source)
    (source / "errata.toml").write_text(ENTRY + "\n" + ENTRY.replace("Wide heads", "Narrow ones"))
    page, chapter = build(source)
    assert "Narrow ones" in page.get_text()
    foot = chapter.select_one('a[href="errata.html#errata-chapter"]')
    assert foot is not None
    assert foot.get_text() == "Errata (2)"


def test_without_entries_nothing_is_linked(source: Path):
    (source / "errata.toml").unlink()
    page, chapter = build(source)
    assert "No error is known." in page.get_text()
    assert "Errata (" not in chapter.get_text()
