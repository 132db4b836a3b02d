"""Pages of the library's source: the code, and ways back into the book."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bs4 import BeautifulSoup

CONF = """
import sys
sys.path.insert(0, "lib")
extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode", "bookpress.sphinx.sources"]
project = "A book"
html_theme = "alabaster"
"""
MODULE = '''
"""A module."""


def glass() -> int:
    """What it says."""
    return 1
'''
INDEX = """
Book
====

.. automodule:: tiny.inner
   :members:
"""


def test_source_pages_lead_back_and_hold_the_code(tmp_path: Path) -> None:
    (tmp_path / "lib/tiny").mkdir(parents=True)
    (tmp_path / "lib/tiny/__init__.py").write_text("")
    (tmp_path / "lib/tiny/inner.py").write_text(MODULE)
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "index.rst").write_text(INDEX)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", ".", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out/_modules/tiny/inner.html").read_text("utf-8")
    page = BeautifulSoup(text, "html.parser")
    assert page.title
    assert page.title.text.startswith("tiny.inner")
    assert "def glass() -> int:" in page.select_one("pre").text
    links = {link["href"] for link in page.select("nav a")}
    assert {"../../index.html", "../../search.html", "../index.html"} <= links
    back = page.select_one("#glass a.viewcode-back")["href"]
    assert back == "../../index.html#tiny.inner.glass"
    other = (tmp_path / "out/index.html").read_text("utf-8")
    assert "source-page" in text
    assert "source-page" not in other
    assert len(text) < len(MODULE) * 10 + 3000
