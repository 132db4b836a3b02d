"""Style sheets and scripts that lie beside the pages before pages are written.

Sphinx gives the address of a style sheet or script its checksum where the file is there. MyST-NB copies its
style sheet, and this book MathJax, when all is written: at a first print their addresses would have none, at a
later one they would, and a page that is printed again would differ from the pages around it.
"""

from __future__ import annotations

from pathlib import Path

from myst_nb.sphinx_ext import add_global_html_resources
from sphinx.application import Sphinx


def _copy_early(app: Sphinx) -> None:
    if app.builder.format == "html":
        (Path(app.outdir) / "_static").mkdir(parents=True, exist_ok=True)
        add_global_html_resources(app, None)


def setup(app: Sphinx) -> None:
    """Register them."""
    app.connect("builder-inited", _copy_early)
