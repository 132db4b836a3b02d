"""The state in which answers are judged: the same whatever the program around has set or replaced."""

from __future__ import annotations

import math
import random
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional
from torch import nn

from measured_book.exercises import answers

_WATCHED: tuple[Any, ...] = (
    torch,
    torch.Tensor,
    torch.nn.functional,
    torch.linalg,
    nn.Module,
    math,
    np,
    answers,
    answers.Answer,
    answers.Fault,
)


def _names_of(owner: Any) -> dict[str, Any]:
    """What an owner has: of a class everything, of a module what is public, or its own functions' helpers."""
    kept = isinstance(owner, type) or owner is answers
    return {name: one for name, one in vars(owner).items() if kept or not name.startswith("_")}


_HAS: list[tuple[Any, dict[str, Any]]] = [(owner, _names_of(owner)) for owner in _WATCHED]
_CODE = {
    one: one.__code__
    for owner, names in _HAS
    if owner is answers or owner is answers.Answer
    for one in names.values()
    if isinstance(one, types.FunctionType)
}


def settle(seed: int = 0) -> None:
    """Set random numbers, gradients, float32 and the CPU in this process for good."""
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    if torch.get_default_device().type != "cpu":
        torch.set_default_device(None)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def settled(seed: int = 0) -> Iterator[None]:
    """Give a block seeded random numbers, gradients, float32 and the CPU; leave the program's own unchanged."""
    python, numpy, dtype = random.getstate(), np.random.get_state(), torch.get_default_dtype()
    device = torch.get_default_device()
    with (
        torch.random.fork_rng(devices=[]),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        np.errstate(all="warn"),
    ):
        try:
            settle(seed)
            yield
        finally:
            torch.set_default_dtype(dtype)
            if device.type != "cpu":
                torch.set_default_device(device)
            random.setstate(python)
            np.random.set_state(numpy)


@contextmanager
def untouched() -> Iterator[None]:
    """Put back what the program replaced in PyTorch, NumPy and the checks while a block runs.

    A checker compares by functions such as `torch.allclose`. Where a program has replaced one, on purpose or
    by a name that it chose, the answer still sees the replacement, and the checker does not.
    """
    replaced: list[tuple[Any, str, Any]] = []
    for owner, had in _HAS:
        now = vars(owner)
        replaced += [
            (owner, name, now.get(name, _NOTHING))
            for name in had
            if now.get(name, _NOTHING) is not had[name]
        ]
        if isinstance(owner, type):
            replaced += [(owner, name, now[name]) for name in set(now) - set(had)]
    codes = {function: function.__code__ for function in _CODE}
    try:
        for owner, name, _ in replaced:
            _put(owner, name, dict(_original(owner)).get(name, _NOTHING))
        for function, code in _CODE.items():
            function.__code__ = code
        yield
    finally:
        for owner, name, value in replaced:
            _put(owner, name, value)
        for function, code in codes.items():
            function.__code__ = code


class _Nothing:
    """Marks a name that is not there."""


_NOTHING = _Nothing()


def _original(owner: Any) -> dict[str, Any]:
    return next(had for one, had in _HAS if one is owner)


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _NOTHING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
