"""The weights of live models, in files beside the pages: a page is read before they come, and they come once.

A live model (`measured_transformer.viewer.live`) has its weights in its HTML. In the book they become a script
under `_static/live/`, named by their checksum, which the page asks for: a script also comes from a folder that
is opened as a file, where nothing can be fetched.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

FOLDER = "_static/live"
"""Folder of the weights, beside the pages."""
_WEIGHTS = re.compile(
    r'<script type="application/octet-stream" class="lm-weights" data-key="(\w+)">([\w+/=\s]+)</script>'
)


def moved(body: str, folder: Path) -> str:
    """Write the weights in a page's HTML to the folder of the pages; returns HTML that names the files."""

    def move(found: re.Match[str]) -> str:
        key, weights = found.groups()
        file = folder / FOLDER / f"{key}.js"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f'(globalThis.liveArrived ||= {{}})["{key}"] = "{weights.strip()}";\n', "utf-8"
        )
        return (
            f'<script type="application/octet-stream" class="lm-weights" data-key="{key}" '
            f'data-from="{FOLDER}/{key}.js"></script>'
        )

    return _WEIGHTS.sub(move, body)


def _move(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Move the weights of a page when it is written."""
    del pagename, templatename
    if doctree is not None and app.builder.format == "html" and "lm-weights" in context["body"]:
        context["body"] = moved(context["body"], Path(app.outdir))


def setup(app: Sphinx) -> None:
    """Have weights moved when pages are written."""
    app.connect("html-page-context", _move)
