"""Code with fewer marks: every character keeps the look that it has with all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from bookpress.sphinx.highlighting import Sparing, unseen
from bs4 import BeautifulSoup, NavigableString, Tag
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonConsoleLexer, PythonLexer
from pygments.style import Style
from pygments.styles import get_style_by_name
from pygments.token import Name, Punctuation, String, Text

ROOT = Path(__file__).parents[2]
OPTIONS = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["sphinx"]["config"]
NAMES = [OPTIONS["html_theme_options"][f"pygments_{theme}_style"] for theme in ("light", "dark")]
CODE = (ROOT / "lib/measured_transformer/parts/norms.py").read_text("utf-8")
CONSOLE = ">>> print([1, 2.5], 'text')  # said\n[1, 2.5] text\n"


def styles() -> list[type[Style]]:
    return [get_style_by_name(name) for name in NAMES]


def looks(html: str, style: type[Style]) -> Iterator[tuple[str, str]]:
    """Each character with the declarations that the style sheet has for the mark around it."""
    sheet = HtmlFormatter(style=style).get_style_defs(".highlight")
    rules = dict(re.findall(r"^\.highlight \.(\w+) \{ (.*?) \}", sheet, re.MULTILINE))
    around = re.search(r"^\.highlight \{.*?(color: #\w+)", sheet, re.MULTILINE)
    assert around
    for text in BeautifulSoup(html, "html.parser").find_all(string=True):
        assert type(text) is NavigableString
        mark = text.parent
        assert isinstance(mark, Tag)
        of = rules.get((mark.get("class") or [""])[0], around[1]) if mark.name == "span" else ""
        yield from ((sign, of or around[1]) for sign in text if not sign.isspace())


@pytest.mark.parametrize(
    ("code", "lexer"), [(CODE, PythonLexer()), (CONSOLE, PythonConsoleLexer())], ids=str
)
def test_every_character_looks_as_with_all_marks(code: str, lexer) -> None:
    whole = highlight(code, lexer, HtmlFormatter())
    spared = highlight(code, lexer, Sparing(unseen(styles())))
    assert len(spared) < 0.85 * len(whole)
    for style in styles():
        assert list(looks(spared, style)) == list(looks(whole, style))


def test_a_mark_stays_where_one_style_shows_it() -> None:
    class Plain(Style):
        pass

    class Bold(Style):
        styles = {Name: "bold"}  # noqa: RUF012 as Pygments has it

    assert {Name, Punctuation, String} <= unseen([Plain])
    assert Name not in unseen([Plain, Bold])
    assert {Punctuation, Text} <= unseen([Plain, Bold])
    assert unseen([]) == set()
    told = highlight("a = b", PythonLexer(), Sparing(unseen([Plain, Bold])))
    assert '<span class="n">a</span>' in told
