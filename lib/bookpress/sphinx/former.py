"""Addresses that pages once had lead to the pages that took them up.

A page's front matter names them: ``measured: {formerly: [book/attention/one-head]}``. At each of these
addresses a page is written that leads on at once, to the same anchor where the address has one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookpress.chapters import front_matter
from bookpress.sphinx.editions import write_if_new
from bookpress.sphinx.page import warn

FORMER = "measured_former"
"""Page metadata: the document names that the page had before."""
_LEADS = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<script>location.replace("{address}" + location.hash)</script>
<noscript><meta http-equiv="refresh" content="0; url={address}"></noscript>
<title>{title}</title>
</head>
<body><p>This page is now part of <a href="{address}">{title}</a>.</p></body>
</html>
"""


def former_addresses(env: BuildEnvironment) -> Iterator[tuple[str, str]]:
    """Yield each document name that is no more, and the page that took it up."""
    for docname, about in sorted(env.metadata.items()):
        for name in about.get(FORMER, ()):
            yield name, docname


def leads(name: str, docname: str, title: str) -> str:
    """Return the page that leads from a former address to a page.

    Args:
        name: the former document name.
        docname: the page's.
        title: the page's title.
    """
    address = os.path.relpath(f"{docname}.html", Path(name).parent).replace(os.sep, "/")
    return _LEADS.format(address=escape(address), title=escape(title))


def _note(app: Sphinx, docname: str, source: list[str]) -> None:
    """Keep which names a page had before."""
    if docname not in app.env.found_docs or not str(app.env.doc2path(docname)).endswith(".md"):
        return
    about = front_matter(source[0]).get("measured")
    if isinstance(about, dict) and about.get("formerly"):
        app.env.metadata[docname][FORMER] = [str(name) for name in about["formerly"]]


def _check(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of a former address at which there is a page still, or to which two pages lay claim."""
    known: dict[str, str] = {}
    for name, docname in former_addresses(env):
        if name in env.found_docs:
            warn(f"{name} is said to be part of {docname} now, but is a page", "former", docname)
        elif known.setdefault(name, docname) != docname:
            warn(f"{name} is said to be part of {known[name]} and of {docname}", "former", docname)


def _write(app: Sphinx, error: Exception | None) -> None:
    """Write the pages that lead on."""
    if error is not None or app.builder.format != "html":
        return
    for name, docname in former_addresses(app.env):
        title = app.env.titles[docname].astext()
        write_if_new(Path(app.outdir, f"{name}.html"), leads(name, docname, title))


def setup(app: Sphinx) -> None:
    """Note the names while pages are read, and write the pages that lead on at the end."""
    app.connect("source-read", _note, priority=50)
    app.connect("env-check-consistency", _check)
    app.connect("build-finished", _write)
