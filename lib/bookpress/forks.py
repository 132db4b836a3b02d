"""Kernels that have their packages loaded when they start.

A kernel of its own for each chapter means that each loads Jupyter, PyTorch, SciPy and Matplotlib anew: five
to seven seconds of a core, more than many chapters then compute. So one process, the server, loads them
once and forks for every kernel that is asked for. What is loaded are other people's packages; the library and
the chapter are not, so a kernel sees them as they are when it starts.

Jupyter starts a kernel as a process that it can signal and wait for. That is the client here
(`fork_client.py`): it hands its folder, environment, arguments and streams to the server over a socket,
passes signals on to the forked kernel, and ends when that does. Where the server cannot be reached, the
client becomes an ordinary kernel.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager

_FOLDER = Path(__file__).parent
_LAUNCHER = "ipykernel_launcher"
VARIABLE = "BOOKPRESS_FORK"
"""Environment variable: ``1`` has kernels forked."""
_SEVERAL = 4


class Server:
    """A process that forks into kernels, for one environment. It ends with the process that started it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        self.address = f"{self._folder.name}/socket"  # short: such a path has 104 bytes
        self._process = subprocess.Popen(
            [sys.executable, str(_FOLDER / "fork_server.py"), self.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it listens now; what it loads, it loads meanwhile
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def close(self) -> None:
        """End the server; kernels that it forked go on. Closing twice does no harm."""
        atexit.unregister(self.close)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()
        self._folder.cleanup()


_SERVERS: dict[tuple[tuple[str, str], ...], Server] = {}


def server_for(variables: dict[str, str]) -> Server:
    """Return the server for kernels with these variables, which the environment already holds.

    What is set when packages are loaded holds for all kernels of a server, so each setting has its own.
    """
    key = tuple(sorted(variables.items()))
    if key not in _SERVERS:
        _SERVERS[key] = Server()
    return _SERVERS[key]


def worth_it(chapters: int) -> dict[str, str]:
    """Return the variables that have kernels forked, where as many chapters are to run; else nothing.

    The server loads everything for the first kernel, which may need little of it.
    """
    return {VARIABLE: "1"} if chapters >= _SEVERAL else {}


def can_fork(cuda: bool) -> bool:
    """Tell whether kernels can and should be forked: on Linux, and not where they use a CUDA device."""
    return os.environ.get(VARIABLE) == "1" and sys.platform == "linux" and not cuda


def manager_for(server: Server) -> type[AsyncKernelManager]:
    """Return a kind of kernel manager whose Python kernels are forked by a server."""

    class Forked(AsyncKernelManager):
        def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
            """Start the client, with what would start an ordinary kernel as its arguments."""
            command: list[str] = super().format_kernel_cmd(extra_arguments)
            if not _is_ours(command):
                return command
            client = [sys.executable, "-I", "-S", str(_FOLDER / "fork_client.py"), server.address]
            return [*client, *command]

    return Forked


def _is_ours(command: list[str]) -> bool:
    """Whether a command starts an IPython kernel with this interpreter."""
    same = bool(command) and os.path.realpath(command[0]) == os.path.realpath(sys.executable)
    return same and _LAUNCHER in command


def options_for(variables: dict[str, str], cuda: bool) -> dict[str, Any]:
    """Return what to give a notebook's client so that its kernel is forked; nothing where it cannot be."""
    if not can_fork(cuda):
        return {}
    return {"kernel_manager_class": manager_for(server_for(variables))}
