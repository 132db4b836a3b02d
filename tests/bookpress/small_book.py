"""A book of two chapters and a library of its own, small enough to be printed in a test.

Chapter `one` imports `tiny.lens`, which imports `tiny.glass`; chapter `two` imports `tiny.mirror` and
reads a data file.  Each chapter writes its name into `runs.log` when it runs, so that a test counts
runs without asking the press.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bookpress.cache import FOLDER, Cache
from bookpress.chapters import load_book
from bookpress.survey import State, survey

CONFIG = """\
title: A small book
only_build_toc_files: true
exclude_patterns: [lib, data, "*.md"]
execute:
  execute_notebooks: cache
  raise_on_error: true
sphinx:
  local_extensions:
    small_extension: lib
"""
EXTENSION = """\
from bookpress.sphinx import assets
from bookpress.staleness import setup_staleness


def setup(app):
    assets.setup(app)
    setup_staleness(app)
"""
TOC = """\
format: jb-book
root: book/index
chapters:
- file: book/one
- file: book/part/two
"""
CHAPTER = """\
---
jupytext:
  text_representation:
    format_name: myst
kernelspec:
  name: python3
  display_name: Python 3
{front}---

# Chapter {name}

Prose of chapter {name}.

```{{code-cell}} ipython3
from pathlib import Path

with (Path.cwd() / "{up}runs.log").open("a") as log:
    log.write("{name}\\n")
```

```{{code-cell}} ipython3
:tags: [remove-input]

{code}
```
"""
ONE = "from tiny.lens import seen\n\nprint('one sees', seen())"
TWO = "from tiny.mirror import seen\n\nprint('two sees', seen())"
DATA = "measured:\n  data: [data/*.csv]\n"


@dataclass
class SmallBook:
    """The book's folder and what a test does with it."""

    root: Path

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text("utf-8")
        assert old in text, f"{path} holds no {old!r}"
        self.write(path, text.replace(old, new))

    def read(self, path: str) -> str:
        return (self.root / path).read_text("utf-8")

    def runs(self) -> list[str]:
        """The chapters that ran since this was last asked, in alphabetical order."""
        log = self.root / "runs.log"
        ran = sorted(log.read_text("utf-8").split()) if log.exists() else []
        log.unlink(missing_ok=True)
        return ran

    def warnings_and_states(self) -> tuple[list[str], dict[str, State]]:
        """What the press finds out about the chapters without running any."""
        warnings: list[str] = []
        book = load_book(self.root)
        states = survey(book, Cache(self.root / FOLDER, warnings.append))
        return warnings, {state.chapter.path.stem: state for state in states}

    def stale(self) -> set[str]:
        _, states = self.warnings_and_states()
        return {name for name, state in states.items() if state.entry is None}

    def stored_notebook(self, name: str) -> Path:
        """The file in the cache that holds a chapter's executed notebook."""
        _, states = self.warnings_and_states()
        entry = states[name].entry
        assert entry is not None
        return entry.path

    def press(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m bookpress` on this book."""
        return self.run(
            sys.executable, "-m", "bookpress", *arguments, "--root", str(self.root), **variables
        )

    def jupyter_book(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `jupyter-book build .` in this book's folder."""
        code = "from jupyter_book.cli.main import main; main()"
        return self.run(sys.executable, "-c", code, "build", ".", *arguments, **variables)

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "pytest", *arguments)

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.root,
            env=_environment(variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def start_press(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `python -m bookpress` in a process group of its own, as a shell does.

        It listens to Ctrl-C even where these tests do not, as in the background of a script.
        """
        return subprocess.Popen(
            [sys.executable, "-m", "bookpress", *arguments, "--root", str(self.root)],
            cwd=self.root,
            env=_environment({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_listen_to_interrupts,
        )

    def page(self, docname: str) -> str:
        return self.read(f"_build/html/{docname}.html")


def make(root: Path) -> SmallBook:
    """Write the book's files; nothing is executed."""
    book = SmallBook(root)
    book.write("_config.yml", CONFIG)
    book.write("_toc.yml", TOC)
    book.write("requirements.txt", "numpy==2.0\n")
    book.write("pyproject.toml", "[tool.pytest.ini_options]\ntestpaths = ['tests']\n")
    book.write("conftest.py", "pytest_plugins = ['bookpress.collect']\n")
    book.write("tests/test_plain.py", "def test_plain():\n    assert True\n")
    book.write("lib/small_extension.py", EXTENSION)
    book.write("lib/tiny/__init__.py", "")
    book.write("lib/tiny/glass.py", "def base():\n    return 1\n")
    book.write(
        "lib/tiny/lens.py", "from .glass import base\n\n\ndef seen():\n    return base() + 1\n"
    )
    book.write("lib/tiny/mirror.py", "def seen():\n    return 20\n")
    book.write("data/numbers.csv", "1,2,3\n")
    book.write("book/index.md", "# A small book\n\nTwo chapters.\n")
    book.write("book/one.md", CHAPTER.format(name="one", code=ONE, up="../", front=""))
    book.write("book/part/two.md", CHAPTER.format(name="two", code=TWO, up="../../", front=DATA))
    return book


def wait_for(condition: str, holds: object, seconds: float = 90) -> None:
    """Wait until `holds()` is true; fails with `condition` when it never is."""
    assert callable(holds)
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {condition}"
        time.sleep(0.05)


def interrupt(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C on a process group; returns what it had printed."""
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    return output


def _listen_to_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _environment(variables: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MEASURED_", "PYTEST_"))}
    return kept | variables
