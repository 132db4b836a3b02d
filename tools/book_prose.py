#!/usr/bin/env python3
"""Write the paragraphs of the book that stand without its results, as a text to measure language models on.

    python tools/book_prose.py FILE.txt.xz

Taken are paragraphs of at least twenty words without mathematics and without a role that prints a number or a
citation; of links, code and emphasis the words are taken. The text that is measured on is kept beside
`measured_book.smollm2.texts` as it was on one day: a new one would be other texts, and other results.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

ROOT = Path(__file__).parents[1]
WORDED = re.compile(r"(?s)(.*?)\s*<[^<>]*>")
NAMED = ("term", "ref", "doc", "constant", "quoted", "abbr")  # roles that stand for their words
WORDS = 20


def paragraphs(text: str, parser: MarkdownIt) -> Iterable[str]:
    """The plain paragraphs of a page."""
    tokens = parser.parse(text)
    for before, token in pairwise(tokens):
        if before.type == "paragraph_open" and token.type == "inline":
            said = "".join(words(one) for one in token.children or ())
            said = re.sub(r"\s+", " ", said).strip()
            if "\ufffc" not in said and len(said.split()) >= WORDS and said.isprintable():
                yield said


def words(token: Token) -> str:
    """The words of an inline token; a mark where it is something else."""
    if token.type in ("text", "code_inline"):
        return token.content
    if token.type in ("softbreak", "hardbreak"):
        return " "
    if token.type.endswith(("_open", "_close")):
        return ""
    if token.type == "myst_role" and token.meta.get("name") in NAMED:
        found = WORDED.fullmatch(token.content)
        if found is None and token.meta["name"] in ("ref", "doc"):
            return "\ufffc"  # the title of the place stands there
        return found[1] if found else token.content
    return "\ufffc"


def pages() -> list[Path]:
    """The pages of the book's numbered parts in its order, and then its lab notes."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    numbered = [
        ROOT / f"{page['file']}.md"
        for part in contents["parts"]
        if part.get("numbered")
        for page in part["chapters"]
        if not page["file"].endswith("/index")
    ]
    return numbered + sorted((ROOT / "book/about/lab-notes").glob("*.md"))


def main(place: str) -> None:
    """Write the text, and print its digest."""
    rules = {"amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"}
    parser = create_md_parser(MdParserConfig(enable_extensions=rules), RendererHTML)
    found: dict[str, None] = {}
    for page in pages():
        found.update(dict.fromkeys(paragraphs(page.read_text("utf-8"), parser)))
    text = "\n\n".join(found).encode("utf-8")
    Path(place).write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    print(
        f"{len(found)} paragraphs, {len(text.split())} words, SHA-256 {hashlib.sha256(text).hexdigest()}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
