"""A live model in JupyterLab: a notebook is opened in a browser, its cell is run, the model is played with."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

import nbformat
import pytest
from test_live_notebook import plays

CELL = """import torch
from measured_transformer import Config, Decoder
from measured_transformer.viewer.live import live

torch.manual_seed(0)
config = Config(vocab=256, d_model=240, n_layers=3, n_heads=2, positions="rotary")
bench = live(Decoder(config), ["my own text", "another"])
print(f"{len(bench.packed) / 1e6:.1f} MB")
bench"""
STARTS = 400
"""Seconds that a server, a kernel and PyTorch may take together on a busy machine."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab whose folder has one notebook, `own.ipynb`, of one cell."""
    pytest.importorskip("jupyterlab")
    folder = tmp_path_factory.mktemp("lab")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    notebook.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    (folder / "work").mkdir()
    nbformat.write(notebook, folder / "work" / "own.ipynb")
    own = {
        f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")
    }
    settings = {
        "ip": "127.0.0.1",
        "port": 0,
        "open_browser": False,
        "root_dir": f"{folder / 'work'}",
    }
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--IdentityProvider.token="]
    command += [f"--ServerApp.{name}={value}" for name, value in settings.items()]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder / "work", env=os.environ | own, stdout=log, stderr=log
        )
    try:
        until = time.monotonic() + STARTS
        address = None
        while address is None and time.monotonic() < until and server.poll() is None:
            time.sleep(0.2)
            for told in (folder / "runtime").glob("jpserver-*.json"):
                with contextlib.suppress(json.JSONDecodeError):  # while it is written
                    address = json.loads(told.read_text("utf-8"))["url"]
        assert address, f"JupyterLab did not start: {(folder / 'log').read_text('utf-8')[-2000:]}"
        yield address
    finally:
        server.terminate()
        server.wait(30)


def test_one_call_on_one_s_own_model_of_nearly_five_megabytes(lab, browser):
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(STARTS * 1000)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{lab}lab/tree/own.ipynb?reset")
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").first.wait_for()
    page.keyboard.press("Control+Enter")
    output = page.locator(".jp-OutputArea").first
    size = output.get_by_text(" MB").inner_text()
    assert 4 < float(size.split()[0]) <= 5
    plays(output)
    assert output.locator(".lm-live").get_attribute("data-theme") == "light"
    box = output.locator(".live-model").bounding_box()
    assert box["width"] <= output.bounding_box()["width"] + 1
    context.close()
    assert [error for error in errors if "live" in error.lower() or "lm-" in error] == []
