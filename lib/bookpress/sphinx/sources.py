"""The pages of the library's source: the code, and the ways back into the book.

They do not have the book's table of contents and tools beside them, which would be longer than most modules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

FOLDER = "_modules/"
"""Where viewcode puts these pages."""
TEMPLATES = Path(__file__).parent / "templates"


def _add_template(app: Sphinx, config: Config) -> None:
    del app
    config.templates_path = [*config.templates_path, str(TEMPLATES)]


def _choose_template(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> str | None:
    del app, templatename, context, doctree
    return "source.html" if pagename.startswith(FOLDER) else None


def setup(app: Sphinx) -> None:
    """Have these pages written by a template of their own."""
    app.connect("config-inited", _add_template)
    app.connect("html-page-context", _choose_template, priority=900)
