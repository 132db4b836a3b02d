"""Code that pages print but do not run: what it imports is there."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "book").rglob("*.md"))]
FENCED = re.compile(r"^(`{3,})python\n(.*?)^\1$", re.DOTALL | re.MULTILINE)


def imports(text: str) -> list[tuple[str, str]]:
    """Module and name of everything that listings take from the book's packages."""
    found = []
    for _, code in FENCED.findall(text):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module:
                found += [(node.module, alias.name) for alias in node.names]
    return [
        pair
        for pair in found
        if pair[0].split(".")[0] in ("measured_transformer", "measured_book", "bookpress")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_listing_imports_is_there(page):
    for module, name in imports(page.read_text("utf-8")):
        assert hasattr(importlib.import_module(module), name), f"from {module} import {name}"


def test_a_name_that_is_not_there_is_found():
    (found,) = imports("text\n```python\nfrom measured_transformer import nothing\n```\n")
    assert found == ("measured_transformer", "nothing")
    assert sum(len(imports(page.read_text("utf-8"))) for page in PAGES) > 100
