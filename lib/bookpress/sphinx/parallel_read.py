"""Both cores at work: half of the pages read by a second process, and pages written beside others.

Sphinx can read pages side by side, but in many small shares, each with a process of its own that judges rooms
and reads modules which others have judged and read. Here the work is divided once, by an estimate, and what the
second process found joins the rest when Sphinx has read its half. Sphinx's own way writes pages side by side.
"""

from __future__ import annotations

import atexit
import os
import pickle
from collections.abc import Mapping
from pathlib import Path

from jupyter_cache import get_cache
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.parallel import ParallelTasks, parallel_available

_PAGE, _MODULE, _CELLS, _SIGNS = 1.0, 1.0, 4.0, 10_000
"""What a page takes: any page, each module that it describes, cells, and how many signs of text take 1."""
_LEAST = 20.0
"""A share below this is not worth a process."""


def share_of(costs: Mapping[str, float]) -> list[str]:
    """Choose the pages for the second process: half of all work.

    Args:
        costs: what each page takes that is to be read.
    """
    halves: tuple[list[str], list[str]] = [], []
    taken = [0.0, 0.0]
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        less = int(taken[1] < taken[0])
        halves[less].append(name)
        taken[less] += costs[name]
    return halves[1] if taken[1] >= _LEAST else []


class ParallelRead:
    """Reads half of a build's pages in a process of its own."""

    def __init__(self) -> None:
        self._tasks: ParallelTasks | None = None
        self._share: list[str] = []

    def start(self, app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
        """Take the share from `docnames`, the pages to be read, and begin with it."""
        self._tasks = None
        if not parallel_available or (os.cpu_count() or 1) < 2 or app.parallel > 1:
            return
        others = [name for name in docnames if name != app.config.root_doc]  # Sphinx misses it else
        self._share = share_of({name: _cost(env, name) for name in others})
        if not self._share or _refused(app):
            return
        _make_tables(env)
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
        read = self._tasks is not None
        if self._tasks is not None:
            self._tasks.join()
            self._tasks = None
            atexit.unregister(self.abandon)
            app.parallel = 3  # Sphinx has one less write, while it prepares what they write
        _forget_unused(env)
        return self._share if read else []

    def abandon(self, *_: object) -> None:
        """End the second process where its share is not wanted any more, since the build failed."""
        if self._tasks is not None:
            self._tasks.terminate()
            self._tasks = None


def _make_tables(env: BuildEnvironment) -> None:
    """Make the tables of the cells' cache before two processes look there: one might find them half made."""
    config = getattr(env, "mystnb_config", None)
    if config is not None and config.execution_cache_path:
        _ = get_cache(config.execution_cache_path).db


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
    """Return whether an extension says that pages must be read one after another.

    One says nothing, sphinx_multitoc_numbering: it numbers chapters when all pages are read.
    """
    return any(e.parallel_read_safe is False for e in app.extensions.values())


def _cost(env: BuildEnvironment, docname: str) -> float:
    text = Path(env.doc2path(docname)).read_text("utf-8")
    cost = _PAGE + len(text) / _SIGNS + _MODULE * text.count("automodule::")
    return cost + (_CELLS if "{code-cell}" in text else 0.0)


def setup(app: Sphinx) -> None:
    """Connect where the pages to be read are known, and first where all are read."""
    parallel = ParallelRead()
    app.connect("env-before-read-docs", parallel.start, priority=900)
    app.connect("env-updated", parallel.finish, priority=1)
    app.connect("build-finished", parallel.abandon)
