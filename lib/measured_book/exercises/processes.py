"""Work in a process of its own, with limits: what it breaks, it breaks for itself.

The process is a copy of this one (`fork`), so that functions of a notebook, of a script and closures are there
without being written down anywhere. It has a time limit, may take so much more memory than there is in use
already, and of what it prints only the beginning is kept. It computes on one thread, since threads of this
process are not copied.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import selectors
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from measured_book.exercises.confined import confine

_LENGTH = struct.Struct("<Q")
_MOST = 2**28  # bytes of one message
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Limits:
    """What a process may take.

    Attributes:
        seconds: of the clock, from its beginning to its end.
        memory: bytes beyond those in use when it begins; any number when None.
        printed: characters that are kept of what it prints.
        file: bytes of each file that it writes; any number when None.
        times: how often its time may begin anew, see `Process.renew`.
        confined: whether it can neither end other processes nor leave behind what it starts, see `confined`.
    """

    seconds: float = 60.0
    memory: int | None = 2 * 2**30
    printed: int = 10_000
    file: int | None = 2**28
    times: int = 1
    confined: bool = True


class EndedError(Exception):
    """A process gave no answer, because it ended or had to be ended.

    Args:
        message: how it ended, as what follows "the function".
        late: whether its time was up.
    """

    def __init__(self, message: str, *, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


def can_copy() -> bool:
    """Return whether this system can copy a process and limit the copy: Linux can."""
    return sys.platform == "linux" and hasattr(os, "fork")


class Line:
    """The copy's end of the line to its parent."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: bytes) -> None:
        """Send one message."""
        self._end.sendall(_LENGTH.pack(len(message)) + message)

    def receive(self) -> bytes | None:
        """Return the next message; None when the parent has closed the line."""
        head = self._exactly(_LENGTH.size)
        return None if head is None else self._exactly(_LENGTH.unpack(head)[0])

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            part = self._end.recv(min(size - len(parts), 2**20))
            if not part:
                return None
            parts += part
        return bytes(parts)


