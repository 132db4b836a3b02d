"""An executor on this machine's cores: single-threaded processes that need nothing from the caller's.

A `ProcessPoolExecutor` imports the caller's main module in each of its processes, which fails in a script
without a guard for that. These processes are started as a command and get their work through a pipe. One that
dies takes only the call with it that it was at work on.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class ProcessDiedError(RuntimeError):
    """A worker process died during a call: it was killed or ran out of memory."""


class LocalProcesses(Executor):
    """Runs calls in processes on this machine, each with one thread; they start when they are first needed.

    What is submitted must be importable by its name, and its arguments and results must pickle. An
    interruption of the caller ends the processes.
    """

    def __init__(self, number: int, environ: Mapping[str, str] | None = None) -> None:
        """Plan for that many processes.

        Args:
            number: of processes.
            environ: variables of their environment, beside those of this process.

        Raises:
            ValueError: when there is not at least one.
        """
        if number < 1:
            raise ValueError(f"expected at least one process, got {number}")
        self._threads = ThreadPoolExecutor(number)
        self._environ = dict(environ or {})
        self._idle: queue.SimpleQueue[_Process | None] = queue.SimpleQueue()
        self._all: list[_Process] = []
        for _ in range(number):
            self._idle.put(None)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call; its future raises `ProcessDiedError` if the process dies."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, immediately without `wait`."""
        if not wait:
            for process in self._all:
                process.kill()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for process in self._all:
            process.end()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        """Wait for all calls, except after an error."""
        self.shutdown(wait=error is None, cancel_futures=error is not None)
        return None

    def _call(self, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
        process = self._idle.get()
        try:
            if process is None:
                process = _Process(self._environ)
                self._all.append(process)
            succeeded, result = process.call((fn, args, kwargs))
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            status = None if process is None else process.kill()
            process = None
            raise ProcessDiedError(
                f"a process ended in the middle of a run (status {status})"
            ) from error
        finally:
            self._idle.put(process)
        if not succeeded:
            raise result
        return result


class _Process:
    def __init__(self, environ: Mapping[str, str]) -> None:
        places = [place for place in sys.path if place]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "measured_transformer.training._worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(places),
                **environ,
            },
        )

    def call(self, work: Any) -> tuple[bool, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        message = pickle.dumps(pickle.dumps(work))  # what cannot be made anew there fails alone
        self._process.stdin.write(message)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)

    def kill(self) -> int:
        self._process.kill()
        return self._process.wait()

    def end(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
