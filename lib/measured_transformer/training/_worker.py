"""`python -m measured_transformer.training._worker`: runs incoming calls until its input closes."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from typing import Any

import torch

_LOOK_EVERY = 0.5


def main() -> None:
    """Read calls from standard input and write results to the original standard output."""
    _end_with_parent()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # an interruption is the parent's, which ends this process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed must not get between the answers
    torch.set_num_threads(1)
    while True:
        try:
            work = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            function, args, kwargs = pickle.loads(work)
            answer = (True, function(*args, **kwargs))
        except Exception as error:
            answer = (False, error)
        try:
            data = pickle.dumps(answer)
            pickle.loads(data)  # some errors cannot be made anew from what they carry
        except Exception:
            data = pickle.dumps((False, RuntimeError(f"{type(answer[1]).__name__}: {answer[1]}")))
        answers.write(data)
        answers.flush()


def _end_with_parent() -> None:
    """End this process soon after its parent ends, even in the middle of a call.

    A parent that is killed cannot end its processes, and a training that nobody waits for goes on for long.
    """
    if os.name != "posix":
        return  # there a process keeps the number of its parent, and notices at the end of its call
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
