"""Telling that a disk refused what was written from every other error, however deep it lies.

Sphinx, Jupyter Book, SQLAlchemy and jupyter-cache each wrap such an error into one of their own. What a reader
can mend is always the same: a path that cannot be written to, and why.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

BUILD = "_build"
_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_RIGHTS = {errno.EACCES, errno.EPERM, errno.EROFS}
_REFUSALS = {*_ROOM, *_RIGHTS, errno.EIO}
_SQLITE = {8: errno.EROFS, 10: errno.EIO, 13: errno.ENOSPC}
"""Primary result codes of SQLite: READONLY, IOERR and FULL."""
_SQLITE_CANTOPEN = 14
_TOLD = re.compile(r"(?:\[Errno |\b\w*Error\()(\d+)[\],]")


def refusal(error: BaseException, folder: Path) -> OSError | None:
    """Return what the disk said, where that is what an error comes from; None where it is something else.

    Args:
        error: the error, and all it was raised from.
        folder: what was written to, where the error names no path.
    """
    for one in _chain(error):
        number, path = _number_and_path(one, folder)
        if number in _REFUSALS:
            return OSError(number, os.strerror(number), str(path or folder))
    return None


def refusal_in(text: str, folder: Path) -> OSError | None:
    """Return what the disk said, where a text such as a warning of Sphinx's tells it."""
    for found in _TOLD.finditer(text):
        if (number := int(found[1])) in _REFUSALS:
            return OSError(number, os.strerror(number), str(folder))
    return None


def write(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, "utf-8")
        half.replace(path)
    except OSError:
        half.unlink(missing_ok=True)
        raise


def in_words(error: OSError, folder: Path) -> str:
    """Return the sentence for an error of the system: what could not be written, why, and what to do.

    Args:
        error: the error.
        folder: what the press writes to; outside it, a path without rights may have been read as well.
    """
    if error.errno not in _REFUSALS:
        return str(error)
    path = Path(error.filename or folder).resolve()
    if error.errno in _ROOM:
        return f"cannot write to {path}: {error.strerror}; free some and run the same command again"
    ours = path.is_relative_to(folder.resolve())
    verb, change = ("write to", "writable") if ours else ("read or write", "accessible")
    if error.errno in _RIGHTS:
        advice = f"make it {change} and run the same command again"
        return f"cannot {verb} {path}: {error.strerror}; {advice}"
    return f"cannot {verb} {path}: {error.strerror}; check the disk and run the same command again"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, the outermost first."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _number_and_path(error: BaseException, folder: Path) -> tuple[int, str | None]:
    """Return the error number of the system (0: there is none) and the path, if there is one."""
    if isinstance(error, OSError):
        return error.errno or 0, _name(
            error.filename2 or error.filename
        )  # what was copied, and where to
    code = getattr(error, "sqlite_errorcode", None) or getattr(
        getattr(error, "orig", None), "sqlite_errorcode", None
    )
    if isinstance(code, int):
        primary = code & 0xFF
        number = _closed(folder) if primary == _SQLITE_CANTOPEN else _SQLITE.get(primary, 0)
        return number, None
    told = getattr(error, "traceback", None)  # of a process of Sphinx's
    found = refusal_in(told, folder) if isinstance(told, str) else None
    return (found.errno or 0, None) if found else (0, None)


def _closed(folder: Path) -> int:
    """Return the error number of a folder that cannot be written to; 0 where it can."""
    there = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    if os.access(there, os.W_OK):
        return 0
    return errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES


def _name(path: object) -> str | None:
    return os.fsdecode(path) if isinstance(path, (str, bytes)) else None
