"""Staleness inside Sphinx: pages show chapters that were executed as they are now, or are not printed.

Before any page is read, stale chapters run through `python -m bookpress execute`; if one fails, the
build ends there, each time anew.  When a chapter is read, its fingerprint goes into the text, so that
MyST-NB finds the executed notebook under the key it was stored with and executes nothing itself.
"""

from __future__ import annotations

import subprocess
import sys
from logging import WARNING, LogRecord, getLogger
from pathlib import Path

from sphinx.application import ENV_PICKLE_FILENAME, Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from bookpress import cache, chapters, disk, fingerprint
from bookpress.chapters import Book
from bookpress.jobs import open_cache
from bookpress.survey import State, survey

SHOWN = "executed_notebook"
"""Page metadata: the identity of the executed notebook that the page was printed from."""

_LOGGER = logging.getLogger(__name__)


def setup_staleness(app: Sphinx) -> None:
    """Connect to the events of a build."""
    app.connect("builder-inited", stop_at_refusals, priority=100)
    app.connect("builder-inited", execute_stale, priority=900)
    app.connect("env-get-outdated", reread_changed)
    app.connect("source-read", stamp_source, priority=900)
    app.connect("build-finished", forget_if_warned)
    app.connect("build-finished", remove_pages_that_left)


def stop_at_refusals(app: Sphinx) -> None:
    """End the build at the first file that the disk refuses; Sphinx would warn of each and go on."""
    folder = Path(app.outdir)

    def refuse(record: LogRecord) -> bool:
        if record.levelno >= WARNING and (refused := disk.refusal_in(record.getMessage(), folder)):
            raise refused
        return True

    for handler in getLogger(logging.NAMESPACE).handlers:
        handler.addFilter(refuse)


def execute_stale(app: Sphinx) -> None:
    """Run the chapters that are stale, and end the build when one fails.

    The end is a SystemExit, so that what is said last is which chapter failed and where, not the
    traceback of an extension that did its work.
    """
    config = getattr(app.env, "mystnb_config", None)
    book = _book(app)
    app.env.bookpress_executed = None  # type: ignore[attr-defined]
    if book is None or config is None or config.execution_mode != "cache":
        return
    folder = str(book.root / cache.FOLDER)
    app.env.mystnb_config = config.copy(execution_cache_path=folder)  # type: ignore[attr-defined]
    states = _survey(book)
    stale = [state for state in states if state.entry is None]
    if stale:
        paths = [str(state.chapter.path) for state in stale]
        command = [sys.executable, "-m", "bookpress", "execute", "--root", str(book.root), *paths]
        if subprocess.run(command, check=False).returncode:
            raise SystemExit("no page was printed, because a chapter could not be executed")
        states = _survey(book)
    unsure = [state.chapter.source for state in states if state.entry is None]
    if unsure:
        raise SystemExit(f"changed while the book was built: {', '.join(unsure)}; build again")
    identities = {s.chapter.path: s.entry.identity for s in states if s.entry is not None}
    app.env.bookpress_executed = identities  # type: ignore[attr-defined]


def reread_changed(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Name the pages that show another executed notebook than the one there is now."""
    del app, added, changed, removed
    executed = _executed(env) or {}
    return [
        docname
        for docname in env.all_docs
        if env.metadata[docname].get(SHOWN) != executed.get(_path(env, docname))
    ]


def stamp_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Write the fingerprint into a chapter's text and note the files that it comes from.

    A page with cells that `_toc.yml` does not name is no chapter: it is shown without being run, and
    a warning says so.
    """
    path = _path(app.env, docname)
    root, executed = chapters.find_root(path), _executed(app.env)
    if root is None or executed is None or not chapters.is_chapter(path, source[0]):
        return
    if path not in executed:
        message = "%s is not in %s, so its cells were not executed"
        _LOGGER.warning(message, docname, chapters.TOC, type="bookpress", location=docname)
        source[0] = chapters.unexecuted(source[0])
        return
    stamp = fingerprint.stamp(root, path)
    source[0] = chapters.stamped(source[0], stamp.digest)
    for dependency in stamp.dependencies:
        app.env.note_dependency(str(dependency))
    app.env.metadata[docname][SHOWN] = executed[path]


def forget_if_warned(app: Sphinx, exception: Exception | None) -> None:
    """Make a build that ended in warnings treated as errors read every page again next time.

    Sphinx keeps the pages it has read, warnings or not; the next build would read none of them
    again, warn of nothing and succeed.  (Without --keep-going Sphinx stops at the first warning, and
    forgets by itself.)
    """
    if exception is None and app.keep_going and app._warncount:
        (Path(app.doctreedir) / ENV_PICKLE_FILENAME).unlink(missing_ok=True)


def remove_pages_that_left(app: Sphinx, exception: Exception | None) -> None:
    """Delete the pages of documents that the book no longer has.

    Which pages are a document's is told by the copies of their sources that Sphinx lays beside them.
    """
    if exception is not None or app.builder.name != "html":
        return
    pages = Path(app.outdir)
    sources = pages / "_sources"
    for copied in [path for path in sources.rglob("*") if path.is_file()]:
        name = copied.relative_to(sources).as_posix()
        docname = name.removesuffix(app.config.html_sourcelink_suffix or "")
        docname = docname.rpartition(".")[0]
        if docname and docname not in app.env.found_docs:
            _LOGGER.info("removing the page of %s, which left the book", docname)
            copied.unlink()
            (pages / f"{docname}.html").unlink(missing_ok=True)
            (pages / "_notebooks" / f"{docname}.ipynb").unlink(missing_ok=True)


def _book(app: Sphinx) -> Book | None:
    """The chapters that this build prints: the book's, or the one of a single-page build."""
    root = chapters.find_root(Path(app.srcdir))
    if root is None:
        return None
    book = chapters.load_book(root)
    if root == Path(app.srcdir).resolve():
        return book
    page = Path(app.srcdir, app.config.root_doc).resolve()
    return Book(root, tuple(c for c in book.chapters if c.path.with_suffix("") == page))


def _survey(book: Book) -> list[State]:
    return survey(book, open_cache(book.root))


def _path(env: BuildEnvironment, docname: str) -> Path:
    return Path(env.doc2path(docname)).resolve()


def _executed(env: BuildEnvironment) -> dict[Path, str] | None:
    """The identity of each chapter's executed notebook; None where this build runs no cells."""
    found: dict[Path, str] | None = getattr(env, "bookpress_executed", None)
    return found
