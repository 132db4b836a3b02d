"""Imports go one way, in lib/ by the contracts of pyproject.toml and in the chapters' cells."""

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
from bookpress.chapters import front_matter, rooms_of

ROOT = Path(__file__).parents[1]
ROOMS = "measured_book.rooms"
LINT = "from importlinter.cli import lint_imports_command as lint; lint()"

AGAINST = [
    (
        "measured_transformer/parts/norms.py",
        "from measured_transformer.models.config import Config",
    ),
    (
        "measured_transformer/parts/cache.py",
        "def late():\n    from measured_transformer.viewer import style",
    ),
    ("measured_transformer/parts/tap.py", "from ..tasks import lag"),
    (
        "measured_transformer/models/decoder.py",
        "from measured_transformer.internals.capture import capture",
    ),
    (
        "measured_transformer/models/config.py",
        "from measured_transformer.inference.generate import generate",
    ),
    (
        "measured_transformer/internals/capture.py",
        "import measured_transformer.models.decoder as d",
    ),
    (
        "measured_transformer/inference/prompts.py",
        "from measured_transformer.training.loop import train",
    ),
    ("measured_transformer/interop/llama.py", "from measured_book.evidence.seeds import seeds_of"),
    (
        "measured_transformer/training/loop.py",
        "from measured_transformer.analysis import gradients",
    ),
    (
        "measured_transformer/training/tuned_table.py",
        "from measured_book.measuring import progress",
    ),
    ("measured_transformer/training/losses.py", "from measured_transformer.variants import norms"),
    (
        "measured_transformer/variants/norms.py",
        "from measured_transformer.analysis import residual",
    ),
    (
        "measured_transformer/analysis/lens.py",
        "from measured_transformer.viewer.style import themed",
    ),
    ("measured_transformer/viewer/workbench.py", "from measured_book.figures import plots"),
    ("measured_transformer/tasks/lag.py", "def late():\n    from measured_book import evidence"),
    (
        "measured_transformer/provenance/words.py",
        "from measured_transformer.models.config import Config",
    ),
    ("measured_transformer/viewer/style.py", "from bookpress.cache import store"),
    ("measured_book/figures/plots.py", "from measured_book.rooms.heads import figures"),
    ("measured_book/exercises/answers.py", "from measured_book.rooms.heads import exercises"),
    ("measured_book/measuring/state.py", "from measured_book.figures import tables"),
    ("measured_book/rooms/heads/measure.py", "from measured_book.rooms.one_head import measure"),
    ("measured_book/evidence/records.py", "from measured_book.measuring import measurement"),
    ("measured_book/figures/tables.py", "from bookpress.cache import store"),
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
    """A copy of the library, the laboratory and the press."""
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
        path = library / file
        path.write_text(path.read_text("utf-8") + f"\n{line}\n", "utf-8")
    done = lint(library)
    assert done.returncode != 0
    for file, line in AGAINST:
        module = file.removesuffix(".py").replace("/", ".")
        (added,) = (
            n for n in ast.walk(ast.parse(line)) if isinstance(n, ast.Import | ast.ImportFrom)
        )
        last = (added.names[0].name if isinstance(added, ast.Import) else added.module or "").split(
            "."
        )
        target = rf"[\w.]*{last[-1]}[\w.]*"
        assert re.search(rf"{re.escape(module)} -> {target} \(l\.\d+", done.stdout), (file, line)


@pytest.mark.parametrize("package", ["measured_transformer", "measured_book"])
def test_a_package_without_a_layer_is_found(library: Path, package: str):
    (library / package / "odds").mkdir()
    (library / package / "odds" / "__init__.py").write_text("")
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


def strangers(page: str, *rooms: str) -> list[str]:
    """Name what a page must not import: the press, and the rooms of other chapters."""
    own = tuple(f"{ROOMS}.{room}." for room in rooms)
    return [
        name
        for name in imported(page)
        if name.partition(".")[0] == "bookpress"
        or (name.startswith(ROOMS) and not name.startswith(own))
    ]


def test_a_page_imports_neither_the_press_nor_the_room_of_another():
    assert len(pages()) > 30
    found = {
        page.stem: strangers(text, page.stem.replace("-", "_"), *rooms_of(front_matter(text)))
        for page in pages()
        for text in [page.read_text("utf-8")]
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_a_page_that_did_would_be_found():
    page = (
        "---\nkernelspec:\n  name: python3\n  display_name: Python 3\n---\n# A chapter\n\n"
        "```{code-cell}\n:tags: [hide-input]\n%matplotlib inline\nfrom bookpress import cache\n"
        "from measured_book.rooms import one_head\n"
        "from measured_book.rooms.heads.measure import heads_of\n```\n"
    )
    assert strangers(page, "heads") == ["bookpress.cache", f"{ROOMS}.one_head"]
    inside = page.replace("rooms import one_head", "rooms.one_head import pruning")
    assert strangers(inside, "heads", "one_head") == ["bookpress.cache"]
