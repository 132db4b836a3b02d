"""No reader meets raw markup: TeX between dollar signs, commands of TeX, or code between backticks."""

from __future__ import annotations

import html
import itertools
import os
import re
from pathlib import Path

import pytest
from bookpress.sphinx.foot import inline
from docutils import nodes
from measured_book.measuring.measurement import measurements_of, rooms
from pybtex.database import parse_file
from test_pages import words_outside_code
from visiting import none

ROOT = Path(__file__).parents[2]
RAW = re.compile(
    r"\$[^$\n]{1,80}\$|`[^`\n]{1,80}`|\\(?:frac|sqrt|text\w*|emph|math\w+|ell|infty|alpha|beta|sigma|cdot|[lr]Vert)\b"
)


@pytest.mark.skipif("MEASURED_BUILT" not in os.environ, reason="no printed pages are given")
def test_no_printed_page_shows_markup(articles):
    none({page: RAW.findall(" ".join(words_outside_code(a))) for page, a in articles.items()})


SAID = re.compile(
    r'\b(?:alt|title|aria-label|content|placeholder)="([^"]*)"|<title>([^<]*)</title>'
)
FORMULA = re.compile(r'<span class="math[^>]*>.*?</span>', re.DOTALL)
NAVIGATION = re.compile(r"<nav\b.*?</nav>|<footer class=\"prev-next.*?</footer>", re.DOTALL)


def around(page: str) -> list[str]:
    """What a printed page says outside its text: its title, what stands for pictures, contents, neighbours."""
    said = [html.unescape(first or second) for first, second in SAID.findall(page)]
    lists = (FORMULA.sub(" ", found) for found in NAVIGATION.findall(page))
    return said + [html.unescape(re.sub(r"<[^>]+>", " ", found)) for found in lists]


@pytest.mark.skipif("MEASURED_BUILT" not in os.environ, reason="no printed pages are given")
def test_no_title_alternative_text_or_table_of_contents_shows_markup(built, pages):
    none(
        {
            name: [
                found
                for said in around((built / name).read_text("utf-8"))
                for found in RAW.findall(said)
            ]
            for name in pages
        }
    )


def test_the_scan_sees_around_a_page():
    page = (
        '<title>On $x$</title><img alt="of $y$"><nav><a href="#">'
        r'\sqrt{z} <span class="math notranslate">\(\sqrt{w}\)</span></a></nav>'
    )
    found = [found for said in around(page) for found in RAW.findall(said)]
    assert found == ["$x$", "$y$", r"\sqrt"]


def test_the_scan_sees_what_was_printed_once():
    for words in (
        "Self-attention does not need $O(n^2)$ memory.",
        r"Implicit bias of AdamW: $\ell _\infty $-norm",
        "after as many steps as in `again`. 5 seeds",
        r"divided by \sqrt{d_h}",
    ):
        assert RAW.search(words)
    assert not RAW.search(
        "It costs $5, and \N{LEFT DOUBLE QUOTATION MARK}that\N{RIGHT DOUBLE QUOTATION MARK} is all."
    )


def test_no_work_is_listed_with_mathematics_of_tex():
    """The bibliography prints titles as they stand, but for braces and accents."""
    works = parse_file(str(ROOT / "references.bib"), "bibtex").entries
    found = {
        key: [
            f"{name}: {words}"
            for name, words in work.fields.items()
            if RAW.search(words.replace("``", ""))
        ]
        for key, work in works.items()
    }
    none(found)


def test_the_lines_of_measurements_are_printed_as_code_and_mathematics():
    problems = {}
    for room in rooms():
        for name, one in measurements_of(room).items():
            texts = [str(node) for node in inline(one.what) if isinstance(node, nodes.Text)]
            problems[f"{room}/{name}"] = [sign for sign in "`$\\" if sign in "".join(texts)]
    none(problems)


def test_a_line_becomes_nodes():
    found = inline(r"The length of `x`, ``y`` and $\sqrt{d}$, for 5 $.")
    kinds = [(type(node).__name__, node.astext()) for node in found]
    assert kinds == [
        ("Text", "The length of "),
        ("literal", "x"),
        ("Text", ", "),
        ("literal", "y"),
        ("Text", " and "),
        ("math", r"\sqrt{d}"),
        ("Text", ", for 5 $."),
    ]


def test_a_header_of_a_table_has_a_word_beside_its_formula():
    """A formula is drawn by a script: until then, and without it, such a header would be read as empty."""
    for page in sorted((ROOT / "book").rglob("*.md")):
        lines = page.read_text("utf-8").splitlines()
        for above, line in itertools.pairwise(lines):
            if above.startswith("|") and re.fullmatch(r"\|[ :|-]+\|", line):
                cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", above)[1:-1]]
                bare = [cell for cell in cells if re.fullmatch(r"\$[^$]+\$", cell)]
                assert not bare, f"{page.relative_to(ROOT)}: {bare}"
