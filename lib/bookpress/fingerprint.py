"""What a chapter's outputs depend on beside its own cells, reduced to one fingerprint.

The fingerprint covers the definitions that the chapter's cells reach in the library (`provenance`: syntax
trees by content), the scripts and styles that lie beside their modules under the same name, the versions that
outputs depend on, the seed offset, and what the front matter names: the results of the room, and other data.
It travels in the notebook's `kernelspec`, and with that in the key under which jupyter-cache files the
executed notebook.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measured_book.evidence.seeds import seed_offset
from measured_transformer.provenance import digest_source, files_of_source, reach_source, unchanging

from bookpress import chapters
from bookpress.memo import Code, memo_of

LIBRARY = "lib"
REQUIREMENTS = ("requirements.txt", "requirements-torch.txt")
RESULTS = "lib/measured_book/rooms/{room}/results/*"
PACKAGED = (".css", ".js")
"""Kinds of files that a module of the same name puts into what it shows."""
VERSIONS = ("matplotlib", "numpy", "scipy", "torch")
"""The packages whose pinned versions results depend on."""


class FingerprintError(ValueError):
    """A chapter's front matter asks for something that is not there."""


@dataclass(frozen=True)
class Stamp:
    """A chapter's fingerprint, the files it was taken from, and a hash of each ingredient.

    `parts` maps an ingredient (a definition, a file's path from the root, a package, `seed offset`) to its
    hash or value; two stamps that differ say there what changed.
    """

    digest: str
    dependencies: tuple[Path, ...]
    parts: dict[str, str]


def stamp(root: Path, chapter_path: Path) -> Stamp:
    """Take the fingerprint of one chapter.

    Raises ValueError for a library module that does not parse and for data that the front matter declares
    and that do not exist.
    """
    root = root.resolve()
    text = chapter_path.read_text("utf-8")
    code = memo_of(root).code(chapter_path, text, lambda: _reached(root, chapter_path, text))
    parts, files = dict(code.parts), dict.fromkeys(map(Path, code.files))
    beside = [file for path in files for file in _packaged(path)]
    data = dict.fromkeys([*beside, *_declared(root, chapters.front_matter(text), chapter_path)])
    parts |= {path.relative_to(root).as_posix(): _hash(path.read_bytes()) for path in data}
    told = [code.digest, *(value for name, value in sorted(parts.items()) if "/" in name)]
    files |= data
    for requirements in (root / name for name in REQUIREMENTS):
        if requirements.is_file():
            files[requirements] = None
            parts |= _versions(requirements.read_text("utf-8"))
    parts["seed offset"] = str(seed_offset())
    told += [f"{name} {parts[name]}" for name in (*VERSIONS, "seed offset") if name in parts]
    inside = tuple(sorted(path for path in files if path.is_relative_to(root)))
    return Stamp(_hash("\n".join(told).encode())[:32], inside, parts)


def _reached(root: Path, chapter_path: Path, text: str) -> Code:
    """Find out what the cells of a chapter reach."""
    notebook = chapters.read_notebook(text, chapter_path)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    with unchanging(root / LIBRARY):
        try:
            parts = {name: value[:16] for name, value in reach_source(cells).items()}
            return Code(digest_source(cells), parts, list(map(str, files_of_source(cells))))
        except SyntaxError as error:
            raise ValueError(
                f"{error.filename}, line {error.lineno}: expected Python, got {error.msg}"
            ) from None


def _packaged(module: Path) -> Iterator[Path]:
    for kind in PACKAGED:
        if (file := module.with_suffix(kind)).is_file():
            yield file


def _versions(requirements: str) -> dict[str, str]:
    """The pinned versions that results depend on, without what names a build of the same version."""
    found = {}
    for line in requirements.splitlines():
        name, _, version = line.split(" ")[0].partition("==")
        if name.lower() in VERSIONS and version:
            found[name.lower()] = version.partition("+")[0]
    return found


def _declared(root: Path, front_matter: dict[str, Any], chapter_path: Path) -> Iterator[Path]:
    """The files that a chapter names under `measured:` in its front matter, and its rooms' results."""
    declared = front_matter.get("measured") or {}
    patterns = declared.get("data") or []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        found = [path for path in sorted(root.glob(pattern)) if path.is_file()]
        if not found:
            raise FingerprintError(
                f"{chapter_path.name} declares data {pattern!r}, but no file under {root} matches"
            )
        yield from found
    for room in chapters.rooms_of(front_matter):
        found = sorted(root.glob(RESULTS.format(room=room)))
        yield from (path for path in found if path.is_file() and not path.name.startswith("."))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
