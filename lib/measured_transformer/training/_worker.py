"""`python -m measured_transformer.training._worker`: does the calls that come in, until no more can come."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import torch


def main() -> None:
    """Read calls from the standard input, write results to what was the standard output."""
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


if __name__ == "__main__":
    main()
