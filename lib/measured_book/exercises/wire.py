"""What crosses between a checker and the process in which an answer runs.

Arguments go out as they are; a function that a checker made stays, and is called from the other side. What
comes back is plain by construction: numbers, words, containers, tensors and arrays, rebuilt from their
contents. Nothing of an answer's own classes reaches a checker, so that none can compare equal to everything.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from fractions import Fraction
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from measured_book.exercises.answers import Opaque, in_words

Function = Callable[..., Any]
Call = Callable[[int, tuple[Any, ...], dict[str, Any]], Any]

_SINGLE: Mapping[str, Any] = {"none": None, "dots": ..., "unwritten": NotImplemented}
_EXACT = (type(None), type(...), type(NotImplemented), bool, int, float, str, bytes, complex)
_DEEP = 50  # containers inside one another, more of them are no answer


# Back: plain values ------------------------------------------------------------------------------


def encode(value: Any, modules: tuple[nn.Module, ...] = ()) -> Any:
    """Return a value as what JSON can say.

    Args:
        value: of any kind; what is none of the plain kinds is only described in words.
        modules: a module with the names and shapes of one of these goes across as its weights.
    """
    return _encode(value, modules, 0)


def _encode(value: Any, modules: tuple[nn.Module, ...], deep: int) -> Any:
    for tag, single in _SINGLE.items():
        if value is single:
            return [tag]
    if deep > _DEEP:
        return ["words", "containers inside one another without end", False]
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _array(value)
    plain = _plain(value)
    if plain is not None:
        return plain
    if isinstance(value, dict):
        pairs = [
            [_encode(key, modules, deep + 1), _encode(one, modules, deep + 1)]
            for key, one in dict.items(value)
        ]
        return ["dict", pairs]
    kind: Any
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [
                kind.__name__,
                [_encode(one, modules, deep + 1) for one in kind.__iter__(value)],
            ]
    if isinstance(value, nn.Module):
        for index, module in enumerate(modules):
            if type(module) is type(value) and _shapes(module) == _shapes(value):
                weights = {name: _tensor(one) for name, one in value.state_dict().items()}
                return ["module", index, weights, value.training]
    return ["words", in_words(value), callable(value)]


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return ["bool", value is True]
    if isinstance(value, int):
        return ["int", hex(int.__index__(value))]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, str):
        return ["str", str.__str__(value)]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", base64.b64encode(bytes(value)).decode()]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, Fraction):
        return ["fraction", hex(value.numerator), hex(value.denominator)]
    return None


def _tensor(value: Tensor) -> Any:
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        held = value.detach().cpu()
        held = held.to_dense() if held.layout != torch.strided else held
        held = held.dequantize() if held.is_quantized else held
        held = held.resolve_conj().resolve_neg().contiguous().clone()
        raw = held.flatten().view(torch.uint8) if held.numel() else held.flatten()
        data = base64.b64encode(bytes(raw.as_subclass(Tensor).untyped_storage())).decode()
        kind = str(held.dtype).removeprefix("torch.")
        return ["tensor", kind, list(held.shape), data, bool(value.requires_grad)]


def _array(value: Any) -> Any:
    scalar = isinstance(value, np.generic)
    held = np.ascontiguousarray(np.array(value, subok=False))
    if held.dtype.kind not in "biufc":
        return ["words", in_words(value), False]
    data = base64.b64encode(held.tobytes()).decode()
    return ["scalar" if scalar else "array", held.dtype.str, list(np.shape(value)), data]


def decode(tree: Any, modules: tuple[nn.Module, ...] = ()) -> Any:
    """Return the value that `encode` described.

    Raises:
        ValueError: when this is no such description.
    """
    try:
        return _decode(tree, modules)
    except (TypeError, KeyError, IndexError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"expected a value as `encode` describes it, got another: {error}"
        ) from error


def _decode(tree: Any, modules: tuple[nn.Module, ...]) -> Any:
    tag, *rest = tree
    if tag in _SINGLE:
        return _SINGLE[tag]
    if tag in _SIMPLE:
        return _SIMPLE[tag](*rest)
    if tag in ("list", "tuple", "set", "frozenset"):
        kind: Any = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[tag]
        return kind(_decode(one, modules) for one in rest[0])
    if tag == "dict":
        return {_decode(key, modules): _decode(one, modules) for key, one in rest[0]}
    if tag == "module":
        index, weights, training = rest
        module = deepcopy(modules[index])
        module.load_state_dict({name: _decode(one, modules) for name, one in weights.items()})
        return module.train(bool(training))
    raise ValueError(f"expected a kind of value, got {tag!r}")


def _make_tensor(kind: str, shape: list[int], data: str, gradient: bool) -> Tensor:
    dtype = getattr(torch, kind)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"expected a kind of number, got {kind!r}")
    raw = bytearray(base64.b64decode(data))
    flat = (
        torch.frombuffer(raw, dtype=torch.uint8).clone().view(dtype)
        if raw
        else torch.empty(0, dtype=dtype)
    )
    made = flat.reshape(shape)
    return made.requires_grad_() if gradient and made.dtype.is_floating_point else made


def _make_array(kind: str, shape: list[int], data: str) -> Any:
    return np.frombuffer(base64.b64decode(data), dtype=np.dtype(kind)).reshape(shape).copy()


_SIMPLE: Mapping[str, Callable[..., Any]] = {
    "bool": bool,
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "str": str,
    "bytes": base64.b64decode,
    "complex": complex,
    "fraction": lambda above, below: Fraction(int(above, 16), int(below, 16)),
    "tensor": _make_tensor,
    "array": _make_array,
    "scalar": lambda kind, shape, data: _make_array(kind, shape, data)[()],
    "words": Opaque,
}


def is_plain(value: Any) -> bool:
    """Return whether a value is made of built-in kinds, tensors and arrays alone, none of them a subclass."""
    if (
        type(value) in _EXACT
        or type(value) in (Tensor, np.ndarray)
        or isinstance(value, np.generic)
    ):
        return True
    if type(value) in (list, tuple, set, frozenset):
        return all(map(is_plain, value))
    return type(value) is dict and all(is_plain(one) for pair in value.items() for one in pair)


def dumps(tree: Any) -> bytes:
    """Return what `encode` gave as bytes."""
    return json.dumps(tree).encode()


def loads(data: bytes) -> Any:
    """Return what `dumps` wrote; a `ValueError` when it is nothing of the kind."""
    return json.loads(data)


def _shapes(module: nn.Module) -> dict[str, Any]:
    return {name: one.shape for name, one in module.state_dict().items()}


# Out: arguments ----------------------------------------------------------------------------------


class _Packer(pickle.Pickler):
    """A pickler that leaves functions which belong to a checker where they are, and sends a number for each."""

    def __init__(self, into: io.BytesIO, kept: list[Function]) -> None:
        super().__init__(into, protocol=5)
        self._kept = kept

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, FunctionType) or _importable(obj):
            return None
        self._kept.append(obj)
        return len(self._kept) - 1, obj.__name__


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, call: Call) -> None:
        super().__init__(io.BytesIO(data))
        self._call = call

    def persistent_load(self, pid: Any) -> Function:
        number, name = pid
        call = self._call

        def function(*args: Any, **kwargs: Any) -> Any:
            return call(number, args, kwargs)

        function.__name__ = function.__qualname__ = name
        return function


def _importable(function: FunctionType) -> bool:
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function and function.__module__ != "__main__"


def pack(values: Any, kept: list[Function] | None = None) -> bytes:
    """Return arguments as bytes for `unpack`.

    Args:
        values: what the other process gets.
        kept: gets each function that is made inside of another; it stays here, and is called by its number.
    """
    into = io.BytesIO()
    _Packer(into, [] if kept is None else kept).dump(values)
    return into.getvalue()


def unpack(data: bytes, call: Call | None = None) -> Any:
    """Return what `pack` wrote. It comes from a checker alone: what an answer sends is never read by this.

    Args:
        data: the bytes.
        call: calls a function that was kept, by number, arguments and keywords.
    """
    return _Unpacker(data, call or _nobody).load()


def _nobody(number: int, args: Any, kwargs: Any) -> Any:
    raise LookupError("nobody keeps this function")
