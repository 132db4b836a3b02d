"""What the cells of first-edition chapters gave, kept in the repository: `book/_executed/NAME.xz`.

These chapters train when they are executed, some twenty minutes for all. A clone prints them from these
files, as long as a chapter's cells and fingerprint are those that the file was made with; otherwise the
chapter is executed. Chapters that have a room keep results instead, and their cells always run.

A file is compressed by xz. Its first line is the SHA-256 of all that follows: a line of JSON, with the
outputs of each code cell as in a notebook, and then the grids of the figures (`drawings`), which the outputs
name where the notebook had PNG files. ``xz -dc NAME.xz | sed -n 2p | python -m json.tool`` shows what it says.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import lzma
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from bookpress import machine
from bookpress.cache import Entry
from bookpress.chapters import Chapter

FOLDER = "book/_executed"
_FORM = 1
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 0, "pb": 0}]
_NAME = "@@drawing {number} {which}@@"


class DamagedError(ValueError):
    """A file that does not hold what was written to it."""


@dataclass(frozen=True)
class Kept:
    """What a file says of a chapter.

    Attributes:
        path: the file.
        told: its line of JSON: ``key`` and ``fingerprint`` of the chapter that was executed, the ``seconds``
            that it took, the ``machine`` (see `machine.here`), ``cells``, ``drawings`` and ``metadata``.
        grids: of the figures; empty where only the head of the file was read.
    """

    path: Path
    told: dict[str, Any]
    grids: bytes = b""

    @property
    def seconds(self) -> float:
        """How long the chapter ran."""
        return float(self.told["seconds"])

    def fill(self, notebook: NotebookNode) -> NotebookNode:
        """The chapter with the outputs of its cells."""
        words = json.dumps(self.told["cells"])
        for name, png in self._drawings():
            words = words.replace(name, base64.b64encode(png).decode())
        cells = [nbformat.from_dict(cell) for cell in json.loads(words)]
        filled = copy.deepcopy(notebook)
        code = (cell for cell in filled.cells if cell.cell_type == "code")
        for cell, ran in zip(code, cells, strict=True):
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
        filled.metadata |= nbformat.from_dict(self.told["metadata"])
        return filled

    def _drawings(self) -> Iterator[tuple[str, bytes]]:
        from bookpress.drawings import Drawings, unpack

        begin = 0
        for number, head in enumerate(self.told["drawings"]):
            width, height = head["size"]
            palettes = tuple(base64.b64decode(text) for text in head["palettes"])
            end = begin + (width + 1) * height
            grid, begin = self.grids[begin:end], end
            files = unpack(Drawings(width, height, head["dpi"], palettes, grid))
            for which, png in enumerate(files):
                yield _NAME.format(number=number, which=which), png


def path_of(root: Path, chapter: Chapter) -> Path:
    """Where the outputs of a chapter are kept."""
    return root / FOLDER / f"{chapter.path.stem}.xz"


def head(path: Path) -> Kept | None:
    """What a file says without its figures, unchecked; None where there is none that can be read."""
    try:
        with lzma.open(path) as file:
            file.readline()
            return Kept(path, json.loads(file.readline()))
    except (OSError, EOFError, ValueError, lzma.LZMAError):
        return None


def read(path: Path) -> Kept:
    """Read and check a file.

    Raises:
        DamagedError: it is not what was written, in one sentence.
        FileNotFoundError: there is none.
    """
    try:
        with lzma.open(path) as file:
            checksum = file.readline().strip().decode("ascii", "replace")
            content = file.read()
    except (EOFError, lzma.LZMAError) as error:
        raise DamagedError(f"{FOLDER}/{path.name} is damaged ({error})") from None
    if hashlib.sha256(content).hexdigest() != checksum:
        raise DamagedError(f"{FOLDER}/{path.name} is damaged (it is not what was written)")
    line, _, grids = content.partition(b"\n")
    told = json.loads(line)
    if told["form"] != _FORM:
        raise DamagedError(f"expected form {_FORM} of {FOLDER}/{path.name}, got {told['form']}")
    return Kept(path, told, grids)


def keep(
    root: Path, executed: Mapping[Chapter, Entry], all_chapters: Iterable[Chapter]
) -> Iterator[Path]:
    """Keep what chapters without a room gave, and name each file that is written or removed for that.

    Args:
        root: the book's root folder.
        executed: what is to be kept.
        all_chapters: the book's chapters; files of others, and of those that have a room now, are removed.
    """
    for chapter, entry in executed.items():
        path = path_of(root, chapter)
        if chapter.room is None and not _holds(path, entry):
            _write(path, chapter, entry)
            yield path
    wanted = {path_of(root, chapter) for chapter in all_chapters if chapter.room is None}
    for path in sorted(set((root / FOLDER).glob("*.xz")) - wanted):
        path.unlink()
        yield path


def _holds(path: Path, entry: Entry) -> bool:
    """Whether a file is sound and holds an entry of the cache, or the entry was made from it."""
    try:
        told = read(path).told
    except (FileNotFoundError, DamagedError):
        return False
    made_from_it = bool(entry.details.get("kept"))
    return told["key"] == entry.key and (made_from_it or told["notebook"] == entry.checksum)


def _write(path: Path, chapter: Chapter, entry: Entry) -> None:
    """Write a file, whole or not at all."""
    notebook = entry.notebook()
    cells = [
        {"outputs": cell.outputs, "execution_count": cell.execution_count}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    words, drawings, grids = _packed(json.dumps(cells, sort_keys=True), cells)
    told = {
        "form": _FORM,
        "chapter": chapter.docname,
        "key": entry.key,
        "fingerprint": entry.details["stamp"],
        "seconds": round(entry.seconds, 1),
        "machine": entry.details.get("machine") or machine.here(),
        "notebook": entry.checksum,
        "metadata": {
            name: notebook.metadata[name]
            for name in ("language_info", "widgets")
            if name in notebook.metadata
        },
        "drawings": drawings,
        "cells": json.loads(words),
    }
    content = json.dumps(told, sort_keys=True).encode() + b"\n" + grids
    checksum = hashlib.sha256(content).hexdigest().encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_bytes(lzma.compress(checksum + content, filters=_FILTERS))
    half.replace(path)


def _packed(words: str, cells: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]], bytes]:
    """Take the figures out of the outputs: names stand where PNG files stood, in HTML as well."""
    from bookpress.drawings import pack

    heads: list[dict[str, Any]] = []
    grids = b""
    for output in (output for cell in cells for output in cell["outputs"]):
        light = output.get("data", {}).get("image/png")
        if light is None:
            continue
        dark = output.get("metadata", {}).get("measured", {}).get("dark")
        texts = [text.strip() for text in (light, dark) if text is not None]
        if texts[0] not in words:
            continue  # a drawing that an earlier output showed
        packed = pack([base64.b64decode(text) for text in texts])
        for which, text in enumerate(texts):
            words = words.replace(text, _NAME.format(number=len(heads), which=which))
        palettes = [base64.b64encode(palette).decode() for palette in packed.palettes]
        size = [packed.width, packed.height]
        heads.append({"size": size, "dpi": packed.dpi, "palettes": palettes})
        grids += packed.grid
    return words, heads, grids
