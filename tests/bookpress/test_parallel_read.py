"""Pages that other processes read and write are as if Sphinx had read and written them itself."""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bookpress.sphinx.parallel_read import ParallelRead, _make_tables, share_of

MODULES = 60
CONF = """
import os, sys
from contextlib import closing
from pathlib import Path

here = Path(__file__).parent
sys.path.insert(0, str(here / "lib"))
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", {extensions}]
numfig = True

def read(app, doctree):
    with (here / "read").open("a") as file:
        print(app.env.docname, os.getpid(), file=file)
    if app.env.docname == os.environ.get("BROKEN"):
        raise RuntimeError("a page that cannot be read")

def setup(app):
    app.connect("doctree-read", read)
"""
REFUSING = """
def setup(app):
    return {"parallel_read_safe": False}
"""
FUNCTION = '''
from collections import OrderedDict

def function_{name}(one: int, *, two: str = "two") -> OrderedDict:
    """Return what :func:`package.m{other}.function_{other}` returns of `one`."""
    return OrderedDict()
'''
ALIAS = """
Ordered = OrderedDict
"Another name for what another package defines."
"""


def book(folder: Path, extensions: str = "") -> Path:
    """An ordinary page, and two that describe the many modules of a package: `heavy` a few more."""
    package = folder / "lib/package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""A package."""\n', "utf-8")
    for name in range(MODULES):
        text = f'"""Module {name}."""\n' + FUNCTION.format(name=name, other=(name + 7) % MODULES)
        text += "" if name else ALIAS
        (package / f"m{name}.py").write_text(text, "utf-8")
    (folder / "conf.py").write_text(CONF.format(extensions=extensions), "utf-8")
    (folder / "lib/refusing.py").write_text(REFUSING, "utf-8")
    described = [
        f"```{{eval-rst}}\n.. automodule:: package.m{name}\n   :members:\n```\n"
        for name in range(MODULES)
    ]
    for name, text in {"heavy": described[:31], "light": described[31:]}.items():
        (folder / f"{name}.md").write_text(f"# {name.title()}\n\n" + "\n".join(text), "utf-8")
    links = "{py:func}`package.m3.function_3` {py:func}`package.m40.function_40` {doc}`heavy`"
    tree = "```{toctree}\n:numbered:\nheavy\nlight\n```\n"
    absent = "```{eval-rst}\n.. automodule:: package.absent\n```\n"  # read again by every build
    index = f"# Index\n\n{tree}\n{links} {{doc}}`nowhere`\n\n{absent}"
    (folder / "index.md").write_text(index, "utf-8")
    return folder


def printed(source: Path, *, fails: bool = False, **variables: str) -> tuple[Path, str]:
    """The folder of the pages, and what was said to be wrong."""
    out = source.parent / f"{source.name}-out"
    command = [sys.executable, "-m", "sphinx", "-q", "--no-color", str(source), str(out)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | variables,
    )
    assert bool(done.returncode) == fails, done.stderr
    return out, done.stderr.replace(str(source), "")


def read_by(source: Path) -> dict[str, str]:
    """Which process read each page last."""
    return dict(line.split() for line in (source / "read").read_text("utf-8").splitlines())


EXTENSION = '"bookpress.sphinx.parallel_read"'


def test_pages_and_warnings_are_those_of_sphinx(tmp_path: Path) -> None:
    plain, parallel = book(tmp_path / "plain"), book(tmp_path / "parallel", EXTENSION)
    pages, said = printed(plain)
    found, found_said = printed(parallel)

    assert len(set(read_by(plain).values())) == 1
    by = read_by(parallel)
    assert by["heavy"] == by["index"]
    assert by["light"] != by["index"], "no second process"
    assert sorted(found_said.splitlines()) == sorted(said.splitlines())
    assert "package.absent" in said
    assert "nowhere" in said
    names = sorted(str(p.relative_to(pages)) for p in pages.rglob("*.html"))
    assert names == sorted(str(p.relative_to(found)) for p in found.rglob("*.html"))
    assert "_modules/package/m3.html" in names
    assert not [name for name in names if "collections" in name], "the source of another package"
    for name in [*names, "objects.inv"]:
        assert (found / name).read_bytes() == (pages / name).read_bytes(), name


