"""A walk that another process made gives the same digest; what changed or reaches other files is walked."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from measured_transformer.parts.norms import RMSNorm
from measured_transformer.provenance import digest, digests, keep_walks, kept, reach, versions


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder where walks are kept, and a process that remembers none."""
    before = kept._folder
    monkeypatch.setattr(digests, "_memory", {})
    kept._sources.cache_clear()
    keep_walks(tmp_path / "walks")
    yield tmp_path / "walks"
    keep_walks(before)
    kept._sources.cache_clear()


def forget(monkeypatch):
    monkeypatch.setattr(digests, "_memory", {})


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.json"))


def no_walk(*_):
    raise AssertionError("walked")


def test_a_second_process_walks_no_more(folder, monkeypatch):
    first, at = digest(RMSNorm, settings={"a": 1}), versions(RMSNorm)
    assert len(files_in(folder)) == 1
    forget(monkeypatch)
    monkeypatch.setattr(digests, "Walk", no_walk)
    assert digest(RMSNorm, settings={"a": 1}) == first
    assert versions(RMSNorm) == at
    assert digest(RMSNorm, settings={"a": 2}) != first


def test_nothing_is_kept_where_no_folder_was_named(folder, monkeypatch):
    keep_walks(None)
    digest(RMSNorm)
    assert files_in(folder) == []


def test_what_a_thing_reaches_is_found_by_a_walk_and_complete(folder, monkeypatch):
    digest(RMSNorm)
    expected = reach(RMSNorm)
    forget(monkeypatch)
    digest(RMSNorm)
    assert reach(RMSNorm) == expected
    assert expected


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        '{"digest": "x"}',
        '{"modules": []}',
        '{"digest": "x", "packages": [], "modules": [5]}',
    ],
)
def test_a_damaged_file_is_written_anew(folder, monkeypatch, damage):
    first = digest(RMSNorm)
    (path,) = files_in(folder)
    whole = path.read_text("utf-8")
    path.write_text(damage, "utf-8")
    forget(monkeypatch)
    assert digest(RMSNorm) == first
    assert path.read_text("utf-8") == whole


def test_a_folder_where_nothing_can_be_written_costs_only_time(folder, tmp_path):
    keep_walks(tmp_path / "file" / "walks")
    (tmp_path / "file").write_text("", "utf-8")
    assert digest(RMSNorm)


def test_what_reaches_a_readers_own_file_is_walked_each_time(folder, tmp_path, monkeypatch):
    (tmp_path / "own_norm.py").write_text(
        "from measured_transformer.parts.norms import RMSNorm\n\n\nclass Own(RMSNorm):\n    pass\n",
        "utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    digest(importlib.import_module("own_norm").Own)
    assert files_in(folder) == []


ASKS = """
import sys
from pathlib import Path
from measured_transformer.provenance import digest, keep_walks
keep_walks(Path(sys.argv[1]))
print(digest("measured_transformer.parts.toy:scaled"))
"""


def copied(tmp_path: Path) -> Path:
    """A library of one function and one constant, with the real `provenance`."""
    package = tmp_path / "lib" / "measured_transformer"
    (package / "parts").mkdir(parents=True)
    source = Path(kept.__file__).parent
    for file in source.glob("*.py"):
        (package / "provenance").mkdir(exist_ok=True)
        (package / "provenance" / file.name).write_text(file.read_text("utf-8"), "utf-8")
    (package / "__init__.py").write_text("", "utf-8")
    (package / "parts/__init__.py").write_text("", "utf-8")
    (package / "parts/toy.py").write_text(
        "EPS = 1e-5\n\n\ndef scaled(x):\n    return x * EPS\n", "utf-8"
    )
    return package


def asked(package: Path, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASKS, str(folder)],
        env={**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_changed_constant_is_seen_even_where_date_and_length_stay(tmp_path):
    package, folder = copied(tmp_path), tmp_path / "walks"
    toy = package / "parts/toy.py"
    first, at = asked(package, folder), toy.stat()
    assert asked(package, folder) == first
    toy.write_text(toy.read_text("utf-8").replace("1e-5", "1e-6"), "utf-8")
    os.utime(toy, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert asked(package, folder) != first
    assert len(files_in(folder)) == 2


def test_what_is_kept_of_a_few_earlier_states_of_the_sources_goes(tmp_path):
    package, folder = copied(tmp_path), tmp_path / "walks"
    toy = package / "parts/toy.py"
    for number in range(7):
        toy.write_text(f"EPS = {number}\n\n\ndef scaled(x):\n    return x * EPS\n", "utf-8")
        asked(package, folder)
    assert 2 <= len(list(folder.iterdir())) <= 5
    assert all(json.loads(path.read_text("utf-8"))["digest"] for path in files_in(folder))
