"""Running one chapter in a kernel through nbmake, and saying precisely where it failed."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import nbformat
from nbclient.client import NotebookClient
from nbformat import NotebookNode
from nbmake import nb_run
from nbmake.nb_run import NotebookRun
from traitlets.config import Config

from bookpress.cache import with_outputs
from bookpress.chapters import Chapter, cell_line
from bookpress.forks import environment, options_for

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

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a report that crosses processes."""
        return asdict(self)


@dataclass(frozen=True)
class Run:
    """What a kernel made of a chapter: the notebook with its outputs, and the failure if any."""

    notebook: NotebookNode
    seconds: float
    failure: Failure | None


@dataclass(frozen=True)
class _Staged:
    """Where nbmake finds a notebook, and the folder to run it in.

    nbmake reads `str(filename)` and starts the kernel in `filename.parent`; a chapter runs in its own
    folder although its notebook lies in the build folder.
    """

    path: Path
    parent: Path

    def __str__(self) -> str:
        return str(self.path)


def run_chapter(
    chapter: Chapter, source: NotebookNode, staged: Path, root: Path, timeout: int
) -> Run:
    """Execute the cells of `source` in the chapter's folder and leave the notebook at `staged`.

    The kernel is that of the running interpreter; `timeout` (seconds) is for one cell.
    """
    write_notebook(source, staged)
    run = NotebookRun(cast(Path, _Staged(staged, chapter.path.parent)), timeout)
    start = time.monotonic()
    variables = kernel_environment(root)
    with environment(variables), _sockets_of_its_own():
        try:
            result = run.execute()
        except Exception as error:  # the kernel died or never came up
            index = _cell_at(error)
            reason = f"{type(error).__name__}: {error}"
            failure = _failure(chapter, source, index, reason, "")
            return Run(source, time.monotonic() - start, failure)
    seconds = time.monotonic() - start
    merged = with_outputs(source, result.nb)
    write_notebook(merged, staged)
    write_timings(result.nb, staged.with_suffix(".seconds.json"))
    if result.error is None:
        return Run(merged, seconds, None)
    problem = result.error
    failure = _failure(chapter, source, problem.failing_cell_index, problem.summary, problem.trace)
    return Run(merged, seconds, failure)


@contextlib.contextmanager
def _sockets_of_its_own() -> Iterator[None]:
    """Let nbmake start a kernel that is forked, and that listens on files in place of TCP ports.

    A kernel binds its ports seconds after they were found free: of chapters that start side by side,
    one now and then takes a port of the other, and both hang.
    """
    if os.name != "posix":
        yield
        return
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:  # short: a path has 104 bytes
        settings = {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}
        client = functools.partial(
            NotebookClient, config=Config(KernelManager=settings), **options_for()
        )
        nb_run.NotebookClient = client
        try:
            yield
        finally:
            nb_run.NotebookClient = NotebookClient


def write_notebook(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook so that a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(nbformat.writes(notebook, nbformat.NO_CONVERT), "utf-8")
    half.replace(path)


def write_timings(executed: NotebookNode, path: Path) -> None:
    """Write what each code cell of an executed notebook took, the slowest first.

    A list of tables: ``seconds``, ``cell`` (code cells counted from 1) and its first line of ``code``.
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
    took.sort(key=lambda cell: cell["seconds"], reverse=True)
    path.write_text(json.dumps(took, indent=1) + "\n", "utf-8")


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


def _failure(
    chapter: Chapter, source: NotebookNode, index: int | None, error: str, trace: str
) -> Failure:
    error, trace = _COLOURS.sub("", error), _COLOURS.sub("", trace)
    if index is None or not 0 <= index < len(source.cells):
        return Failure(chapter.source, error, trace)
    before = [cell for cell in source.cells[: index + 1] if cell.cell_type == "code"]
    lines = [line for line in source.cells[index].source.splitlines() if line.strip()]
    return Failure(
        source=chapter.source,
        error=error,
        trace=trace,
        cell=len(before),
        line=cell_line(chapter, source, index),
        code=lines[0] if lines else "",
    )


def _cell_at(error: BaseException) -> int | None:
    """The cell that nbclient was executing when it gave up, from the error's traceback."""
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_name == "async_execute_cell":
            index = frame.tb_frame.f_locals.get("cell_index")
            return index if isinstance(index, int) else None
        frame = frame.tb_next
    return None
