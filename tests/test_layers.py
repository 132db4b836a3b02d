"""Imports go one way, in the library and in the chapters' cells."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).parents[1]
LIB = ROOT / "lib"
PACKAGE = "measured_transformer"

# What each subpackage of the library may import from its neighbours: parts <- internals, models <-
# inference, interop, training <- analysis <- figures. Tasks and evidence stand alone.
_MODELS = {"parts", "internals", "models"}
MAY_IMPORT: dict[str, set[str]] = {
    "tasks": set(),
    "evidence": set(),
    "parts": set(),
    "internals": {"parts"},
    "models": {"parts"},
    "inference": {"parts", "models"},
    "interop": _MODELS,
    "training": _MODELS | {"tasks", "evidence"},
    "analysis": _MODELS | {"tasks", "evidence", "inference", "interop", "training"},
    "figures": _MODELS | {"tasks", "evidence", "inference", "interop", "training", "analysis"},
    "exercises": _MODELS | {"tasks", "evidence", "inference", "interop", "training", "analysis"},
}
# The package itself and what says which one it is; everything else it hands on lies in a layer.
FREE = {"", "__version__", "__file__"}


def imported(source: str, module: str = "", *, package: bool = False) -> Iterator[str]:
    """Give every module that a source names in an import, wherever it stands, relative ones resolved.

    `from a import b` gives `a.b`: b may be a module, and where it is none, a.b still lies in a. So does
    `measured_transformer.b`, which the package imports when it is first used.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:  # under another name it could hand on anything
                yield f"{PACKAGE}.*" if alias.name == PACKAGE and alias.asname else alias.name
        elif isinstance(node, ast.ImportFrom):
            parent = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + package]
                parent = ".".join([*kept, *filter(None, [node.module])])
            yield from (f"{parent}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == PACKAGE:
            yield f"{PACKAGE}.{node.attr}"
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            first = node.args[0]
            if called in {"import_module", "__import__"} and isinstance(first, ast.Constant):
                yield str(first.value)


def violations(lib: Path) -> list[str]:
    """Give one line for every import under lib/measured_transformer against the directions."""
    found = []
    for path in sorted((lib / PACKAGE).rglob("*.py")):
        names = path.relative_to(lib).with_suffix("").parts
        package = names[-1] == "__init__"
        module = ".".join(names[:-1] if package else names)
        if module == PACKAGE:  # the front door names what lies in every room
            layer, allowed = "", set(MAY_IMPORT)
        else:
            layer = names[1]
            if layer not in MAY_IMPORT:
                found.append(f"{module}: {layer} has no place among the layers")
                continue
            allowed = MAY_IMPORT[layer] | {layer}
        for name in imported(path.read_text(), module, package=package):
            top, _, rest = name.partition(".")
            inner = rest.partition(".")[0]
            if top == "bookpress":
                found.append(f"{module} imports {name}: the library knows nothing of the press")
            elif top == PACKAGE and layer and inner not in allowed | FREE:
                found.append(f"{module} imports {name}: {layer} may not import {inner}")
    return found


def chapters() -> list[Path]:
    """Every page of the book that has code cells."""
    pages = sorted((ROOT / "book").rglob("*.md"))
    return [page for page in pages if "{code-cell}" in page.read_text()]


def cells(chapter: str) -> Iterator[str]:
    """Give the code of a chapter's cells, without the lines that speak to IPython."""
    for cell in jupytext.reads(chapter, fmt="md:myst").cells:
        if cell.cell_type == "code":
            lines = cell.source.splitlines()
            yield "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def test_the_library_imports_one_way():
    assert violations(LIB) == []


def test_every_layer_that_the_library_has_is_named():
    have = {path.name for path in (LIB / PACKAGE).iterdir() if (path / "__init__.py").exists()}
    assert have <= set(MAY_IMPORT)
    assert {"parts", "models", "internals", "tasks", "training", "evidence", "figures"} <= have


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("parts/norms.py", "from measured_transformer.models.config import Config"),
        ("parts/norms.py", "from measured_transformer import models"),
        ("parts/norms.py", "from measured_transformer import Config"),
        ("parts/norms.py", "import measured_transformer as m\nm.Decoder"),
        ("parts/norms.py", "import measured_transformer\nmeasured_transformer.Decoder"),
        ("parts/norms.py", "from ..models import config"),
        ("parts/__init__.py", "from ..models import config"),
        ("parts/norms.py", "def late():\n    from measured_transformer import figures"),
        ("models/decoder.py", "from measured_transformer.internals.capture import capture"),
        ("internals/capture.py", "import measured_transformer.models.decoder as d"),
        ("models/decoder.py", "from measured_transformer.inference.generate import generate"),
        ("inference/generate.py", "from measured_transformer.internals.capture import capture"),
        ("training/loop.py", "from measured_transformer.analysis import gradients"),
        ("analysis/heads.py", "from measured_transformer.figures.style import themed"),
        ("evidence/record.py", "from measured_transformer.parts import norms"),
        ("tasks/lag.py", "from measured_transformer.evidence.profile import profile"),
        ("tasks/lag.py", "import importlib\nimportlib.import_module('measured_transformer.parts')"),
        ("figures/style.py", "from bookpress.cache import store"),
        ("__init__.py", "import bookpress"),
        ("utils/odds.py", "import math"),
    ],
)
def test_an_import_against_the_direction_is_found(tmp_path: Path, file: str, line: str):
    path = tmp_path / PACKAGE / file
    path.parent.mkdir(parents=True)
    path.write_text(line)
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("parts/block.py", "from measured_transformer.parts.norms import LayerNorm"),
        ("parts/block.py", "from . import norms"),
        ("parts/block.py", "from .norms import LayerNorm"),
        ("models/decoder.py", "from ..parts.block import Block"),
        ("inference/generate.py", "from measured_transformer.models.decoder import Decoder"),
        ("figures/heads.py", "from measured_transformer.analysis.heads import entropy"),
        ("evidence/record.py", "from measured_transformer import __version__"),
        ("__init__.py", "from measured_transformer.models.config import Config"),
        ("training/tuning.py", "import measured_transformer\nmeasured_transformer.__file__"),
        ("tasks/lag.py", "import torch"),
    ],
)
def test_an_import_along_the_direction_is_not(tmp_path: Path, file: str, line: str):
    path = tmp_path / PACKAGE / file
    path.parent.mkdir(parents=True)
    path.write_text(line)
    assert violations(tmp_path) == []


def test_no_chapter_imports_the_press():
    pages = chapters()
    assert pages, "the book has chapters"
    for page in pages:
        for cell in cells(page.read_text()):
            tops = {name.partition(".")[0] for name in imported(cell)}
            assert "bookpress" not in tops, f"{page.relative_to(ROOT)}:\n{cell}"


def test_a_chapter_that_imports_the_press_would_be_found():
    chapter = (
        "---\nkernelspec:\n  name: python3\n  display_name: Python 3\n---\n# A chapter\n\n"
        "```{code-cell}\n:tags: [hide-input]\n%matplotlib inline\nfrom bookpress import cache\n```\n"
    )
    (cell,) = cells(chapter)
    assert list(imported(cell)) == ["bookpress.cache"]
