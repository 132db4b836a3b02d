"""Numbers of figures and references to them: as Sphinx gives them, with few pages loaded."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

CONF = """
from pathlib import Path
from sphinx.environment import BuildEnvironment

extensions = {extensions}
numfig = True
numfig_secnum_depth = 1
plain = BuildEnvironment.get_doctree
log = Path(__file__).with_name("loads")

def counted(env, docname):
    with log.open("a") as file:
        print(docname, file=file)
    return plain(env, docname)

def setup(app):
    BuildEnvironment.get_doctree = counted
"""
REPLACING = """
    app.connect("doctree-read", replaced)

def replaced(app, doctree):
    for figure in list(doctree.findall(nodes.figure)):
        figure.replace_self(figure.deepcopy())

from docutils import nodes
"""
FIGURE = """
.. _fig-{name}:

.. figure:: dot.svg

   The figure {name}.
"""
DOT = '<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"/>'


def book(folder: Path, extensions: list[str]) -> Path:
    """Three pages: two with figures, and one that refers to them many times, also to one that is not."""
    folder.mkdir()
    (folder / "conf.py").write_text(CONF.format(extensions=extensions), "utf-8")
    (folder / "dot.svg").write_text(DOT, "utf-8")
    (folder / "one.rst").write_text(
        "One\n===\n" + FIGURE.format(name="a") + FIGURE.format(name="b"), "utf-8"
    )
    (folder / "two.rst").write_text("Two\n===\n" + FIGURE.format(name="c"), "utf-8")
    references = "".join(f"\n:numref:`fig-{name}`\n" for name in "abcabcabc")
    named = "\n:numref:`see {number} <fig-c>` :ref:`fig-a` :numref:`fig-none`\n"
    (folder / "index.rst").write_text(
        f"Index\n=====\n\n.. toctree::\n   :numbered:\n\n   one\n   two\n{references}{named}",
        "utf-8",
    )
    return folder


def printed(source: Path) -> tuple[str, str, int]:
    """The page with the references, what was said, and how often a page was loaded."""
    out = source.parent / f"{source.name}-out"
    (source / "loads").unlink(missing_ok=True)
    command = [sys.executable, "-m", "sphinx", "-q", "--no-color", str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    loads = (source / "loads").read_text("utf-8").split()
    return (out / "index.html").read_text("utf-8"), done.stderr, len(loads)


def test_numbers_and_warnings_are_those_of_sphinx(tmp_path: Path) -> None:
    page, said, loads = printed(book(tmp_path / "plain", []))
    kept, kept_said, kept_loads = printed(book(tmp_path / "kept", ["bookpress.sphinx.numbers"]))

    assert page.count("Fig. 1.1") == page.count("Fig. 1.2") == 3
    assert page.count("Fig. 2.1") == 3
    assert "see 2.1" in page
    assert kept == page
    assert "fig-none" in said
    assert kept_said.replace("/kept/", "/plain/") == said
    assert loads - kept_loads == 10, "ten references load nothing more"


def test_a_figure_that_took_the_place_of_another_needs_no_page_either(tmp_path: Path) -> None:
    sources = [
        book(tmp_path / "plain", []),
        book(tmp_path / "kept", ["bookpress.sphinx.numbers"]),
    ]
    for source in sources:
        conf = source / "conf.py"
        conf.write_text(conf.read_text("utf-8") + REPLACING, "utf-8")
    (plain, _, loads), (kept, _, kept_loads) = map(printed, sources)
    assert "Fig. 2.1" in plain
    assert kept == plain
    assert loads - kept_loads == 10


def test_numbers_follow_a_page_that_changed_and_few_others_are_loaded(tmp_path: Path) -> None:
    sources = [
        book(tmp_path / "plain", []),
        book(tmp_path / "kept", ["bookpress.sphinx.numbers"]),
    ]
    nested = "\nInner\n-----\n" + FIGURE.format(name="d")
    table = "\n.. _fig-table:\n\n.. table:: A table\n\n   === ===\n   a   b\n   === ===\n"
    for source in sources:
        printed(source)
        one, index = source / "one.rst", source / "index.rst"
        text = one.read_text("utf-8").replace("===\n", f"===\n{nested}{table}", 1)
        one.write_text(text, "utf-8")
        more = "\n:numref:`fig-d` :numref:`fig-table`\n"
        index.write_text(index.read_text("utf-8") + more, "utf-8")
    (plain, said, loads), (kept, kept_said, kept_loads) = map(printed, sources)
    assert "Fig. 1.3" in plain, "the figure b"
    assert "Table 1.1" in plain
    assert kept == plain
    assert kept_said.replace("/kept/", "/plain/") == said
    two, kept_two = ((s / "loads").read_text("utf-8").split().count("two") for s in sources)
    assert kept_two < two, "a page that did not change is not loaded for its numbers"
    assert kept_loads < loads
    whole = pickle.loads((tmp_path / "kept-out/.doctrees/environment.pickle").read_bytes())
    assert len(pickle.dumps(whole.bookpress_bones)) < 10_000, "the pages themselves hang on them"
