"""The page *What loads*: its tables are printed whole, and the book's page shows each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bookpress.sphinx import loads
from bs4 import BeautifulSoup, Tag
from measured_transformer.interop.gguf_architectures import ARCHITECTURES
from measured_transformer.interop.loads import what_loads
from measured_transformer.language.published import PUBLISHED
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

PAGE = Path(__file__).parents[2] / "book/reference/loads.md"
NAMES = (*loads._WhatLoads.tables, "live")


def printed(source: Path, names: tuple[str, ...]) -> BeautifulSoup:
    """A page with these directives."""
    directives = "".join(f".. what-loads:: {name}\n\n" for name in names)
    (source / "index.rst").write_text(f"Loads\n=====\n\n{directives}")
    with patch_docutils(source), docutils_namespace():
        build = source / "_build"
        app = Sphinx(source, None, build, build / "doctrees", "html", status=None, warning=None)
        loads.setup(app)
        app.build()
    return BeautifulSoup((build / "index.html").read_text(), "html.parser")


def rows(table: Tag) -> list[list[str]]:
    found = ([cell.get_text(" ", strip=True) for cell in row("td")] for row in table("tr"))
    return [row for row in found if row]


def test_every_family_file_and_package_has_its_row(tmp_path: Path):
    page = printed(tmp_path, NAMES)
    families, settings, refused, gguf, pretrained = map(rows, page.select("table.what-loads"))
    about = what_loads()
    assert [row[0] for row in families] == [one.name for one in about]
    assert [re.findall(r"\w+", row[1]) for row in families] == [list(one.classes) for one in about]
    listed = sorted(name for row in settings for name in row[0].split(" , "))
    assert listed == sorted(one.name for one in about)
    sentences = {row[1] for row in refused}
    assert sentences == {text for one in about for text in one.refused.values()}
    assert [row[2] for row in refused[:2]] == ["all", "all"]
    assert [row[0] for row in gguf] == list(ARCHITECTURES)
    assert [row[0] for row in pretrained] == list(PUBLISHED)
    assert "FalconForCausalLM" in page.pre.get_text()


def test_another_table_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert not printed(tmp_path, ("everything",)).select("table.what-loads")


def test_the_books_page_shows_all_of_them():
    assert tuple(re.findall(r"^```\{what-loads\} (\w+)$", PAGE.read_text(), re.M)) == NAMES
