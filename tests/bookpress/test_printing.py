"""The program that prints: Jupyter Book's arguments, exit status and words, and nothing lost at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STAND_IN = """
import atexit, gc, logging, logging.handlers, sys

def main(**settings):
    print("arguments", sys.argv[1:], settings["prog_name"])
    print("collector", gc.get_threshold())
    file = logging.FileHandler("said.log")
    logging.basicConfig(handlers=[logging.handlers.MemoryHandler(100, target=file)], level="INFO")
    logging.info("logged")  # and kept in memory until the end
    atexit.register(lambda: logging.info("done at the end"))
    sys.stdout.write("no end of line")
    {end}
"""


def printed(tmp_path: Path, end: str) -> subprocess.CompletedProcess[str]:
    """Run the program beside a stand-in for Jupyter Book that ends in the given way."""
    package = tmp_path / "jupyter_book" / "cli"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(STAND_IN.format(end=end), "utf-8")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-m", "bookpress.printing", "a book", "-W"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('what went wrong')", 1, "what went wrong\n"),
    ],
)
def test_status_and_words_are_those_of_jupyter_book(
    tmp_path: Path, end: str, status: int, error: str
) -> None:
    done = printed(tmp_path, end)
    assert (done.returncode, done.stderr) == (status, error)
    assert "arguments ['build', 'a book', '-W'] jupyter-book" in done.stdout
    assert done.stdout.endswith("no end of line"), "what was printed last is lost"
    assert (tmp_path / "said.log").read_text("utf-8") == "logged\ndone at the end\n"


def test_an_error_is_shown_where_it_happened(tmp_path: Path) -> None:
    done = printed(tmp_path, "raise KeyError('page')")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.rstrip().endswith("KeyError: 'page'")


def test_the_collector_looks_more_seldom_than_by_default(tmp_path: Path) -> None:
    done = printed(tmp_path, "pass")
    threshold = int(done.stdout.partition("collector (")[2].partition(",")[0])
    assert threshold >= 10_000
