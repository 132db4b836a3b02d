"""How long a chapter is to read: its prose, and nothing that a reader may skip."""

import pytest
from bookpress.sphinx import lengths
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

PAGE = """\
# Title

Three plain words, and $a + b$.

- One item.
- Another one.

{BELOW}
"""
BELOW = {
    "prose": ("Two words.", 2),
    "table": ("| a table | of words |\n|---|---|\n| no | prose |", 0),
    "code": ("```python\nprint('no words')\n```", 0),
    "dropdown": ("```{dropdown} Folded\nNot seen.\n```", 0),
    "folded": ("```{admonition} Folded\n:class: dropdown\nNot seen.\n```", 0),
    "open": ("```{admonition} A warning\nSeen by all.\n```", 3),
    "figure": ("```{figure} x.png\n:alt: no words\nA caption.\n```", 0),
    "exercise": ("````{exercise}\n:label: ex\nShow it.\n````", 0),
    "exercises": ("## Exercises\n\nNo prose of the chapter.", 0),
    "reading": ("## Further reading\n\n- A paper.", 0),
    "quotation": ("## More\n\n> A quoted line.", 3),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """What Sphinx knows after it has read a page for each case."""
    folder = tmp_path_factory.mktemp("pages")
    for name, (below, _) in BELOW.items():
        (folder / f"{name}.md").write_text(PAGE.replace("{BELOW}", below))
    (folder / "x.png").write_bytes(b"")
    settings = {
        "extensions": ["myst_nb", "sphinx_design", "sphinx_exercise"],
        "myst_enable_extensions": ["dollarmath"],
        "nb_execution_mode": "off",
        "master_doc": "prose",
    }
    with docutils_namespace():
        out = folder / "_build"
        app = Sphinx(folder, None, out, out, "dummy", settings, status=None, warning=None)
        app.builder.read()
        yield app.env


@pytest.mark.parametrize("name", BELOW)
def test_prose_is_what_stands_open(environment, name):
    assert lengths.words_of(environment.get_doctree(name)) == 5 + 4 + BELOW[name][1]


def test_what_is_told():
    few = {"book/a/one": 2900, "book/attention/cost": 3400}
    assert lengths.told(few) == (
        "prose: 2 chapters, 3,150 words in the mean, 3,400 in the longest (book/attention/cost)"
    )
    many = {"book/a/one": 3001, "book/attention/cost": 3600, "book/b/two": 10}
    assert lengths.told(many).endswith(
        "; over the limit are 2: book/attention/cost by 100, book/a/one by 1"
    )
