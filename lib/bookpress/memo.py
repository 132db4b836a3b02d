"""What was found out about chapters before, so that it need not be found out again: `_build/chapters.json`.

Which definitions a chapter's cells reach, and under which key its executed notebook is filed, takes a tenth
of a second to find out. It holds as long as the chapter's text does, and all code: the whole file is forgotten
when a module of the library, the pinned packages or the book's settings changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bookpress.disk import write

FILE = "_build/chapters.json"
_BESIDE = ("requirements.txt", "requirements-torch.txt", "_config.yml")


@dataclass(frozen=True)
class Code:
    """What the cells of a chapter reach: one digest, the digest of each definition, and their files."""

    digest: str
    parts: dict[str, str]
    files: list[str]


class Memo:
    """What is known about the chapters of one book; see `memo_of`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stamps: dict[str, tuple[int, int]] = {}
        self._state = ""
        self._chapters: dict[str, dict[str, Any]] = {}
        self._changed = False

    def code(self, path: Path, text: str, find: Callable[[], Code]) -> Code:
        """What a chapter of this text reaches, found out by `find` where it is not known."""
        known = self._of(path, text)
        if "code" in known and known["others"] == _contents(self._strangers(known["code"])):
            return Code(*known["code"])
        code = find()
        known["code"] = [code.digest, code.parts, code.files]
        known["others"] = _contents(self._strangers(known["code"]))
        self._changed = True
        return code

    def key(self, path: Path, text: str, digest: str, find: Callable[[], str]) -> str:
        """The key of a chapter of this text and fingerprint, found out by `find` where it is not known."""
        keys = self._of(path, text).setdefault("keys", {})
        if digest not in keys:
            keys[digest] = find()
            self._changed = True
        return str(keys[digest])

    def save(self) -> None:
        """Write down what is new."""
        if not self._changed:
            return
        known = {"state": self._state, "chapters": self._chapters}
        write(self._root / FILE, json.dumps(known))
        self._changed = False

    def _of(self, path: Path, text: str) -> dict[str, Any]:
        self._look()
        name, now = str(path), hashlib.sha256(text.encode()).hexdigest()
        if self._chapters.get(name, {}).get("text") != now:
            self._chapters[name] = {"text": now}
        return self._chapters[name]

    def _look(self) -> None:
        """Forget everything where something changed that all chapters depend on."""
        stamps = {path: _stamp(path) for path in self._files()}
        if stamps == self._stamps:
            return
        told = [sys.version, *(f"{n[len(str(self._root)) :]} {c}" for n, c in _contents(stamps))]
        state = hashlib.sha256("\n".join(told).encode()).hexdigest()
        if state != self._state:
            self._chapters, self._state = self._read(state), state
        self._stamps = stamps

    def _read(self, state: str) -> dict[str, dict[str, Any]]:
        try:
            found = json.loads((self._root / FILE).read_text("utf-8"))
            return dict(found["chapters"]) if found["state"] == state else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _files(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self._root / "lib"):
            folders[:] = [name for name in folders if name not in ("__pycache__", "results")]
            yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))
        yield from (str(self._root / name) for name in _BESIDE)

    def _strangers(self, code: list[Any]) -> list[str]:
        """Files of code that lies outside the book."""
        return [file for file in code[2] if not Path(file).is_relative_to(self._root)]


@functools.cache
def memo_of(root: Path) -> Memo:
    """The one of a book."""
    return Memo(root)


def _stamp(path: str) -> tuple[int, int]:
    try:
        at = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return at.st_mtime_ns, at.st_size


def _contents(files: Iterable[str]) -> list[list[str]]:
    return [[file, hashlib.sha256(_bytes(Path(file))).hexdigest()] for file in sorted(files)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