class Process:
    """A copy of this process that does one piece of work, and answers on a line.

    Args:
        work: what the copy does; it gets its end of the line. What it raises is printed, and ends the copy.
        limits: of time, memory and output.

    Attributes:
        printed: the beginning of what the copy has printed.
        cut: whether it printed more than that.
    """

    def __init__(self, work: Callable[[Line], None], limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self.printed, self.cut = "", False
        self._kept, self._inbox = bytearray(), bytearray()
        self._status: int | None = None
        self._over = False
        mine, theirs = socket.socketpair()
        out, into = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of copying a process with threads
            self._pid = os.fork()
        if self._pid == 0:
            _be_the_copy(work, theirs, into, self._limits)
        theirs.close()
        os.close(into)
        self._end, self._out = mine, out
        mine.setblocking(False)
        os.set_blocking(out, False)
        self._until = time.monotonic() + self._limits.seconds
        self._selector = selectors.DefaultSelector()
        self._selector.register(mine, selectors.EVENT_READ)
        self._selector.register(out, selectors.EVENT_READ)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def renew(self) -> None:
        """Let the copy's time begin anew."""
        self._until = time.monotonic() + self._limits.seconds

    def is_over(self) -> bool:
        """Return whether the copy has ended, or is to be ended for what it did."""
        return self._over

    def send(self, message: bytes) -> None:
        """Send one message to the copy.

        Raises:
            EndedError: when it no longer listens.
        """
        waiting = memoryview(_LENGTH.pack(len(message)) + message)
        self._selector.modify(self._end, selectors.EVENT_READ | selectors.EVENT_WRITE)
        try:
            while waiting:
                self._wait()
                with contextlib.suppress(BlockingIOError):
                    waiting = waiting[self._end.send(waiting) :]
        except OSError:
            raise self._ended(self._how()) from None
        finally:
            self._selector.modify(self._end, selectors.EVENT_READ)

    def receive(self) -> bytes:
        """Return the copy's next message.

        Raises:
            EndedError: when there is none: the copy ended, its time is up, or the message is too long.
        """
        while True:
            if len(self._inbox) >= _LENGTH.size:
                size = _LENGTH.unpack(self._inbox[: _LENGTH.size])[0]
                if size > _MOST:
                    raise self._ended(f"gives back more than {_MOST >> 20} MiB")
                if len(self._inbox) >= _LENGTH.size + size:
                    message = bytes(self._inbox[_LENGTH.size : _LENGTH.size + size])
                    del self._inbox[: _LENGTH.size + size]
                    return message
            if self._end in self._wait():
                try:
                    part = self._end.recv(2**20)
                except BlockingIOError:
                    continue
                except OSError:
                    part = b""
                if not part:
                    raise self._ended(self._how())
                self._inbox += part

    def close(self) -> None:
        """End the copy and everything that it started, and keep the beginning of what it printed."""
        if self._status is None:
            self._kill()
        with contextlib.suppress(OSError):
            self._drain()
        self._selector.close()
        self._end.close()
        if self._out >= 0:
            os.close(self._out)
            self._out = -1
        text = self._kept.decode(errors="replace")
        self.printed, self.cut = (
            text[: self._limits.printed],
            self.cut or len(text) > self._limits.printed,
        )

    def _wait(self) -> set[object]:
        """Wait until something can be read or written; take in what was printed."""
        left = self._until - time.monotonic()
        if left <= 0:
            text = f"has not ended after {self._limits.seconds:g} seconds"
            raise self._ended(text, late=True)
        ready: set[object] = {key.fileobj for key, _ in self._selector.select(left)}
        if self._out in ready:
            self._drain()
        return ready

    def _drain(self) -> None:
        for _ in range(
            64
        ):  # whoever prints without end shall not keep its reader from looking at the clock
            try:
                part = os.read(self._out, 2**16)
            except BlockingIOError:
                return
            if not part:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(self._out)
                return
            room = (
                4 * self._limits.printed + 4 - len(self._kept)
            )  # a character has up to four bytes
            self._kept += part[: max(0, room)]
            self.cut = self.cut or len(part) > room

    def _ended(self, message: str, *, late: bool = False) -> EndedError:
        self._over = True
        return EndedError(message, late=late)

    def _how(self) -> str:
        """How a copy that closed its line has ended."""
        for _ in range(100):
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = status
                self._kill_group()
                break
            time.sleep(0.01)
        else:
            return "closed the line to the checker"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGXCPU:
                return f"has not ended after {self._limits.seconds:g} seconds"
            if number == signal.SIGXFSZ:
                return "writes a file of more bytes than it may"
            return (
                f"breaks down ({signal.Signals(number).name}), or ends its process by that signal"
            )
        return f"ends its process (with {os.WEXITSTATUS(status)})"

    def _kill(self) -> None:
        self._kill_group()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            self._status = os.waitpid(self._pid, 0)[1]

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)


def _be_the_copy(
    work: Callable[[Line], None], end: socket.socket, into: int, limits: Limits
) -> None:
    """Do the work and end; nothing of what this process was about to do goes on in the copy."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        _leave_signals()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(into, 1)
        os.dup2(into, 2)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115, open as long as the copy lives
        sys.stdout = sys.stderr = open(  # noqa: SIM115
            1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False
        )
        _let_go_of_files(end.fileno())
        _limit(limits)
        torch.set_num_threads(1)
        if limits.confined:
            confine()
        work(Line(end))
        code = 0
    except BaseException as error:
        with contextlib.suppress(BaseException):
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        os._exit(code)


def _let_go_of_files(kept: int) -> None:
    """Point what this process had open, but for the standard streams and one file, at nothing."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in (kept, nothing):
            with contextlib.suppress(OSError):  # the list itself is closed by now
                os.fstat(number)
                os.dup2(nothing, number)


def _leave_signals() -> None:
    faulthandler.disable()
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _limit(limits: Limits) -> None:
    import resource  # not on every system

    page = os.sysconf("SC_PAGE_SIZE")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * page
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    wanted = {
        resource.RLIMIT_AS: None if limits.memory is None else used + limits.memory,
        resource.RLIMIT_CPU: int(spent + 2 * limits.seconds * limits.times) + 2,
        resource.RLIMIT_FSIZE: limits.file,
        resource.RLIMIT_CORE: 0,
    }
    for which, most in wanted.items():
        if most is None:
            continue
        hard = resource.getrlimit(which)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (most, most))
