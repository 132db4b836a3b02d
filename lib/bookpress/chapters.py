"""The book's chapters: which files they are, and the cells that a run and a page see in them.

A chapter is a MyST notebook that `_toc.yml` names and that holds code cells.  Its cells are read with
MyST-NB's own reader and the book's own syntax extensions, so that the notebook which is executed
equals, cell by cell, the one that the HTML build looks for among the executed ones.
"""

from __future__ import annotations

import copy
import functools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from nbformat import NotebookNode
from sphinx_external_toc.parsing import parse_toc_yaml

TOC = "_toc.yml"
CONFIG = "_config.yml"
KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#[ \t]+(.+?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Chapter:
    """One chapter: its file, its name for Sphinx (`book/positions/rotary`), and its title."""

    path: Path
    docname: str
    title: str

    @property
    def source(self) -> str:
        """The file's path from the book's root, as messages show it: `book/positions/rotary.md`."""
        return f"{self.docname}{self.path.suffix}"


@dataclass(frozen=True)
class Book:
    """A book's root folder and its chapters in reading order."""

    root: Path
    chapters: tuple[Chapter, ...]


def load_book(root: Path) -> Book:
    """Read the order of the book and keep the pages that have code cells.

    Raises ValueError when `root` has no `_toc.yml`, when that names a file which does not exist, and
    when two chapters have the same file name, which their room and their lab notes have too.
    """
    root = root.resolve()
    toc = root / TOC
    if not toc.is_file():
        raise ValueError(f"expected a book's root folder, with {TOC} in it, got {root}")
    chapters = []
    for docname in parse_toc_yaml(toc):
        path = root / docname
        if path.suffix not in {".md", ".ipynb", ".rst"}:
            path = _with_suffix(path)
        if not path.is_file():
            raise ValueError(f"{TOC} names {docname!r}, but {root} has no such page")
        text = path.read_text("utf-8")
        if is_chapter(path, text):
            chapters.append(chapter_at(root, path, text))
    for name, count in Counter(chapter.path.stem for chapter in chapters).items():
        if count > 1:
            raise ValueError(f"expected one chapter called {name}, got {count}; rename all but one")
    return Book(root, tuple(chapters))


def find_root(path: Path) -> Path | None:
    """Find the root of the book that a file belongs to: the nearest folder upwards with a `_toc.yml`."""
    for folder in (path.resolve(), *path.resolve().parents):
        if (folder / TOC).is_file():
            return folder
    return None


def is_part_page(docname: str) -> bool:
    """Tell whether a page of a numbered part opens it, without a number: it is called `index`."""
    return docname.rpartition("/")[2] == "index"


def is_chapter(path: Path, text: str | None = None) -> bool:
    """Tell whether a file is a MyST notebook with at least one code cell."""
    if path.suffix != ".md" or not path.is_file():
        return False
    text = path.read_text("utf-8") if text is None else text
    return "{code-cell}" in text and is_myst_markdown_notebook(text)


def chapter_at(root: Path, path: Path, text: str | None = None) -> Chapter:
    """Describe the chapter in one file, whether or not `_toc.yml` names it."""
    path = path.resolve()
    text = path.read_text("utf-8") if text is None else text
    docname = path.relative_to(root.resolve()).with_suffix("").as_posix()
    return Chapter(path, docname, _title(text) or docname)


def notebook(chapter: Chapter, fingerprint: str | None = None) -> NotebookNode:
    """Read a chapter as a notebook, as the HTML build will see it.

    With `fingerprint`, the notebook's `kernelspec` carries it, which makes it part of the key under
    which jupyter-cache files the executed notebook.
    """
    text = chapter.path.read_text("utf-8")
    if fingerprint is not None:
        text = stamped(text, fingerprint)
    return read_notebook(text, chapter.path)


def read_notebook(text: str, path: Path) -> NotebookNode:
    """Turn the text of a MyST notebook into cells, with the syntax extensions of its book."""
    root = find_root(path)
    return copy.deepcopy(_read(text, str(path), _extensions(root) if root else frozenset()))


@functools.lru_cache(maxsize=128)
def _read(text: str, path: str, extensions: frozenset[str]) -> NotebookNode:
    """Read a text once: a print asks for each chapter's cells five times."""
    config = MdParserConfig(enable_extensions=set(extensions))
    read: NotebookNode = read_myst_markdown_notebook(
        text, config=config, add_source_map=True, path=path
    )
    return read


