"""Stands for a kernel that `fork_server.py` forks; see `kernel_server`. Run as a script.

Arguments: the server's address, then the command of an ordinary kernel. Loads little, so that it is there
at once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(address: str, command: list[str]) -> None:
    """Ask for a kernel and end when it has ended; become an ordinary one where nobody answers."""
    server = socket.socket(socket.AF_UNIX)
    request = {
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "arguments": command[command.index("ipykernel_launcher") :],
    }
    try:
        server.connect(address)
        socket.send_fds(server, [b" "], [0, 1, 2])
        server.sendall(json.dumps(request).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            received = server.recv(64)
            if not received:
                raise ConnectionError("the server is gone")
            answer += received
    except OSError:
        os.execv(command[0], command)
    kernel = int(answer)
    for number in _SIGNALS:
        signal.signal(number, lambda sent, _: _pass_on(kernel, sent))
    while server.recv(1):  # ends with the kernel, which holds the other end
        pass


def _pass_on(kernel: int, sent: int) -> None:
    try:
        os.kill(kernel, sent)
    except ProcessLookupError:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
