"""Running the cells of one chapter in a kernel through nbclient, and saying precisely where it failed."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from bookpress.cache import with_outputs
from bookpress.chapters import Chapter, cell_line
from bookpress.disk import refusal, write

IPYTHON = "_build/ipython"
IPYTHON_CONFIG = """\
c.IPKernelApp.log_level = "CRITICAL"
c.HistoryManager.enabled = False
"""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Failure:
    """Why a chapter did not pass: the cell (counted from 1), where it stands, and the error."""

    source: str
    error: str
    trace: str = ""
    cell: int | None = None
    line: int | None = None
    code: str = ""

    @property
    def summary(self) -> str:
        """One paragraph naming chapter, cell and error."""
        if self.cell is None:
            return f"{self.source}: {self.error}"
        return (
            f"{self.source}, code cell {self.cell} (line {self.line})\n"
            f"    {self.code}\n"
            f"  {self.error}"
        )


@dataclass(frozen=True)
class Run:
    """What a kernel made of a chapter: the notebook with its outputs, and the failure if any."""

    notebook: NotebookNode
    seconds: float
    failure: Failure | None
    timings: list[dict[str, Any]]
    """Of each cell that was executed, the slowest first: see `timings_of`."""


class Cells:
    """The cells of a chapter, to be executed once; another thread may stop that.

    Args:
        chapter: whose cells they are; its folder is the working directory.
        source: the chapter as a notebook.
        timeout: what one cell may take, in seconds.
        manager: the kind of kernel manager, where it is not Jupyter's own.
    """

    def __init__(
        self,
        chapter: Chapter,
        source: NotebookNode,
        timeout: int,
        manager: type | None = None,
    ) -> None:
        self._chapter, self._source = chapter, source
        self._timeout, self._manager = timeout, manager
        self._at: int | None = None
        self._client: Any = None
        self._stopped = False

    def execute(self) -> Run:
        """Execute all cells in a kernel of their own, up to the first one that fails."""
        from nbclient.exceptions import CellExecutionError

        executed, failure = copy.deepcopy(self._source), None
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kernel-") as folder:  # short: see _settings
            self._client = self._client_for(executed, folder)
            try:
                self._client.execute(cwd=str(self._chapter.path.parent))
            except CellExecutionError as error:
                failure = self._failure(f"{error.ename}: {error.evalue}", error.traceback)
            except Exception as error:  # it took too long, or the kernel died or never came up
                if self._at is None and (refused := refusal(error, Path(folder))):
                    raise refused from error
                words, _, trace = f"{type(error).__name__}: {error}".partition("\n")
                failure = self._failure(words, trace)
        seconds = time.monotonic() - start
        timings = timings_of(executed)
        return Run(with_outputs(self._source, executed), seconds, failure, timings)

    def stop(self) -> None:
        """End the kernel, or keep it from executing its first cell; `execute` then returns soon."""
        self._stopped = True
        manager = self._client and self._client.km
        if manager is not None and manager.provisioner is not None and manager.provisioner.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(manager.provisioner.pid, signal.SIGKILL)

    def _client_for(self, executed: NotebookNode, folder: str) -> Any:
        from nbclient import NotebookClient
        from traitlets.config import Config

        kind: dict[str, Any] = (
            {} if self._manager is None else {"kernel_manager_class": self._manager}
        )
        config = Config(KernelManager=_settings(folder))
        return NotebookClient(
            executed, timeout=self._timeout, on_cell_start=self._enter, config=config, **kind
        )

    def _enter(self, cell: NotebookNode, cell_index: int) -> None:
        del cell
        self._at = cell_index
        if self._stopped:
            raise InterruptedError("stopped")

    def _failure(self, error: str, trace: str) -> Failure:
        error, trace = _COLOURS.sub("", error), _COLOURS.sub("", trace)
        if self._at is None:
            return Failure(self._chapter.source, error, trace)
        cells = self._source.cells[: self._at + 1]
        lines = [line for line in cells[-1].source.splitlines() if line.strip()]
        return Failure(
            source=self._chapter.source,
            error=error,
            trace=trace,
            cell=sum(cell.cell_type == "code" for cell in cells),
            line=cell_line(self._chapter, self._source, self._at),
            code=lines[0] if lines else "",
        )


def _settings(folder: str) -> dict[str, str]:
    """Let a kernel listen on files in a folder in place of TCP ports.

    A kernel binds its ports seconds after they were found free: of chapters that start side by side,
    one now and then takes a port of the other, and both hang. A socket's path has 104 bytes at most.
    """
    if os.name != "posix":
        return {}
    return {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}


def write_notebook(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook so that a reader sees the old file or the new one, never half of it."""
    write(path, nbformat.writes(notebook, nbformat.NO_CONVERT))


def write_timings(timings: list[dict[str, Any]], path: Path) -> None:
    """Write what each code cell took."""
    path.write_text(json.dumps(timings, indent=1) + "\n", "utf-8")


def timings_of(executed: NotebookNode) -> list[dict[str, Any]]:
    """What each code cell of an executed notebook took, the slowest first.

    Tables: ``seconds``, ``cell`` (code cells counted from 1) and its first line of ``code``.
    """
    took = []
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        times = cell.metadata.get("execution", {})
        if {"iopub.execute_input", "shell.execute_reply"} <= set(times):
            began, ended = (
                datetime.fromisoformat(times[name])
                for name in ("iopub.execute_input", "shell.execute_reply")
            )
            seconds = round((ended - began).total_seconds(), 1)
            took.append({"seconds": seconds, "cell": number, "code": cell.source.splitlines()[0]})
    return sorted(took, key=lambda cell: -cell["seconds"])


def kernel_environment(root: Path) -> dict[str, str]:
    """The variables that a chapter's kernel gets beside those of the calling process.

    The library that the kernel imports is the one whose source the fingerprint covers; IPython's
    settings are the book's, not those of whoever runs it; figures go into the notebook; and on a CPU
    each chapter keeps to one core, so that chapters can run side by side.
    """
    settings = root / IPYTHON / "profile_default" / "ipython_kernel_config.py"
    if not settings.is_file() or settings.read_text("utf-8") != IPYTHON_CONFIG:
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(IPYTHON_CONFIG, "utf-8")
    paths = [str(root / "lib"), os.environ.get("PYTHONPATH", "")]
    variables = {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": str(root / IPYTHON),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    return variables if has_cuda() else variables | {"OMP_NUM_THREADS": "1"}


@functools.cache
def has_cuda() -> bool:
    """Tell whether chapters will train on a CUDA device; asks PyTorch only where there is a driver."""
    if os.environ.get("MEASURED_DEVICE", "").strip().lower() == "cpu":
        return False
    if shutil.which("nvidia-smi") is None and not Path("/dev/nvidiactl").exists():
        return False
    code = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    return asked.returncode == 0
