"""What a text of the book's own prose takes from a page, and what it leaves."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from markdown_it.renderer import RendererHTML
from measured_book.smollm2 import texts
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "tools/book_prose.py"))
LONG = (
    "and so on for as many words as a paragraph of this text must have at the very least to count"
)
PARSER = create_md_parser(MdParserConfig(enable_extensions={"dollarmath"}), RendererHTML)


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        (f"A **plain** *one*, {LONG}.", [f"A plain one, {LONG}."]),
        (f"Code `x = 1` and [a link](page.md), {LONG}.", [f"Code x = 1 and a link, {LONG}."]),
        (f"See {{ref}}`there <place>`, {LONG}.", [f"See there, {LONG}."]),
        (f"A {{term}}`stream` of {{constant}}`64`, {LONG}.", [f"A stream of 64, {LONG}."]),
        (f"Over\ntwo lines, {LONG}.", [f"Over two lines, {LONG}."]),
        (f"With {{measured}}`a.b|mean:.2f`, {LONG}.", []),
        (f"With $x$, {LONG}.", []),
        (f"See {{ref}}`place`, {LONG}.", []),
        (f"As {{cite:t}}`somebody` says, {LONG}.", []),
        ("Too short.", []),
        (f"# A heading, {LONG}", []),
        (f"```python\n{LONG}\n```", []),
    ],
)
def test_plain_paragraphs_are_taken_and_others_left(written, taken):
    assert list(SCRIPT["paragraphs"](written, PARSER)) == taken


def test_the_text_that_is_kept_is_of_such_paragraphs():
    assert all(len(one.split()) >= 20 and one.isprintable() for one in texts.source("book"))


def test_pages_and_lab_notes_are_read():
    pages = SCRIPT["pages"]()
    assert all(page.is_file() for page in pages)
    assert {"scale", "real-model"} <= {page.stem for page in pages}
    assert any(page.parent.name == "lab-notes" for page in pages)
