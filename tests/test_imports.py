"""Imports go one way, in the library by the contracts of pyproject.toml and in the chapters' cells."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "measured_transformer"
LINT = "from importlinter.cli import lint_imports_command as lint; lint()"

AGAINST = [
    ("parts/norms.py", "from measured_transformer.models.config import Config"),
    ("parts/cache.py", "def late():\n    from measured_book import figures"),
    ("parts/tap.py", "from ..tasks import lag"),
    ("models/decoder.py", "from measured_transformer.internals.capture import capture"),
    ("models/config.py", "from measured_transformer.inference.generate import generate"),
    ("internals/capture.py", "import measured_transformer.models.decoder as d"),
    ("inference/prompts.py", "from measured_transformer.training.loop import train"),
    ("interop/llama.py", "from measured_book.evidence.seeds import seeds_of"),
    ("training/loop.py", "from measured_transformer.analysis import gradients"),
    ("training/losses.py", "from measured_transformer.variants import norms"),
    ("variants/norms.py", "from measured_transformer.analysis import residual"),
    ("analysis/lens.py", "from measured_transformer.viewer.style import themed"),
    ("figures/plots.py", "from measured_book.rooms.heads import figures"),
    ("exercises/answers.py", "from measured_book.rooms.heads import exercises"),
    ("measuring/state.py", "from measured_transformer.viewer import style"),
    ("rooms/heads/measure.py", "from measured_book.rooms.one_head import measure"),
    ("evidence/records.py", "from measured_transformer.parts import norms"),
    ("tasks/lag.py", "from measured_book.evidence.seeds import seeds_of"),
    ("provenance/words.py", "from measured_transformer.models.config import Config"),
    ("viewer/style.py", "from bookpress.cache import store"),
]


def lint(library: Path) -> subprocess.CompletedProcess[str]:
    """Check the library that lies in a folder by the contracts of pyproject.toml."""
    command = [sys.executable, "-c", LINT, "--no-logo", "--no-cache"]
    return subprocess.run(
        [*command, "--config", ROOT / "pyproject.toml"],
        env={**os.environ, "PYTHONPATH": str(library), "COLUMNS": "200"},
        cwd=library,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A copy of the library and the press."""
    target = tmp_path / "lib"
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.json", "*.toml", "*.jsonl")
    shutil.copytree(ROOT / "lib", target, ignore=unwanted)
    return target


def test_the_library_imports_one_way(library: Path):
    done = lint(library)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_each_import_against_the_direction_is_found(library: Path):
    for file, line in AGAINST:
        path = library / PACKAGE / file
        path.write_text(path.read_text("utf-8") + f"\n{line}\n", "utf-8")
    done = lint(library)
    assert done.returncode != 0
    for file, line in AGAINST:
        module = f"{PACKAGE}.{file.removesuffix('.py').replace('/', '.')}"
        (added,) = (
            n for n in ast.walk(ast.parse(line)) if isinstance(n, ast.Import | ast.ImportFrom)
        )
        last = (added.names[0].name if isinstance(added, ast.Import) else added.module or "").split(
            "."
        )
        target = rf"[\w.]*{last[-1]}[\w.]*"
        assert re.search(rf"{re.escape(module)} -> {target} \(l\.\d+", done.stdout), (file, line)


def test_a_package_without_a_layer_is_found(library: Path):
    (library / PACKAGE / "odds").mkdir()
    (library / PACKAGE / "odds" / "__init__.py").write_text("")
    done = lint(library)
    assert done.returncode != 0
    assert "odds" in done.stdout


def pages() -> list[Path]:
    """Every page of the book that has code cells."""
    found = sorted((ROOT / "book").rglob("*.md"))
    return [page for page in found if "{code-cell}" in page.read_text("utf-8")]


def imported(page: str) -> Iterator[str]:
    """Give every module that the cells of a page name in an import."""
    for cell in jupytext.reads(page, fmt="md:myst").cells:
        if cell.cell_type != "code":
            continue
        lines = [x for x in cell.source.splitlines() if not x.lstrip().startswith(("%", "!"))]
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def strangers(page: str, room: str) -> list[str]:
    """Name what a page must not import: the press, and the rooms of other chapters."""
    own = f"{PACKAGE}.chapters.{room}."
    return [
        name
        for name in imported(page)
        if name.partition(".")[0] == "bookpress"
        or (name.startswith(f"{PACKAGE}.chapters") and not name.startswith(own))
    ]


def test_a_page_imports_neither_the_press_nor_the_room_of_another():
    assert len(pages()) > 30
    found = {
        page.stem: strangers(page.read_text("utf-8"), page.stem.replace("-", "_"))
        for page in pages()
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_a_page_that_did_would_be_found():
    page = (
        "---\nkernelspec:\n  name: python3\n  display_name: Python 3\n---\n# A chapter\n\n"
        "```{code-cell}\n:tags: [hide-input]\n%matplotlib inline\nfrom bookpress import cache\n"
        "from measured_book.rooms import one_head\n"
        "from measured_book.rooms.heads.measure import heads_of\n```\n"
    )
    assert strangers(page, "heads") == ["bookpress.cache", f"{PACKAGE}.chapters.one_head"]
