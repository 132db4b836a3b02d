"""The executed notebooks, kept in jupyter-cache and trusted only as they were stored.

Each entry's row carries the SHA-256 of the notebook file beside it.  An entry whose file is missing,
cut short or altered, or which carries no checksum, is reported, removed and counts as never executed;
a damaged database takes all entries with it.
"""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from filelock import FileLock
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.cache.db import NbCacheRecord
from jupyter_cache.cache.main import JupyterCacheBase
from nbformat import NotebookNode
from sqlalchemy.exc import SQLAlchemyError

from bookpress.disk import refusal

FOLDER = "_build/.jupyter_cache"


@dataclass(frozen=True)
class Entry:
    """One executed notebook in the cache."""

    key: str
    checksum: str
    path: Path
    seconds: float
    created: datetime
    details: dict[str, Any]

    @property
    def identity(self) -> str:
        """What changes whenever the notebook does: its key and its content."""
        return f"{self.key}-{self.checksum[:16]}"

    def notebook(self) -> NotebookNode:
        """Read the executed notebook: its code cells with their outputs."""
        read: NotebookNode = nbformat.read(self.path, nbformat.NO_CONVERT)
        return read


class Cache:
    """A folder of executed notebooks, each under the key of its cells and its fingerprint."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self.warn = warn
        self._store = JupyterCacheBase(folder)

    def find(self, key: str, name: str) -> Entry | None:
        """Find the executed notebook with a key: with the same cells and fingerprint (see `key_of`).

        Returns None when there is none, also when what is there was damaged: then a warning that
        mentions `name` says so, and the damaged entry is removed.
        """
        if not self.folder.is_dir():
            return None
        try:
            row = NbCacheRecord.record_from_hashkey(key, self._store.db)
        except KeyError:
            return None
        except (SQLAlchemyError, RuntimeError, OSError) as error:
            self._restart(error)
            return None
        path = self._store._get_notebook_path_cache(key)
        damage = _damage(path, (row.data or {}).get("sha256"))
        if damage is not None:
            self.warn(f"the stored run of {name} is damaged ({damage}); it will be executed again")
            self._remove(key, row.pk)
            return None
        return _entry(row, path)

    def add(
        self, notebook: NotebookNode, name: str, seconds: float, details: dict[str, Any]
    ) -> Entry:
        """Keep an executed notebook, in the place of an earlier one with the same key.

        `name` is the chapter's file; `details` is kept with the entry and must be JSON.
        """
        with FileLock(self.folder.with_name(f"{self.folder.name}.lock"), mode=0o644):
            return self._add(notebook, name, seconds, details)

    def _add(
        self, notebook: NotebookNode, name: str, seconds: float, details: dict[str, Any]
    ) -> Entry:
        hashed, key = self._store.create_hashed_notebook(notebook)
        content = nbformat.writes(hashed, nbformat.NO_CONVERT).encode("utf-8")
        data = {**details, "execution_seconds": seconds, "sha256": _checksum(content)}
        bundle = CacheBundleIn(notebook, name, data=data)
        try:
            self._store.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
        except (SQLAlchemyError, RuntimeError) as error:
            self._restart(error)
            self._store.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
        row = NbCacheRecord.record_from_hashkey(key, self._store.db)
        return _entry(row, self._store._get_notebook_path_cache(key))

    def latest(self, name: str) -> dict[str, Any] | None:
        """The details of the newest entry of a chapter's file, whatever its key; None without one."""
        if not self.folder.is_dir():
            return None
        try:
            rows = [r for r in NbCacheRecord.records_all(self._store.db) if r.uri == name]
        except (SQLAlchemyError, RuntimeError, OSError) as error:
            self._restart(error)
            return None
        newest = max(rows, key=lambda row: row.created, default=None)
        return None if newest is None else dict(newest.data or {})

    def _remove(self, key: str, row: int) -> None:
        shutil.rmtree(self.folder / "executed" / key, ignore_errors=True)
        NbCacheRecord.remove_records([row], self._store.db)

    def _restart(self, error: Exception) -> None:
        """Begin anew after damage; what the disk refuses is none, and is raised as what it is."""
        if refused := refusal(error, self.folder):
            raise refused from error
        reason = str(error.__cause__ or error).splitlines()[0]
        self.warn(
            f"the store of executed chapters is damaged ({reason}); all will be executed again"
        )
        shutil.rmtree(self.folder, ignore_errors=True)
        self._store = JupyterCacheBase(self.folder)


def key_of(notebook: NotebookNode) -> str:
    """Return the key under which jupyter-cache files a notebook: its code, and its fingerprint."""
    _, key = JupyterCacheBase("").create_hashed_notebook(notebook)
    return str(key)


def with_outputs(source: NotebookNode, executed: NotebookNode) -> NotebookNode:
    """Put the outputs of an executed notebook into the notebook as it was read from its chapter.

    Whatever else the run left in the cells (time stamps, identifiers) is part of jupyter-cache's key
    and would hide the result from the HTML build.
    """
    if len(source.cells) != len(executed.cells):
        raise ValueError(f"expected {len(source.cells)} executed cells, got {len(executed.cells)}")
    merged = copy.deepcopy(source)
    for cell, ran in zip(merged.cells, executed.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs = copy.deepcopy(ran.outputs)
            cell.execution_count = ran.execution_count
    for name in ("language_info", "widgets"):
        if name in executed.metadata:
            merged.metadata[name] = executed.metadata[name]
    return merged


def _damage(path: Path, checksum: str | None) -> str | None:
    """Say in what way a stored notebook cannot be trusted; None when it can."""
    if not path.is_file():
        return "its notebook is missing"
    if checksum is None:
        return "it has no checksum"
    content = path.read_bytes()
    if _checksum(content) != checksum:
        return "its notebook is not what was stored"
    return None


def _entry(row: NbCacheRecord, path: Path) -> Entry:
    details = dict(row.data)
    checksum, seconds = details.pop("sha256"), details.pop("execution_seconds")
    return Entry(row.hashkey, checksum, path, seconds, row.created, details)


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
