"""What the pages hold that others wrote, under which licence, with each licence's text beside the pages.

The directive ``{licences}`` is the table. A text comes from the package that brings the files, or from
`bookpress/licences` where a package brings none; all lie in the folder `_licences` of the printed book.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookpress.sphinx.editions import write_if_new

FOLDER = "_licences"
_OWN = Path(__file__).parents[1] / "licences"


@dataclass(frozen=True)
class Work:
    """Something that others wrote, and which of the book's files are of it.

    Attributes:
        name: what it is called.
        licence: by its SPDX expression.
        files: patterns of files below the folder of the pages.
        package: that brings the files.
        text: the licence's file in `bookpress/licences`; "" where the package has it.
    """

    name: str
    licence: str
    files: tuple[str, ...]
    package: str
    text: str = ""


WORKS = (
    Work(
        "MathJax", "Apache-2.0", ("_static/mathjax/*",), "sphinx-mathjax-offline", "Apache-2.0.txt"
    ),
    Work(
        "Font Awesome Free",
        "CC-BY-4.0 AND OFL-1.1 AND MIT",
        ("_static/scripts/fontawesome.js*", "_static/vendor/fontawesome/*"),
        "pydata-sphinx-theme",
        "font-awesome.txt",
    ),
    Work(
        "Bootstrap",
        "MIT",
        ("_static/scripts/bootstrap.js*",),
        "pydata-sphinx-theme",
        "bootstrap.txt",
    ),
    Work(
        "PyData Sphinx Theme",
        "BSD-3-Clause",
        (
            "_static/scripts/pydata-sphinx-theme.js",
            "_static/styles/pydata-sphinx-theme.css*",
            "_static/styles/theme.css",
            "_static/webpack-macros.html",
        ),
        "pydata-sphinx-theme",
    ),
    Work(
        "Sphinx Book Theme",
        "BSD-3-Clause",
        (
            "_static/scripts/sphinx-book-theme.js",
            "_static/styles/sphinx-book-theme.css*",
            "_static/images/logo_*",
            "_static/locales/*",
            "_static/sbt-webpack-macros.html",
        ),
        "sphinx-book-theme",
    ),
    Work(
        "Sphinx",
        "BSD-2-Clause",
        (
            "_static/basic.css",
            "_static/doctools.js",
            "_static/documentation_options.js",
            "_static/searchtools.js",
            "_static/sphinx_highlight.js",
            "_static/language_data.js",
            "_static/file.png",
            "_static/minus.png",
            "_static/plus.png",
        ),
        "sphinx",
    ),
    Work("Snowball", "BSD-3-Clause", ("_static/language_data.js",), "snowballstemmer"),
    Work("Pygments", "BSD-2-Clause", ("_static/pygments.css",), "pygments"),
    Work(
        "clipboard.js", "MIT", ("_static/clipboard.min.js",), "sphinx-copybutton", "clipboard.txt"
    ),
    Work(
        "sphinx-copybutton",
        "MIT",
        ("_static/copybutton*", "_static/copy-button.svg", "_static/check-solid.svg"),
        "sphinx-copybutton",
    ),
    Work("sphinx-togglebutton", "MIT", ("_static/togglebutton.*",), "sphinx-togglebutton"),
    Work(
        "Sphinx Design",
        "MIT",
        ("_static/design-tabs.js", "_static/sphinx-design.min.css"),
        "sphinx-design",
    ),
    Work("sphinx-exercise", "MIT", ("_static/exercise.css",), "sphinx-exercise"),
    Work("MyST-NB", "BSD-3-Clause", ("_static/mystnb.*.css",), "myst-nb"),
)


def work_of(file: str, works: tuple[Work, ...] = WORKS) -> Work | None:
    """Return whose a file of the printed book is; None for the book's own."""
    return next((w for w in works if any(fnmatchcase(file, each) for each in w.files)), None)


def text_of(work: Work) -> str:
    """Return the text of a work's licence.

    Raises:
        ValueError: its package brings none.
    """
    if work.text:
        return (_OWN / work.text).read_text("utf-8")
    for path in metadata.files(work.package) or ():
        if path.name.split(".")[0] in ("LICENSE", "LICENCE", "COPYING") and ".dist-info" in str(
            path
        ):
            return path.read_text("utf-8")
    raise ValueError(f"expected {work.package} to bring its licence, got none; keep it in {_OWN}")


def file_of(work: Work) -> str:
    """Return the name of the file that holds the text of a work's licence."""
    return f"{'-'.join(work.name.lower().replace('.', ' ').split())}.txt"


class _Licences(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        head = nodes.row()
        for title in ("What", "Release", "Licence and its text"):
            head += nodes.entry("", nodes.paragraph("", title))
        body = nodes.tbody("", *self._rows())
        widths = (nodes.colspec(colwidth=width) for width in (40, 20, 40))
        group = nodes.tgroup("", *widths, nodes.thead("", head), body, cols=3)
        return [nodes.table("", group, classes=["licences"])]

    def _rows(self) -> Iterator[nodes.row]:
        back = "../" * self.env.docname.count("/")
        for work in WORKS:
            uri = f"{back}{FOLDER}/{file_of(work)}"
            text = nodes.reference("", work.licence, refuri=uri, internal=True)
            brought = f"{work.package} {metadata.version(work.package)}"
            cells = (nodes.Text(work.name), nodes.Text(brought), text)
            entries = (nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells)
            yield nodes.row("", *entries)


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    texts = {file_of(work): text_of(work) for work in WORKS}
    texts["OFL-1.1.txt"] = (_OWN / "OFL-1.1.txt").read_text("utf-8")
    for name in ("LICENSE", "LICENSE-text"):
        if (path := Path(app.srcdir) / name).is_file():
            texts[f"{name}.txt"] = path.read_text("utf-8")
    for name, text in texts.items():
        write_if_new(folder / name, text)


def setup(app: Sphinx) -> None:
    """Register the table, and have the licences' texts written beside the pages."""
    app.add_directive("licences", _Licences)
    app.connect("build-finished", _write)