def test_a_page_that_changed_is_read_alone_and_the_others_stay(tmp_path: Path) -> None:
    source = book(tmp_path / "parallel", EXTENSION)
    out, _ = printed(source)
    before = (out / "heavy.html").read_bytes()
    (source / "read").unlink()
    with (source / "light.md").open("a", encoding="utf-8") as file:
        file.write("\nOne sentence more.\n")
    printed(source)
    by = read_by(source)
    assert set(by) == {"index", "light"}
    assert by["index"] == by["light"], "two processes for so little"
    assert "One sentence more" in (out / "light.html").read_text("utf-8")
    assert (out / "heavy.html").read_bytes() == before


def test_a_page_that_cannot_be_read_fails_the_build(tmp_path: Path) -> None:
    source = book(tmp_path / "parallel", EXTENSION)
    for name in ("heavy", "light"):
        _, said = printed(source, fails=True, BROKEN=name)
        assert "a page that cannot be read" in said
    printed(source)
    assert set(read_by(source)) == {"index", "heavy", "light"}


def test_where_an_extension_refuses_one_process_reads_all(tmp_path: Path) -> None:
    source = book(tmp_path / "parallel", f'{EXTENSION}, "refusing"')
    printed(source)
    assert len(set(read_by(source).values())) == 1


def test_a_share_is_half_of_the_work() -> None:
    chapters = {f"chapter-{number}": 6.0 for number in range(40)}
    reference = {"analysis": 68.0, "figures": 41.0, "exercises": 38.0, "tasks": 33.0}
    costs = chapters | reference
    share = share_of(costs)
    assert share_of(dict(reversed(costs.items()))) == share
    taken = sum(costs[name] for name in share)
    assert abs(taken - sum(costs.values()) / 2) <= 6
    assert len(set(share)) == len(share)
    assert share_of({"analysis": 68.0}) == [], "the one page there is"
    assert share_of({"one": 12.0, "two": 12.0}) == [], "too little"
    assert share_of({"one": 50.0, "two": 50.0}) == ["two"]
    assert share_of({}) == []


def test_a_page_is_stored_without_what_is_known_of_others(tmp_path: Path) -> None:
    source = book(tmp_path / "stored", '"bookpress.sphinx.reference"')
    out, _ = printed(source)
    for name in ("heavy", "light"):
        stored = (out / f".doctrees/{name}.doctree").read_bytes()
        assert b"BuildEnvironment" not in stored
        page = pickle.loads(stored)
        assert all(node.document is page for node in page.findall())


def test_a_name_that_left_its_module_is_linked_to_no_more() -> None:
    def sources(used: dict[str, str]) -> tuple[str, dict[str, Any], dict[str, str], str]:
        return "code", {"stays": ("def", 1, 2)}, used, "module"

    env: Any = SimpleNamespace(
        _viewcode_modules={
            "both": sources({"stays": "page", "left": "page"}),
            "empty": sources({"left": "page"}),
            "unknown": False,
        }
    )
    assert ParallelRead().finish(None, env) == []  # type: ignore[arg-type]
    assert env._viewcode_modules == {"both": sources({"stays": "page"}), "unknown": False}


def test_the_cache_of_cells_has_its_tables_before_the_work_is_divided(tmp_path: Path) -> None:
    """Else one process would ask for tables that the other has not made yet."""
    config = SimpleNamespace(execution_cache_path=str(tmp_path / "cache"))
    _make_tables(SimpleNamespace(mystnb_config=config))  # type: ignore[arg-type]
    with closing(sqlite3.connect(tmp_path / "cache" / "global.db")) as kept:
        tables = {name for (name,) in kept.execute("select name from sqlite_master")}
    assert "nbcache" in tables
    _make_tables(SimpleNamespace())  # type: ignore[arg-type]  # a build without cells