def front_matter(text: str) -> dict[str, Any]:
    """Return the YAML mapping at the head of a page; empty when there is none."""
    match = _FRONT_MATTER.match(text)
    found = yaml.safe_load(match.group(1)) if match else None
    return found if isinstance(found, dict) else {}


def rooms_of(front_matter: Mapping[str, Any]) -> list[str]:
    """The rooms that a page's front matter names: its own first, then those that feed it too.

    ``measured: {room: heads, further: [one_head]}`` is the front matter of a chapter of two rooms.
    """
    measured = front_matter.get("measured")
    if not isinstance(measured, dict) or measured.get("room") is None:
        return []
    return [str(room) for room in (measured["room"], *(measured.get("further") or ()))]


def shared_with(front_matter: Mapping[str, Any]) -> list[str]:
    """The other pages that a page's rooms feed, by their document names.

    ``measured: {room: learning_rate, shared: [book/training/optimisers]}`` is the front matter of one of two
    chapters of one room; each of them shows the claims that the registry gives to it.
    """
    measured = front_matter.get("measured")
    if not isinstance(measured, dict):
        return []
    return [str(name) for name in measured.get("shared") or ()]


def stamped(text: str, fingerprint: str) -> str:
    """Write a fingerprint into the `kernelspec` of a page's front matter."""
    kernel = KERNEL | (front_matter(text).get("kernelspec") or {})
    return _with_front_matter(text, {"kernelspec": kernel | {"fingerprint": fingerprint}})


def unexecuted(text: str) -> str:
    """Write into a page's front matter that MyST-NB is to show its cells without running them."""
    settings = front_matter(text).get("mystnb") or {}
    return _with_front_matter(text, {"mystnb": settings | {"execution_mode": "off"}})


def _with_front_matter(text: str, changed: dict[str, Any]) -> str:
    """Change entries of a page's front matter.

    It is rewritten as one line of YAML followed by as many empty lines as it had before, so that the
    line numbers of the rest, which warnings and error messages name, stay.
    """
    match = _FRONT_MATTER.match(text)
    if match is None:
        first = text.partition("\n")[0]
        raise ValueError(
            f"expected a page that begins with front matter between two lines of ---, got {first!r}"
        )
    metadata = front_matter(text) | changed
    line = yaml.safe_dump(metadata, default_flow_style=True, width=float("inf"), allow_unicode=True)
    padding = "\n" * (match.group(1).count("\n") - 1)
    return f"---\n{line.strip()}\n{padding}---\n{text[match.end() :]}"


def cell_line(chapter: Chapter, read: NotebookNode, index: int) -> int:
    """Give the line of the chapter's file, counted from 1, where the code of cell `index` begins."""
    starts: list[int] = read.metadata.get("source_map", [])
    start = starts[index] if index < len(starts) else 0
    first = next((line for line in read.cells[index].source.splitlines() if line.strip()), "")
    lines = chapter.path.read_text("utf-8").splitlines()
    return next((n for n, line in enumerate(lines[start:], start + 1) if line == first), start + 1)


def _with_suffix(path: Path) -> Path:
    """Complete a page's name, which `_toc.yml` may give without its suffix."""
    candidates = (path.with_name(path.name + suffix) for suffix in (".md", ".ipynb", ".rst"))
    return next((candidate for candidate in candidates if candidate.is_file()), path)


def _title(text: str) -> str | None:
    body = _FRONT_MATTER.sub("", text)
    match = _HEADING.search(body)
    return match.group(1) if match else None


@functools.cache
def _extensions(root: Path) -> frozenset[str]:
    """The MyST syntax extensions of a book: those in its `_config.yml`, else Jupyter Book's own."""
    path = root / CONFIG
    config = (yaml.safe_load(path.read_text("utf-8")) if path.is_file() else None) or {}
    sphinx = (config.get("sphinx") or {}).get("config") or {}
    chosen = sphinx.get("myst_enable_extensions") or (config.get("parse") or {}).get(
        "myst_enable_extensions"
    )
    if not chosen:
        told = resources.files("jupyter_book").joinpath("default_config.yml").read_text()
        chosen = yaml.safe_load(told)["parse"]["myst_enable_extensions"]
    return frozenset(chosen)
