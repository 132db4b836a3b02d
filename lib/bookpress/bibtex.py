"""BibTeX for the book, its chapters and its claims, and the same as a sentence."""

from __future__ import annotations

import re

from measured_book.evidence.registry import Claim

from bookpress.edition import Edition

_SPECIAL = re.compile(r"([&%#_])")
_MATH = re.compile(r"(\$[^$]+\$)")
_ROLE = re.compile(r"\{[a-z:-]+\}`([^`]*)`")
_CODE = re.compile(r"`([^`]*)`")
_STRONG = re.compile(r"(\*\*|\*|__)(?=\S)(.+?)(?<=\S)\1")
_OTHERS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
}


def plain(text: str) -> str:
    """Return a text of the registry without its markup; mathematics stays between its dollar signs."""
    parts = _MATH.split(" ".join(text.split()))
    for index in range(0, len(parts), 2):
        without = _CODE.sub(r"\1", _ROLE.sub(r"\1", parts[index]))
        parts[index] = _STRONG.sub(r"\2", without)
    return "".join(parts)


def as_tex(text: str) -> str:
    """Return plain text with what TeX reads as a command written out; mathematics stays as it is."""
    parts = _MATH.split(text)
    for index in range(0, len(parts), 2):
        words = "".join(_OTHERS.get(sign, sign) for sign in parts[index])
        parts[index] = _SPECIAL.sub(r"\\\1", words)
    return "".join(parts)


def chapter_entry(edition: Edition, docname: str, title: str) -> str:
    """Return BibTeX for a chapter."""
    return _entry(
        "incollection",
        _key(edition, docname.rpartition("/")[2]),
        {
            "author": f"{{{as_tex(edition.author)}}}",
            "title": f"{{{as_tex(title)}}}",
            "booktitle": f"{{{as_tex(edition.title)}}}",
            "year": edition.year,
            "edition": _edition_words(edition),
            "url": edition.address(f"{docname}.html"),
        },
    )


def claim_entry(edition: Edition, claim: Claim, verdict: str) -> str:
    """Return BibTeX for a claim; its note has the verdict of this edition, and of what it speaks."""
    note = f"Claim {edition.pinned(claim.id)}" + (f", verdict: {verdict}" if verdict else "")
    scope = as_tex(plain(claim.scope).rstrip("."))
    note += f"; scope: {scope}" + (f"; said of: {as_tex(claim.said_of)}" if claim.said_of else "")
    return _entry(
        "misc",
        _key(edition, claim.id),
        {
            "author": f"{{{as_tex(edition.author)}}}",
            "title": f"{{{as_tex(plain(claim.statement).rstrip('.'))}}}",
            "howpublished": f"In: {as_tex(edition.title)}",
            "year": edition.year,
            "edition": _edition_words(edition),
            "note": note,
            "url": edition.claim_address(claim.id),
        },
    )


def sentence(edition: Edition, title: str, address: str) -> str:
    """Return a citation as a sentence."""
    quoted = f"\N{LEFT DOUBLE QUOTATION MARK}{title}\N{RIGHT DOUBLE QUOTATION MARK}"
    book = f"{edition.title}, {_edition_words(edition)}, {edition.year}"
    return f"{edition.author}: {quoted}. In: {book}. {address}"


def _edition_words(edition: Edition) -> str:
    if edition.released:
        return edition.name
    at = f", commit {edition.commit[:12]}" if edition.commit else ""
    return f"after version {edition.version}{at}"


def _key(edition: Edition, name: str) -> str:
    book = "-".join(re.findall(r"[a-z0-9]+", edition.title.lower().removeprefix("the ")))
    return f"{book}:{name}" if name else book


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    width = max(map(len, fields))
    lines = [f"  {name:<{width}} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join((f"@{kind}{{{key},", *lines, "}"))
