"""The lint of prose: no measured numeral is typed by hand.

The rule: **in running text every word that begins with a digit is a finding.** Running text is
paragraphs, list items, table cells, headings, footnotes, captions, alternative texts and the bodies
and titles of directives. Not running text is code, mathematics, link targets, comments, options,
and the content of roles. So ``GPT-2``, ``CS-1.3``, ``float64`` and ``bf16`` pass, because they
begin with a letter; ``12.4``, ``3x``, ``17 %``, ``2-layer`` and ``1e-9`` do not. A heading may begin
with its number and a full stop.

Ways out:

- a number that was measured: ``{measured}`name:.2f```;
- a figure quoted from a source: ``{quoted}`12.4```;
- a definition, setting, version or year: ``{constant}`10000```;
- a formula: ``$d = 64$``; code: ``n=5``; a reference: ``{cite:t}`key```, ``{numref}`label```;
- a small count: the word, as in *two layers*.

``python -m bookpress.prose [files or folders]`` lists the findings and exits with 1 if there are
any; without arguments it reads ``book/``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

WAYS_OUT = (
    "show what was measured with {measured}`name:.2f`, mark a source's figure {quoted}`12.4`, "
    "a definition, setting or year {constant}`64`, write mathematics as $...$ or code in "
    "backquotes, or spell a small number out"
)
IN_ALT = "alternative text shows no roles: describe the picture without the number, or spell it out"


@dataclass(frozen=True)
class Finding:
    """A bare numeral: where it stands, counting lines from one, and what to do instead."""

    path: str
    line: int
    numeral: str
    remedy: str = WAYS_OUT

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: bare numeral {self.numeral!r} in prose; {self.remedy}"


# Directives whose body is no prose: code, mathematics, generated content, other markup.
OPAQUE = frozenset(
    {
        "automodule",
        "autoclass",
        "autofunction",
        "autosummary",
        "bibliography",
        "claim",
        "claims-table",
        "code",
        "code-block",
        "csv-table",
        "doctest",
        "eval-rst",
        "glue:figure",
        "graphviz",
        "highlight",
        "image",
        "include",
        "index",
        "literalinclude",
        "math",
        "mermaid",
        "nb-exec-table",
        "parsed-literal",
        "raw",
        "sourcecode",
        "tableofcontents",
        "toctree",
    }
)
# Directives whose argument is a title that readers see.
TITLED = frozenset(
    {
        "admonition",
        "attention",
        "card",
        "caution",
        "danger",
        "dropdown",
        "epigraph",
        "error",
        "exercise",
        "exercise-start",
        "hint",
        "important",
        "list-table",
        "margin",
        "note",
        "proof:theorem",
        "rubric",
        "seealso",
        "sidebar",
        "tab-item",
        "table",
        "tip",
        "topic",
        "versionadded",
        "versionchanged",
        "warning",
    }
)
# Roles that only change how their text looks.
PROSE_ROLES = frozenset({"abbr", "emphasis", "strong", "sub", "subscript", "sup", "superscript"})

_VULGAR = "\u00bc-\u00be\u2150-\u215e"
# A comma belongs to a word only inside a number, so that "(a,3)" is no name.
_WORD = re.compile(rf"[^\W_](?:(?:[\w.\-\u2010\u2011]|(?<=\d),(?=\d))*\w)?|[{_VULGAR}]")
_NUMERAL = re.compile(rf"[\d{_VULGAR}]")
_NUMBERING = re.compile(r"\s*\d+(?:\.\d+)*[.)]\s")
_DIRECTIVE = re.compile(r"\{([^}]+)\}\s*(.*)", re.DOTALL)
_OPTION = re.compile(r":([\w-]+):\s*(.*)")
_HTML = re.compile(r"<!--.*?-->|<(script|style|svg)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def lint(text: str, path: str) -> list[Finding]:
    """Return the bare numerals in the prose of a MyST document, in the order of its lines.

    Args:
        text: the document.
        path: its name, as findings shall show it.
    """
    hits = sorted(_document(text, 1), key=lambda hit: hit[0])
    return [Finding(path, line, numeral, remedy) for line, numeral, remedy in hits]


_Hit = tuple[int, str, str]


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    extensions = {
        "amsmath",
        "attrs_block",
        "attrs_inline",
        "colon_fence",
        "deflist",
        "dollarmath",
        "linkify",
        "substitution",
        "tasklist",
    }
    return create_md_parser(MdParserConfig(enable_extensions=extensions), RendererHTML)


def _document(text: str, first_line: int) -> Iterator[_Hit]:
    """Yield the findings of a text whose first line has the number ``first_line``."""
    lines = text.splitlines()
    heading = False
    for token in _parser().parse(text):
        line = first_line + (token.map[0] if token.map else 0)
        if token.type in ("heading_open", "heading_close"):
            heading = token.type == "heading_open"
        elif token.type == "inline":
            yield from _inline(token, lines, first_line, heading)
        elif token.type in ("fence", "colon_fence"):
            yield from _fence(token, line)
        elif token.type == "html_block":
            visible = _HTML.sub(lambda m: "\n" * m[0].count("\n"), token.content)
            for offset, row in enumerate(visible.splitlines()):
                yield from ((line + offset, word, WAYS_OUT) for word in _bare(row))


def _bare(text: str) -> Iterator[str]:
    """Yield the words of a line that begin with a digit."""
    for match in _WORD.finditer(text):
        if _NUMERAL.match(match[0]):
            yield match[0]


def _visible(children: Iterable[Token]) -> Iterator[str]:
    """Yield the pieces of an inline token that a reader sees as prose, line breaks as such.

    What is no prose leaves a mark that belongs to no word, so ``$d$-2`` does not read as a name.
    """
    automatic = False
    for child in children:
        if child.type == "link_open":
            automatic = child.info == "auto"
        elif child.type == "link_close":
            automatic = False
        elif child.type in ("softbreak", "hardbreak"):
            yield "\n"
        elif child.type == "text":
            yield "\ufffc" if automatic else child.content
        elif child.type == "image":
            yield from _visible(child.children or ())
        elif child.type == "myst_role" and child.meta.get("name") in PROSE_ROLES:
            yield child.content
        elif child.type not in ("em_open", "em_close", "strong_open", "strong_close"):
            yield "\ufffc" + "\n" * child.content.count("\n")


def _inline(token: Token, lines: Sequence[str], first_line: int, heading: bool) -> Iterator[_Hit]:
    visible = "".join(_visible(token.children or ()))
    if heading:
        visible = _NUMBERING.sub("", visible, count=1) if _NUMBERING.match(visible) else visible
    start, end = token.map or (0, len(lines))
    for offset, row in enumerate(visible.split("\n")):
        for word in _bare(row):
            # Inline code may hide a line break, so the word can stand lower than counted.
            near = range(min(start + offset, end - 1), end)
            index = next((i for i in near if word in lines[i]), start)
            yield first_line + index, word, WAYS_OUT


def _fence(token: Token, line: int) -> Iterator[_Hit]:
    """Yield the findings of a directive; a plain code fence has none."""
    match = _DIRECTIVE.fullmatch(token.info.strip())
    if match is None:
        return
    name, argument = match[1].strip(), match[2].strip()
    if name in TITLED and argument:
        yield from _document(argument, line)
    body = token.content.splitlines()
    options, skip = _options(body)
    for key, text, offset in options:
        remedy = IN_ALT if key == "alt" else WAYS_OUT
        for at, word, _ in _document(text, line + 1 + offset):
            yield at, word, remedy
    if name not in OPAQUE and not name.startswith("code-cell"):
        yield from _document("\n".join(body[skip:]), line + 1 + skip)


def _options(body: Sequence[str]) -> tuple[list[tuple[str, str, int]], int]:
    """Return captions and alternative texts (key, text, line in the body), and where prose begins."""
    found: list[tuple[str, str, int]] = []
    if body and body[0].strip() == "---":
        closing = [i for i, row in enumerate(body) if i and row.strip() == "---"]
        end = closing[0] if closing else len(body)
        try:
            data = yaml.safe_load("\n".join(body[1:end]))
        except yaml.YAMLError:
            data = None  # the build reports broken options; the lint has nothing to read in them
        for key, text in _texts(data):
            at = next((i for i in range(1, end) if key + ":" in body[i]), 1)
            found.append((key, text, at))
        return found, end + 1
    end = 0
    for row in body:
        option = _OPTION.match(row.strip())
        if option is None:
            break
        if option[1] in ("caption", "alt"):
            found.append((option[1], option[2], end))
        end += 1
    return found, end


def _texts(data: object) -> Iterator[tuple[str, str]]:
    """Yield the captions and alternative texts anywhere in a directive's options."""
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        if key in ("caption", "alt") and isinstance(value, str):
            yield key, value
        else:
            yield from _texts(value)


def documents(paths: Iterable[Path]) -> list[Path]:
    """Return the MyST documents among files and folders, folders searched through and through.

    Raises:
        ValueError: a path that does not exist.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ValueError(f"expected a file or folder of the book, got {path}, which is missing")
        found += sorted(path.rglob("*.md")) if path.is_dir() else [path]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings in the files and folders named; return 1 if there are any, else 0."""
    named = sys.argv[1:] if arguments is None else list(arguments)
    try:
        paths = documents(Path(name) for name in named or ["book"])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    findings = [finding for path in paths for finding in lint(path.read_text("utf-8"), str(path))]
    for finding in findings:
        print(f"{finding.path}:{finding.line}: bare numeral {finding.numeral!r}")
    if findings:
        print(f"{len(findings)} bare numerals in prose: {WAYS_OUT}.")
        if any(finding.remedy == IN_ALT for finding in findings):
            print(f"{IN_ALT[0].upper()}{IN_ALT[1:]}.")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
