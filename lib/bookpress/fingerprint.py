"""What a chapter's results depend on beside its own cells, reduced to one fingerprint.

The fingerprint covers the library modules that the chapter imports (directly or through others), with
the scripts and styles that lie beside them under the same name, the
pinned requirements, the profile and the seed offset, and the data that the chapter declares in its
front matter.  It travels in the notebook's `kernelspec`, and with that in the key under which
jupyter-cache files the executed notebook, which covers the cells themselves: a chapter is stale
exactly when no executed notebook lies under its key.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measured_transformer.evidence.profile import Profile, profile
from nbformat import NotebookNode

from bookpress import chapters
from bookpress.imports import Library, cell_trees

LIBRARY = "lib"
REQUIREMENTS = "requirements.txt"
CLAIMS = "lib/measured_transformer/chapters/{room}/claims.toml"
PACKAGED = (".css", ".js")
"""Kinds of files that a module of the same name puts into what it shows."""


class FingerprintError(ValueError):
    """A chapter's front matter asks for something that is not there."""


@dataclass(frozen=True)
class Stamp:
    """A chapter's fingerprint, the files it was taken from, and a hash of each ingredient.

    `parts` maps an ingredient (a file's path from the root, `profile`, `seed offset`) to its hash or
    value; two stamps that differ say there what changed.
    """

    digest: str
    dependencies: tuple[Path, ...]
    parts: dict[str, str]


def stamp(root: Path, chapter_path: Path, current: Profile | None = None) -> Stamp:
    """Take the fingerprint of one chapter.

    `current` is the profile that it is taken for, by default that of this run.

    Raises ValueError for a library module that does not parse and for data or claims that the front
    matter declares and that do not exist.
    """
    root = root.resolve()
    text = chapter_path.read_text("utf-8")
    notebook = chapters.read_notebook(text, chapter_path)
    files = dict.fromkeys(_library_files(root, notebook))
    files |= dict.fromkeys(_declared(root, chapters.front_matter(text), chapter_path))
    parts = {path.relative_to(root).as_posix(): _hash(path.read_bytes()) for path in files}
    requirements = root / REQUIREMENTS
    if requirements.is_file():
        files[requirements] = None
        parts[REQUIREMENTS] = _hash("\n".join(_pins(requirements.read_text("utf-8"))).encode())
    current = current or profile()
    parts["profile"] = current.name
    parts["seed offset"] = str(current.seed_offset)
    return Stamp(digest_of(parts), tuple(sorted(files)), parts)


def digest_of(parts: Mapping[str, str]) -> str:
    """The fingerprint that these ingredients, by name, amount to."""
    listing = "\n".join(f"{name} {value}" for name, value in sorted(parts.items()))
    return _hash(listing.encode())[:32]


@functools.cache
def _library(folder: Path) -> Library:
    return Library(folder)


def _library_files(root: Path, notebook: NotebookNode) -> Iterator[Path]:
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    packaged: dict[Path, list[Path]] = {}  # by folder
    for path in _library(root / LIBRARY).files(cell_trees(sources)).values():
        yield path
        folder = path.parent
        if folder not in packaged:
            packaged[folder] = sorted(each for each in folder.iterdir() if each.suffix in PACKAGED)
        yield from (each for each in packaged[folder] if each.name.startswith(f"{path.stem}."))


def _declared(root: Path, front_matter: dict[str, Any], chapter_path: Path) -> Iterator[Path]:
    """The files that a chapter names under `measured:` in its front matter."""
    declared = front_matter.get("measured") or {}
    patterns = declared.get("data") or []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        found = [path for path in sorted(root.glob(pattern)) if path.is_file()]
        if not found:
            raise FingerprintError(
                f"{chapter_path.name} declares data {pattern!r}, but no file under {root} matches"
            )
        yield from found
    if declared.get("claims"):
        path = root / CLAIMS.format(room=str(declared["claims"]).replace("-", "_"))
        if not path.is_file():
            raise FingerprintError(
                f"{chapter_path.name} declares claims {declared['claims']!r}, but there is no {path}"
            )
        yield path


def _pins(requirements: str) -> Iterator[str]:
    """The lines of a requirements file that pin something, without comments."""
    for line in requirements.splitlines():
        pin = line.split(" #")[0].strip()
        if pin and not pin.startswith("#"):
            yield pin


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
