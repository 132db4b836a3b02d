"""The way out of Jupyter Book: settings for Sphinx alone, and the weekly attempt with the newest one."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text())


def settings(monkeypatch: pytest.MonkeyPatch, press: str) -> dict[str, Any]:
    monkeypatch.setenv("PRESS", press)
    return runpy.run_path(str(ROOT / "tools" / "plain" / "conf.py"))


def test_without_the_press_no_extension_of_it_nor_of_jupyter_book_is_left(monkeypatch):
    told = settings(monkeypatch, "")
    assert not {"jupyter_book", "bookpress.sphinx"} & set(told["extensions"])
    assert "myst_nb" in told["extensions"]
    assert told["nb_execution_mode"] == "off"


def test_with_the_press_settings_are_those_of_the_book(monkeypatch):
    told = settings(monkeypatch, "1")
    assert told["extensions"][-1] == "bookpress.sphinx"
    assert told["myst_enable_extensions"] == CONFIG["parse"]["myst_enable_extensions"]
    for name, value in CONFIG["sphinx"]["config"].items():
        if name not in ("extensions", "html_theme_options", "html_static_path", "html_favicon"):
            assert told[name] == value, name
    for path in (*told["html_static_path"], told["html_favicon"], *told["bibtex_bibfiles"]):
        assert Path(path).exists(), path


def test_the_canary_pins_torch_alone_and_asks_for_every_extension_of_the_book(tmp_path: Path):
    python = tmp_path / "python"
    script = '#!/bin/sh\necho "$*" >>"$LOG"\n'
    script += 'case "$2" in venv) mkdir -p "$4/bin"; cp "$0" "$4/bin/python";; esac\n'
    python.write_text(script + 'case "$*" in *"pip list"*) echo "Sphinx 99";; esac\n')
    python.chmod(0o755)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "canary", tmp_path / "tools")
    shutil.copy(ROOT / "requirements-torch.txt", tmp_path)
    done = subprocess.run(
        [tmp_path / "tools" / "canary", tmp_path / "made", python],
        env={**os.environ, "LOG": str(tmp_path / "log"), "TORCH_INDEX": "file:///cpu"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, "no page was printed, so that it may not pass"
    asked = (tmp_path / "log").read_text().splitlines()
    assert asked[1].endswith("--index-url file:///cpu -r requirements-torch.txt")
    assert "==" not in "".join(asked)
    for name in ("sphinx", "myst-nb", "sphinx-book-theme", "sphinxcontrib-bibtex"):
        assert name in asked[2].split()
    assert asked[-1].startswith("-m sphinx -q -b html -c tools/plain .")
    assert "Sphinx 99" in done.stdout


def test_the_page_asks_for_the_packages_that_the_canary_tries():
    """Its commands are the canary's, in two steps: first without the press, then with it."""
    page = (ROOT / "book" / "about" / "without-the-press.md").read_text()
    shell = "\n".join(re.findall(r"```shell\n(.*?)```", page, re.DOTALL)).replace("\\\n", " ")
    asked = [shlex.split(line)[2:] for line in shell.splitlines() if line.startswith("pip install")]
    script = (ROOT / "tools" / "canary").read_text().replace("\\\n", " ")
    (tried,) = [shlex.split(line)[1:] for line in script.splitlines() if "sphinx myst-nb" in line]
    assert sorted(word for words in asked for word in words) == sorted(tried)
    runs = [line for line in shell.splitlines() if "sphinx-build" in line]
    assert runs == [f"{way}sphinx-build -c tools/plain . _build/plain" for way in ("", "PRESS=1 ")]
    assert (ROOT / "tools" / "plain" / "conf.py").is_file()
