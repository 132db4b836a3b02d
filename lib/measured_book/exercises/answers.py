"""What checkers demand of an answer, and how they report a fault.

A checker calls the answer like the function that it shall be, turns what comes back into a tensor or a number,
and demands properties of it, the basic ones first. Everything a reader can do wrong before that (nothing
written yet, an error, other arguments, an input that was changed) is found here, for all exercises alike.
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_SHOWN = 8  # a tensor of at most so many entries is shown, of a larger one the shape
_NOT_WRITTEN = "there is nothing to check yet"


class Fault(Exception):  # noqa: N818, it is told to a reader and stops nothing
    """The first thing wrong with an answer.

    Args:
        message: what is wrong: what the answer gave, and which property was expected, not the answer itself.
        at_an_input: whether the input of the last call belongs to it.
    """

    def __init__(self, message: str, *, at_an_input: bool = True) -> None:
        super().__init__(message)
        self.at_an_input = at_an_input


@dataclass(frozen=True)
class Opaque:
    """What stands for a value that is no number, word, tensor or container of these: a description of it.

    Attributes:
        words: the description.
        callable: whether the value can be called.
    """

    words: str
    callable: bool = False

    def __repr__(self) -> str:
        return self.words


def demand(condition: Any, message: str) -> None:
    """Raise a `Fault` with this message unless the condition holds."""
    if not bool(condition):
        raise Fault(message)


class Answer:
    """An answer given to `check`, called like the function that it should be.

    Args:
        value: the answer itself.

    Attributes:
        value: the answer itself.
        calls: how often it was called.
        input: the arguments of the last call, in words.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.calls = 0
        self.input = ""

    def demand_a_start(self, asked: str) -> None:
        """Raise a `Fault` that restates the exercise when nothing has been written yet."""
        if self.value is None or self.value is ... or self.value is NotImplemented:
            raise Fault(f"{_NOT_WRITTEN}. Asked for: {asked}", at_an_input=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function gives for these arguments.

        A `Fault` says so when the answer is no function, takes other arguments, fails, gives nothing, or
        writes into its arguments.
        """
        names = self._begin(args, kwargs)
        before = [_copy(value) for value in (*args, *kwargs.values())]
        try:
            found = self.value(*args, **kwargs)
        except NotImplementedError:
            raise Fault(
                f"{_NOT_WRITTEN}: the function raises NotImplementedError", at_an_input=False
            ) from None
        except Exception as error:
            raise Fault(_failure(error, self.value)) from None
        except SystemExit:
            raise Fault("the function ends the program (exit, quit or SystemExit)") from None
        if found is None or found is ... or found is NotImplemented:
            raise Fault(
                f"the function returns {found}: is it still to be written, or is a `return` missing?"
            )
        for name, was, now in zip(names, before, (*args, *kwargs.values()), strict=True):
            demand(
                _same(was, now),
                f"the function writes into its argument `{name}`; a caller's values must stay",
            )
        return found

    def watched(self, watcher: Callable[[], Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The same while something watches what the function does; the watcher's `seen` comes second.

        Args:
            watcher: makes a context manager with an attribute `seen`, of plain values; a class at the top of
                its module.
            args: of the function.
            kwargs: of the function.
        """
        with watcher() as watching:
            found = self(*args, **kwargs)
        return found, watching.seen

    def _begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
        """Check that the function can be called so, put its input in words, return the arguments' names."""
        self._demand_function()
        names = self._names(args, kwargs)
        self.input = ", ".join(
            f"{name} = {in_words(value)}"
            for name, value in zip(names, [*args, *kwargs.values()], strict=True)
        )
        self.calls += 1
        return names

    def _demand_function(self) -> None:
        if isinstance(self.value, type) and issubclass(self.value, nn.Module):
            text = f"expected a module, got its class {self.value.__name__}: make one and pass that"
            raise Fault(text, at_an_input=False)
        if not callable(self.value):
            text = f"expected a function, got {in_words(self.value)}: pass its name, without calling it"
            raise Fault(text, at_an_input=False)

    def _names(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
        """Return the names of the arguments, and check that the function takes them."""
        called = self.value.forward if isinstance(self.value, nn.Module) else self.value
        try:
            signature = inspect.signature(called)
        except (TypeError, ValueError):  # built in: it does not say
            return [*(f"argument {i}" for i in range(1, len(args) + 1)), *kwargs]
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            wanted = ", ".join(
                [*(in_words(value) for value in args), *(f"{key}=..." for key in kwargs)]
            )
            text = f"expected a function that can be called with ({wanted}), yours takes {signature}: {error}"
            raise Fault(text, at_an_input=False) from None
        named = [
            name
            for name, one in signature.parameters.items()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
        more = [f"argument {i}" for i in range(len(named) + 1, len(args) + 1)]
        return [*named[: len(args)], *more, *kwargs]

    def number(self) -> float:
        """Return the answer as a number."""
        return number(self.value, "the answer")

    def numbers(self, *names: str) -> list[float]:
        """Return the answer as this many numbers, in order."""
        values = self.value.tolist() if isinstance(self.value, (Tensor, np.ndarray)) else self.value
        if isinstance(values, Mapping):
            values = list(values.values())
        wanted = f"{len(names)} numbers ({', '.join(names)})"
        if not isinstance(values, (list, tuple)):
            raise Fault(f"expected {wanted}, got {in_words(self.value)}")
        demand(len(values) == len(names), f"expected {wanted}, got {len(values)}")
        for name, value in zip(names, values, strict=True):
            demand(value is not None and value is not ..., f"{_NOT_WRITTEN} for {name}")
        return [number(value, name) for name, value in zip(names, values, strict=True)]

    def option(self, *options: str) -> str:
        """Return the answer as one of these words, ignoring case."""
        listed = ", ".join(map(repr, options))
        if not isinstance(self.value, str):
            raise Fault(f"expected one of {listed}, got {in_words(self.value)}")
        chosen = self.value.strip().casefold()
        demand(
            chosen in {one.casefold() for one in options},
            f"expected one of {listed}, got {self.value!r}",
        )
        return next(one for one in options if one.casefold() == chosen)


def number(value: Any, name: str = "the result") -> float:
    """Return a finite number, from Python, NumPy or a tensor of one entry; anything else is a `Fault`."""
    if isinstance(value, (Tensor, np.ndarray)):
        size = math.prod(value.shape)
        demand(size == 1, f"{name} shall be one number, got {size} of them, {in_words(value)}")
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise Fault(f"{name} shall be a number, got {in_words(value)}")
    demand(math.isfinite(value), f"{name} is {value}, no finite number")
    return float(value)


def tensor(
    value: Any,
    shape: tuple[int, ...] | None = None,
    *,
    name: str = "the result",
    boolean: bool = False,
    finite: bool = True,
) -> Tensor:
    """Return a tensor in float64 (or Boolean), from a tensor, an array or lists; anything else is a `Fault`.

    Args:
        value: what an answer gave.
        shape: what its shape shall be; any when not given.
        name: what it is, for the message.
        boolean: whether it shall be Boolean.
        finite: whether NaN and infinite entries are a fault.
    """
    try:
        found = (
            value.detach().cpu()
            if isinstance(value, Tensor)
            else torch.as_tensor(np.asarray(value))
        )
    except (TypeError, ValueError, RuntimeError):
        raise Fault(f"{name} shall be a tensor, got {in_words(value)}") from None
    got = tuple(found.shape)
    if shape is not None:
        demand(got == shape, f"{name} shall have the shape {shape}, got {got}")
    if boolean:
        kind = str(found.dtype).removeprefix("torch.")
        demand(found.dtype == torch.bool, f"{name} shall be Boolean, True or False, got {kind}")
        return found
    found = found.to(torch.float64)
    if finite and not found.isfinite().all():
        kind = "NaN" if found.isnan().any() else "infinite"
        at = first(~found.isfinite())
        raise Fault(f"{name} is {kind} at {at}" if at else f"{name} is {kind}")
    return found


def close(found: Tensor | float, expected: Tensor | float, tolerance: float = 1e-6) -> bool:
    """Tell whether two values agree, up to a tolerance relative to the expected one's size (at least 1)."""
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    found, expected = found.to(torch.float64), expected.to(torch.float64)
    size = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    return bool(torch.allclose(found, expected, rtol=0.0, atol=tolerance * size))


def first(wrong: Tensor) -> tuple[int, ...]:
    """Return the index of the first true entry."""
    places = wrong.nonzero()
    return tuple(places[0].tolist()) if len(places) else ()


drawn_from: ContextVar[int] = ContextVar("drawn_from", default=0)
"""What a drawn exercise adds to the seeds of its inputs, see `measured_book.exercises.draws`."""


def normal(*shape: int, seed: int) -> Tensor:
    """Return normal numbers in float64: the same for the same seed, others where an exercise is drawn."""
    generator = torch.Generator().manual_seed(seed + drawn_from.get())
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def demand_number(
    found: float,
    expected: float,
    *,
    way: str,
    name: str = "the answer",
    within: float = 0.01,
    slips: Mapping[float, str] | None = None,
) -> None:
    """Raise a `Fault` unless a number is right, with a hint by the kind of mistake that would lead to it.

    Args:
        found: the number given.
        expected: the right one.
        way: what to think of when nothing else is known of the mistake, without the number itself.
        name: what the number is, for the message.
        within: how far it may be away, relative to the right one (absolutely where that is zero).
        slips: wrong numbers that a known mistake gives, with words on the mistake.
    """

    def near(value: float, share: float = max(within, 0.02)) -> bool:
        return abs(found - value) <= share * (abs(value) or 1.0)

    if near(expected, within):
        return
    shown = f"{name}, {found:.6g}, is not it"
    for value, words in (slips or {}).items():
        demand(not near(value), f"{shown}: {words}")
    if expected:
        demand(not near(-expected), f"{shown}: look at the sign")
        demand(
            not near(100 * expected),
            f"{shown}: a hundred times too large; a share, not per cent, is asked for",
        )
        rough = abs(found - expected) <= 0.1 * abs(expected)
        demand(not rough, f"{shown}, but near it: round later")
    raise Fault(f"{shown}: {way}")


def in_words(value: Any) -> str:
    """Describe a value briefly: small ones in full, large ones by shape."""
    if isinstance(value, (Tensor, np.ndarray)):
        kind = str(value.dtype).removeprefix("torch.")
        if 0 < math.prod(value.shape) <= _SHOWN:
            listed = value.tolist()
            return f"{_rounded(listed)} ({kind})"
        return f"{'tensor' if isinstance(value, Tensor) else 'array'} of shape {tuple(value.shape)}, {kind}"
    if isinstance(value, Opaque):
        return value.words
    if isinstance(value, nn.Module):
        return f"a module {type(value).__name__}"
    if callable(value):
        return f"the function {getattr(value, '__name__', type(value).__name__)}"
    if isinstance(value, (list, tuple)) and any(
        isinstance(one, (Tensor, np.ndarray)) for one in value
    ):
        inner = ", ".join(map(in_words, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    text = repr(value)
    return text if len(text) <= 70 else f"{type(value).__name__} {text[:60]}..."


def _rounded(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_rounded, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _failure(error: Exception, function: Any) -> str:
    """Say which error a function raised, and in which of its own lines."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "the function needs more memory than an answer may take"
    text = f"the function raises {type(error).__name__}: {error}"
    called = function.forward if isinstance(function, nn.Module) else function
    file = getattr(getattr(called, "__code__", None), "co_filename", None)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if own:
        text += f"\nin its line `{own[-1].line}`" if own[-1].line else ""
    return text


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, (list, tuple)):
        return [_copy(one) for one in value]
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items()}
    return value


def _same(was: Any, now: Any) -> bool:
    if isinstance(was, Tensor):
        kept = was.shape == now.shape and was.dtype == now.dtype
        return kept and torch.equal(was.nan_to_num(), now.detach().nan_to_num())
    if isinstance(was, np.ndarray):
        return np.array_equal(was, now, equal_nan=was.dtype.kind == "f")
    if isinstance(was, list):
        return len(was) == len(now) and all(map(_same, was, now))
    if isinstance(was, dict):
        return was.keys() == now.keys() and all(_same(was[key], now[key]) for key in was)
    return was is now
