"""The benchmark of a live model's keystrokes runs, and says what it measured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    not (shutil.which("chromium") and find_spec("playwright")),
    reason="times keystrokes in a browser: needs Chromium and playwright",
)
@pytest.mark.parametrize(
    ("model", "view"), [("bytes", []), ("stories", ["--view", "Overview"]), ("heads", [])]
)
def test_it_times_each_place_and_writes_it_down(tmp_path, model, view):
    path = tmp_path / "live.json"
    asked = ["--count", "1", "--slower", "1", "--models", model, "--json", str(path), *view]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.live", *asked],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "at the beginning" in done.stdout
    rows = json.loads(path.read_text("utf-8"))
    places = ["at the end", "in the middle", "at the beginning"]
    assert [row["token"] for row in rows] == places * 2
    assert {row["tokens"] for row in rows} == {64}
    assert all(row["keystroke"] > row["model alone"] > 0 for row in rows)
