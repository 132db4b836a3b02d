"""Pages of a book that is small enough to be printed inside a test.

Its one room is `fake_judging`'s. All pages share their cells, so the cells are executed once for all of them:
jupyter-cache finds the outputs by the code, not by the page.
"""

from __future__ import annotations

import copy
import gc
import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake_judging
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import docutils_namespace, patch_docutils

CLAIMS = """\
[[claim]]
id = "CS-1.3"
source = "CS"
place = "section 1"
chapter = "{chapter}"
statement = "Similarity $s(i, j)$ depends on the offset alone."
kind = "identity"
scope = "The encodings themselves."
test = "Deviation from $s(|i - j|)$; a random table must fail."
expected = "{expected}"
[claim.rule]
type = "identity"
tolerance = 1e-9
control_above = 1e-3

[[claim]]
id = "CS-1.5"
source = "CS"
place = "section 1"
chapter = "{chapter}"
statement = "It falls off smoothly."
kind = "arithmetic"
scope = "Width 64."
test = "Count the rises."
expected = "refuted"
section = "{section}"
[claim.rule]
type = "bound"
at_most = 0

[[claim]]
id = "DD-7.7"
source = "DD"
place = "section 7"
chapter = "{chapter}"
statement = "Rotary carries over better."
kind = "experiment"
scope = "Small decoders."
test = "Excess loss."
seeds = 10
expected = "conditional"
axis = "the other scheme"
[[claim.part]]
name = "sinusoidal"
label = "against sinusoidal"
[claim.part.rule]
type = "difference"
direction = "less"
smallest_effect = 0.1
[[claim.part]]
name = "alibi"
label = "against ALiBi"
[claim.part.rule]
type = "difference"
direction = "less"
smallest_effect = 0.1

[[claim]]
id = "DA-2.1"
source = "DA"
place = "section 2"
chapter = "{chapter}"
statement = "Attention replaced recurrence."
kind = "cited"
scope = "History."
test = "None."
reference = "vaswani2017attention"
"""

REFERENCES = """\
@inproceedings{vaswani2017attention, title={Attention Is All You Need}, author={Vaswani, Ashish and
Shazeer, Noam and Parmar, Niki}, booktitle={Advances}, year={2017}}
@misc{source-case-study, title={Case study}, author={{Case Study}}, year={2024}}
@misc{source-deep-dive, title={Deep dive}, author={{Deep Dive}}, year={2024}}
@misc{source-dissecting, title={Dissection}, author={{Dissection}}, year={2024}}
"""

FRONT = """\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---
"""

ROOM_FRONT = FRONT.replace("\n---\n", "\nmeasured: {room: some_room}\n---\n", 1)
"""The front matter of a page that belongs to the room."""

CELLS = """
```{code-cell} ipython3
:tags: [remove-cell]
from pathlib import Path
from measured_book.evidence import results
results.results_folder = lambda room: Path("rooms") / room / "results"
```

```{code-cell} ipython3
from measured_book.evidence.results import load_result

accuracy = load_result("some_room", "reversal").accuracy.mean("seed")
print("seen by the reader")
```
"""

FIGURE = """
```{{code-cell}} ipython3
---
mystnb:
{metadata}
---
from measured_book.figures.plots import subplots
from measured_transformer.viewer.style import themed

@themed
def line():
    figure, axes = subplots(height=2)
    axes.plot([0, 1])
    return figure

{call}
```
"""

EXTENSIONS = [
    "sphinx_togglebutton",
    "myst_nb",
    "sphinx_exercise",
    "sphinxcontrib.bibtex",
    "sphinx_book_theme",
    "bookpress.sphinx",
]
CONFIG = {
    "extensions": EXTENSIONS,
    "html_theme": "sphinx_book_theme",
    "html_theme_options": {
        "repository_url": "https://github.com/somebody/some-book",
        "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    },
    "myst_enable_extensions": ["dollarmath", "colon_fence", "deflist"],
    "bibtex_bibfiles": ["references.bib"],
    "bibtex_reference_style": "author_year",
    "nb_execution_mode": "cache",
    "nb_execution_raise_on_error": True,
    "numfig": True,
    "measured_claims": "claims",
    "measured_judging": "fake_judging",
    "exclude_patterns": ["_build"],
    "exercise_style": "solution_follow_exercise",
    "templates_path": [],  # the theme writes into the default, which would last to the next build
    "html_static_path": [],
}


@dataclass
class Tiny:
    """A tiny book in a folder.

    Attributes:
        failed: why its last build failed, if it did.
        settings: of Sphinx, of its own.
        states: of the room's results that do not hold: state and why.
    """

    root: Path
    failed: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    states: dict[str, tuple[str, str]] = field(default_factory=dict)

    def write(self, name: str, text: str) -> None:
        """Write one file of the book."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def claims(self, chapter: str, expected: str = "confirmed", section: str = "smoothly") -> None:
        """Declare the four claims of a chapter, in a file named after it."""
        text = CLAIMS.format(chapter=chapter, expected=expected, section=section)
        self.write(f"claims/{chapter}.toml", text)

    def build(self, builder: str = "html", parallel: int = 1) -> list[str]:
        """Print the book and return its warnings."""
        warnings = io.StringIO()
        build = self.root / "_build"
        fake_judging.keep(self.root, self.states)
        with patch_docutils(), docutils_namespace():
            gc.collect()  # an extension looks through all objects, and stumbles over those that are gone
            app = Sphinx(
                srcdir=self.root,
                confdir=None,
                outdir=build / builder,
                doctreedir=build / ".doctrees",
                buildername=builder,
                confoverrides=copy.deepcopy(CONFIG | self.settings),  # the theme writes into it
                status=io.StringIO(),
                warning=warnings,
                parallel=parallel,
                keep_going=True,
            )
            self.failed = None
            try:
                app.build()
            except SphinxError as error:
                self.failed = str(error)
        text = re.sub(r"\x1b\[[0-9;]*m", "", warnings.getvalue())
        return [line for line in text.splitlines() if line.strip()]

    def page(self, name: str) -> BeautifulSoup:
        """Return a printed page."""
        return BeautifulSoup((self.root / f"_build/html/{name}.html").read_text(), "html.parser")


def make(root: Path) -> Tiny:
    """Return a book that has a front page, references and no chapter yet."""
    book = Tiny(root)
    book.write("references.bib", REFERENCES)
    book.write("index.md", "# Tiny\n\n```{toctree}\n:glob:\n*\n```\n\n```{bibliography}\n```\n")
    return book
