"""Loads packages and forks into kernels; see `kernel_server`. Run as a script: the address to listen at.

Imports nothing of this package, so that a kernel that is forked from it has nothing of it loaded.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading

LOADED = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "numpy",
    "scipy.stats",
    "torch",
    "torch._dynamo",  # the first optimiser that is made loads it
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "matplotlib.font_manager",
    "jaxtyping",
    "safetensors.torch",
    "xarray",  # and pandas with it
)
"""Not pyplot: it is set up for the notebook when it is loaded in one."""
_SELDOM = (100_000, 20, 50)
"""Thresholds of the garbage collector; a drawing makes many objects that live until its end."""
_LONGEST = 1 << 20


def serve(address: str) -> None:
    """Fork for every client until the process that started this one is gone."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    print("listening", flush=True)
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # what is loaded is no kernel's garbage, nor copied for being looked at
    gc.set_threshold(*_SELDOM)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for kernels but their clients
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        client, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _become_kernel(client)
        client.close()


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


def _become_kernel(client: socket.socket) -> None:
    """Take over what the client hands over, run the kernel, and never return."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        asked, streams, _, _ = socket.recv_fds(client, _LONGEST, 3)
        while not asked.endswith(b"\n"):
            asked += client.recv(_LONGEST)
        request = json.loads(asked)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = request["arguments"]
        client.sendall(f"{os.getpid()}\n".encode())
        threading.Thread(target=_end_with_client, args=(client,), daemon=True).start()
        from ipykernel import kernelapp

        kernelapp.launch_new_instance()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            import atexit

            atexit._run_exitfuncs()
        for written in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                written.flush()
        os._exit(status)


def _end_with_client(client: socket.socket) -> None:
    """A client that is killed takes its kernel with it."""
    with contextlib.suppress(OSError):
        while client.recv(1):
            pass
    os._exit(1)


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, which no kernel has
    serve(sys.argv[1])
