"""What a source document itself says of a claim: its words, and how they are found without the document.

The documents are not part of this book, so a quotation cannot be looked up in them by whoever has only the
book. What is kept instead is a digest of every five words in a row, in their order, for each document. The
windows of a quotation must occur among them one right after the other:

>>> text = "Off-diagonal values decay smoothly with distance. The pattern is approximately shift-invariant."
>>> windows = digests(words(text))
>>> not_found("values decay smoothly with distance. The pattern", windows)
''
>>> not_found("values decay only smoothly with distance.", windows)
'values decay only smoothly with distance.'

Words are what white space parts. Signs that begin a line, part the cells of a table or mark emphasis are no
words, nor is there space between a formula and a comma, and all quotation marks are straight ones. In a
quotation, ``[...]`` stands for words that are left out, and ``|`` parts lines and cells.

The digests are written from a folder with the documents, each of which is known by its title::

    python -m measured_book.evidence.quotations FOLDER tests/evidence/windows
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

LONGEST = 40
"""Words that a quotation has at most."""
WINDOW = 5
"""Words of a window, and therefore the fewest that stand in a row."""
GAP = "[...]"
"""Stands for words that are left out."""
TITLES: Mapping[str, str] = {
    "CS": "Case Study 2: Analyzing Transformer Components",
    "DA": "Dissecting Attention Mechanisms and Training Transformers",
    "DD": "Inside the Transformer: Attention Mechanisms Deep Dive",
    "EX": "Advanced Methods in Text Analytics",
    "IW": "The Inner Workings of Transformer Based Language Models",
}
"""Source -> the title that its document begins with."""

_DIGITS = 8
_A_LINE = 12
_BEGINS = re.compile(r"^\s*(?:(?:[-\u25b6\u25ba\u2022]|\d+\.)\s+)+", re.MULTILINE)
_AFTER_FORMULA = re.compile(r"\$\s+(?=[,.;:)])")
_SIGN = re.compile(r"\||#+|\|?(?:-{3,}\|?)+")
_PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "*": None, "`": None})  # noqa: RUF001 (the sources' own marks)


def words(text: str) -> list[str]:
    """Return the words of a text as quotations are compared by them."""
    told = _AFTER_FORMULA.sub("$", _BEGINS.sub(" ", text)).translate(_PLAIN)
    return [word for word in told.split() if not _SIGN.fullmatch(word)]


def stretches(quote: str) -> list[list[str]]:
    """Return the words of a quotation in the stretches that its gaps leave."""
    return [words(part) for part in quote.split(GAP)]


def wrong_form(quote: str) -> tuple[str, str] | None:
    """Return what was expected of a quotation and what came, or None where its form is right."""
    parts = stretches(quote)
    count = sum(map(len, parts))
    if count > LONGEST:
        return f"at most {LONGEST} words of the source", f"{count}"
    for part in parts:
        if len(part) < WINDOW:
            came = f"{len(part)}: {' '.join(part)!r}"
            return f"at least {WINDOW} words in a row, so that they can be found", came
    return None


def digests(text: Sequence[str]) -> list[str]:
    """Return a digest of every `WINDOW` words in a row, in their order."""
    windows = (text[at : at + WINDOW] for at in range(len(text) - WINDOW + 1))
    return [hashlib.sha256(" ".join(window).encode()).hexdigest()[:_DIGITS] for window in windows]


def not_found(quote: str, windows: list[str]) -> str:
    """Return the first stretch of a quotation that a document does not hold; nothing where it holds all.

    Args:
        quote: the quotation, of the form that `wrong_form` asks for.
        windows: the document's digests; each stretch must come after the one before it.
    """
    at = 0
    for part in stretches(quote):
        wanted = digests(part)
        if not wanted:
            return " ".join(part)
        found = _place(wanted, windows, at)
        if found is None:
            return " ".join(part)
        at = found + len(part)
    return ""


def _place(wanted: list[str], windows: list[str], at: int) -> int | None:
    """Return where the windows of a stretch begin, from a place on."""
    while True:
        try:
            at = windows.index(wanted[0], at)
        except ValueError:
            return None
        if windows[at : at + len(wanted)] == wanted:
            return at
        at += 1


def documents(folder: Path) -> dict[str, str]:
    """Return source -> the text of its document, by the titles with which files of a folder begin.

    Raises:
        ValueError: the folder holds no document of this title, or two.
    """
    texts = {path: path.read_text("utf-8") for path in sorted(folder.glob("*.txt"))}
    found: dict[str, str] = {}
    for source, title in TITLES.items():
        own = [text for text in texts.values() if _starts(text, title)]
        if len(own) != 1:
            raise ValueError(
                f"{folder}: expected one .txt file that begins with {title!r}, got {len(own)}"
            )
        found[source] = own[0]
    return found


def _starts(text: str, title: str) -> bool:
    return " ".join(words(text[: 4 * len(title)])).startswith(" ".join(words(title)))


def read_windows(folder: Path) -> dict[str, list[str]]:
    """Return source -> the digests that a folder keeps of its document.

    Raises:
        OSError: a file is missing.
    """
    return {source: (folder / f"{source}.txt").read_text("ascii").split() for source in TITLES}


def write_windows(texts: Mapping[str, str], folder: Path) -> None:
    """Write the digests of all documents into a folder, a file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, text in texts.items():
        found = digests(words(text))
        lines = (" ".join(found[at : at + _A_LINE]) for at in range(0, len(found), _A_LINE))
        (folder / f"{source}.txt").write_text("\n".join(lines) + "\n", "ascii")


def main(arguments: Iterable[str] | None = None) -> int:
    """Write the digests; returns the exit status, which is 2 where that cannot be done."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 2:
        print("usage: python -m measured_book.evidence.quotations FOLDER INTO", file=sys.stderr)
        return 2
    try:
        write_windows(documents(Path(given[0])), Path(given[1]))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
