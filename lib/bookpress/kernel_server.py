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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_client.manager import AsyncKernelManager

_FOLDER = Path(__file__).parent
_LAUNCHER = "ipykernel_launcher"
VARIABLE = "BOOKPRESS_FORK"
"""Environment variable: ``1`` has any run start a server, for however few kernels."""
_SEVERAL = 4
"""Kernels from which a server is worth it: it loads everything, of which one kernel may need little."""


class Server:
    """A process that forks into kernels, for one environment. It ends with the process that started it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kernels-")
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


class Shared:
    """One server for all kernels of a run, started once it is known to be worth it.

    Args:
        variables: gives the environment variables to load packages with, which then hold for all kernels.
        cuda: tells whether kernels use a CUDA device; these cannot be forked.
    """

    def __init__(self, variables: Callable[[], dict[str, str]], cuda: Callable[[], bool]) -> None:
        self._variables, self._cuda = variables, cuda
        self._server: Server | None = None
        self._missing = 1 if os.environ.get(VARIABLE) == "1" else _SEVERAL

    def expect(self) -> None:
        """Count one kernel that will be asked for."""
        self._missing -= 1
        if self._missing == 0 and sys.platform == "linux" and not self._cuda():
            with environment(self._variables()):
                self._server = Server()

    @property
    def manager(self) -> type[AsyncKernelManager] | None:
        """The kind of kernel manager that asks the server for kernels; none where there is no server."""
        return manager_for(self._server.address) if self._server else None

    @property
    def pid(self) -> int | None:
        """The server's process; none where there is no server."""
        return self._server.pid if self._server else None

    def close(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.close()


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the length of a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def manager_for(address: str) -> type[AsyncKernelManager]:
    """Return a kind of kernel manager whose Python kernels are forked by the server at an address."""
    from jupyter_client.manager import AsyncKernelManager

    class Forked(AsyncKernelManager):
        def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
            """Start the client, with what would start an ordinary kernel as its arguments."""
            command: list[str] = super().format_kernel_cmd(extra_arguments)
            if not _is_ours(command):
                return command
            client = [sys.executable, "-I", "-S", str(_FOLDER / "fork_client.py"), address]
            return [*client, *command]

    return Forked


def _is_ours(command: list[str]) -> bool:
    """Return whether a command starts an IPython kernel with this interpreter."""
    same = bool(command) and os.path.realpath(command[0]) == os.path.realpath(sys.executable)
    return same and _LAUNCHER in command
