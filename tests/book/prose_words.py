"""How long a page is to read: the words of its prose, without code, mathematics, captions and claims."""

from __future__ import annotations

import re

from bookpress.prose import OPAQUE

_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_FENCE = re.compile(r"^(`{3,}|:{3,})(.*)$")
_MATH = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
_ROLE = re.compile(r"\{[\w:+-]+\}`([^`]*)`")
_TARGET = re.compile(r"^\([\w-]+\)=$|^%.*$|^:[\w-]+:.*$", re.MULTILINE)
_LINK = re.compile(r"\]\([^)]*\)|<[^>\n]*>")
_WORD = re.compile(r"[^\W_][\w'\u2019.,-]*")


def count(text: str) -> int:
    """Return how many words of prose a page holds; a number, a role and a reference are a word each."""
    prose = _ROLE.sub(_said, _MATH.sub(" x ", _without_code(_FRONT.sub("", text))))
    return len(_WORD.findall(_LINK.sub(" ", _TARGET.sub("", prose))))


def _said(role: re.Match[str]) -> str:
    words, marked, _ = role[1].partition("<")
    return words if marked else "x"


def _without_code(text: str) -> str:
    """Return a page without the directives that hold no prose, and without the fences of the others."""
    kept: list[str] = []
    closing = ""
    for line in text.splitlines():
        fence = _FENCE.match(line.strip())
        if closing:
            closing = "" if line.strip() == closing else closing
        elif fence:
            name = re.match(r"\{([\w:-]+)\}\s*(.*)", fence[2])
            if fence[2] and (
                name is None or name[1] in OPAQUE or name[1].startswith(("code-cell", "figure"))
            ):
                closing = fence[1]
            elif name:
                kept.append(name[2])
        else:
            kept.append(line)
    return "\n".join(kept)
