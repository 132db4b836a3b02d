"""One build at a time in a folder: two would execute the same chapters and write the same pages.

The lock is the operating system's, on `_build/print.lock`: it ends with the process that holds it, however
that ends. What a build starts itself (Sphinx starts `bookpress execute`) knows that the build has it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bookpress.disk import BUILD
from bookpress.progress import warn

FILE = f"{BUILD}/print.lock"
VARIABLE = "BOOKPRESS_LOCK"
"""Environment variable: the lock that this process, or one that it was started by, holds."""
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL}


@contextmanager
def alone(root: Path) -> Iterator[bool]:
    """Wait until no other build of this folder runs, and keep others waiting during the block.

    Yields whether there was one to wait for.
    """
    file = root.resolve() / FILE
    if os.environ.get(VARIABLE) == str(file):
        yield False
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    lock, waited = FileLock(file, mode=0o644), False
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waited = True
            print("another build is running; waiting for it", flush=True)
            lock.acquire(poll_interval=0.2)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        warn(f"{file} cannot be locked ({error}); let no other build run meanwhile")
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(file)
    try:
        yield waited
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        lock.release()
