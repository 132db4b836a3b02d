"""A share of the pages read by a second process, while Sphinx reads the others.

Sphinx can read pages side by side, but deals them out by their names. What a page takes to read depends on what
it describes: a page of the reference looks through dozens of modules, and these pages are neighbours. Here the
work is divided by an estimate, the second process gets pages of the reference only, and what it found
joins the rest when Sphinx has read its share.
"""

from __future__ import annotations

import atexit
import os
import pickle
from collections.abc import Mapping
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.parallel import ParallelTasks, parallel_available

_PAGE = 2.5
"""What any page takes, where what describes one module takes 1."""
_LEAST = 25.0
"""A share below this is not worth a process."""


def share_of(modules: Mapping[str, int]) -> list[str]:
    """Choose the pages for the second process: of those that describe modules, up to half of all work.

    Args:
        modules: how many modules each page describes that is to be read.
    """
    costs = {name: _PAGE + number for name, number in modules.items()}
    room, share = sum(costs.values()) / 2, []
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        if modules[name] and costs[name] <= room:
            share.append(name)
            room -= costs[name]
    return share if sum(costs[name] for name in share) >= _LEAST else []


class ParallelRead:
    """Reads a share of a build's pages in a process of its own."""

    def __init__(self) -> None:
        self._tasks: ParallelTasks | None = None
        self._share: list[str] = []

    def start(self, app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
        """Take the share from `docnames`, the pages to be read, and begin with it."""
        self._tasks = None
        if not parallel_available or (os.cpu_count() or 1) < 2 or app.parallel > 1:
            return
        self._share = share_of({name: _modules(env, name) for name in docnames})
        if not self._share or _refused(app):
            return
        for name in self._share:
            docnames.remove(name)
            app.emit("env-purge-doc", env, name)
            env.clear_doc(name)

        def read(share: list[str]) -> bytes:
            env.app = app
            for name in share:
                app.builder.read_doc(name, _cache=False)
            return pickle.dumps(env, pickle.HIGHEST_PROTOCOL)

        def merge(share: list[str], found: bytes) -> None:
            env.merge_info_from(share, pickle.loads(found), app)

        self._tasks = ParallelTasks(1)
        atexit.register(self.abandon)  # or Python waits for a process that nobody listens to
        self._tasks.add_task(read, self._share, merge)

    def finish(self, app: Sphinx, env: BuildEnvironment) -> list[str]:
        """Wait for the share, add what was found, and name its pages as read."""
        del app
        read = self._tasks is not None
        if self._tasks is not None:
            self._tasks.join()
            self._tasks = None
            atexit.unregister(self.abandon)
        _forget_unused(env)
        return self._share if read else []

    def abandon(self, *_: object) -> None:
        """End the second process where its share is not wanted any more, since the build failed."""
        if self._tasks is not None:
            self._tasks.terminate()
            self._tasks = None


def _forget_unused(env: BuildEnvironment) -> None:
    """Drop names that have left their module, and sources that no page links to.

    viewcode drops the latter when the next page is read, and fails at the former.
    """
    sources = getattr(env, "_viewcode_modules", {})
    for _, tags, used, _ in filter(None, sources.values()):
        for name in used.keys() - tags.keys():
            del used[name]
    for module in [name for name, entry in sources.items() if entry and not entry[2]]:
        del sources[module]


def _refused(app: Sphinx) -> bool:
    """Whether an extension says that pages must be read one after another.

    One says nothing, sphinx_multitoc_numbering: it numbers chapters when all pages are read.
    """
    return any(e.parallel_read_safe is False for e in app.extensions.values())


def _modules(env: BuildEnvironment, docname: str) -> int:
    return Path(env.doc2path(docname)).read_text("utf-8").count("automodule::")


def setup(app: Sphinx) -> None:
    """Connect where the pages to be read are known, and first where all are read."""
    parallel = ParallelRead()
    app.connect("env-before-read-docs", parallel.start, priority=900)
    app.connect("env-updated", parallel.finish, priority=1)
    app.connect("build-finished", parallel.abandon)
