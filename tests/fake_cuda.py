"""A CUDA device where there is none: what mixes devices fails here, and not first at a reader's.

Inside of `fake_cuda()` PyTorch tells of a CUDA device. A tensor that is made on it or moved to it is a
`FakeCuda`, which holds an ordinary tensor of the CPU: every value is right, gradients too, and code that looks
at values goes its usual way. What PyTorch refuses is refused with its own words: operations on tensors of both
devices, `.numpy()` of a tensor that is not on the CPU, a generator of the other device.

    with fake_cuda():
        run = train(...)              # on "cuda"
        evaluate(run.model, ...)      # fails if the model stayed there and the batch is on the CPU

How it works: below autograd each operation arrives at `_run`, which looks where its tensors are, computes on
what they hold and wraps what comes out. For C++ a fake tensor lies on PyTorch's device `meta`, the only one
that every build knows and that can have gradients without kernels; a mode puts `meta` for `cuda` wherever
Python names a device. To Python the tensor says `cuda:0`.

Limits: a single device; no real `meta` tensors inside; random numbers "of the device" are the CPU's, and there
is no `torch.Generator("cuda")`; in-place operations that change a shape, and storages, are refused. Attention
takes PyTorch's plain kernel, not a fused one: last digits may differ from the CPU's.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "Fake CUDA"
_HERE, _THERE, _BELOW = torch.device("cpu"), torch.device("cuda", 0), torch.device("meta")
_aten = torch.ops.aten
_engine = torch.autograd._engine_run_backward
# A CPU tensor without axes may stand in for a number, but not in these.
_NO_NUMBERS = {
    _aten.stack,
    _aten.cat,
    _aten.embedding,
    _aten.gather,
    _aten.index_select,
    _aten.scatter,
}
_ANY_DEVICES = {_aten.copy_, _aten._to_copy, _aten._foreach_copy_}
_INDEXED = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}


class FakeCuda(Tensor):
    """A tensor that says it is on a CUDA device; `held` is the tensor of the CPU that it stands for."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> FakeCuda:
        made = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=_BELOW,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs)

    device = property(lambda self: _THERE)
    is_cuda = property(lambda self: True)
    is_meta = property(lambda self: False)

    def get_device(self) -> int:
        return 0

    def numpy(self, *, force: bool = False):
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(
            f"can't convert {_THERE} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def tolist(self):
        return self.detach().cpu().tolist()

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"FakeCuda({self.held!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copied = FakeCuda(self.held.clone()).requires_grad_(self.requires_grad)
            memo[id(self)] = (
                nn.Parameter(copied, self.requires_grad) if _is_parameter(self) else copied
            )
        return memo[id(self)]

    def __reduce_ex__(self, protocol: int):
        raise NotImplementedError(
            "a fake CUDA tensor cannot travel: no real one should, bring it to the CPU"
        )


@contextmanager
def fake_cuda() -> Iterator[None]:
    """Run the block on a machine that seems to have a CUDA device, which training then finds.

    `MEASURED_DEVICE` is `auto` inside; a test may set another word there.
    """
    with ExitStack() as stack:
        for name, stand_in in _stand_ins().items():
            stack.enter_context(mock.patch.object(torch.cuda, name, stand_in))
        stack.enter_context(mock.patch.object(nn.Module, "_apply", _apply))
        stack.enter_context(mock.patch.object(torch.autograd, "_engine_run_backward", _backward))
        stack.enter_context(mock.patch.dict(os.environ, MEASURED_DEVICE="auto"))
        stack.enter_context(_Below())
        stack.enter_context(_Above())
        yield


def on_fake_cuda(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, run inside of `fake_cuda`."""

    @functools.wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        with fake_cuda():
            return call(*args, **kwargs)

    return run


def fakes_in(thing: Any) -> list[str]:
    """Where in models, runs, dataclasses, containers and arrays a tensor of the fake device was left."""
    found: list[str] = []
    _look(thing, "", found, set())
    return found


class _Above(TorchFunctionMode):
    """Puts `meta` wherever Python says `cuda`, before C++ asks for a device that this build has not."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.device, torch.Generator):
            return func(*args, **kwargs)
        if func is Tensor.cuda:
            return args[0].to(_BELOW)
        if func in (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor):
            return _from_data(func, args, dict(kwargs))
        if not kwargs and not any(isinstance(arg, torch.device | str) for arg in args):
            return func(*args)  # nearly always: nothing here names a device
        args = tuple(_below(arg, words=func is Tensor.to) for arg in args)
        return func(*args, **{n: _below(each, words=n == "device") for n, each in kwargs.items()})


class _Below(TorchDispatchMode):
    """Sees the operations that have no fake tensor among their arguments: moves, and what makes tensors."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs)


def _from_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """A tensor of given numbers: made here, then moved, for PyTorch reads no numbers into a `meta` tensor."""
    device = kwargs.pop("device", None)
    if func is Tensor.new_tensor:
        like, *args = args
        device = like.device if device is None else device
        kwargs = {"dtype": like.dtype} | kwargs
        func = torch.tensor
    needs = kwargs.pop("requires_grad", False)
    made = func(*args, **kwargs)
    if device is not None:
        made = made.to(_below(torch.device(device), words=True))
    return made.requires_grad_() if needs else made


def _backward(*args: Any, **kwargs: Any) -> Any:
    """Hooks that the backward pass calls see the device too; PyTorch has left `_Above` by then."""
    with _Above():
        return _engine(*args, **kwargs)


def _below(value: Any, *, words: bool) -> Any:
    if isinstance(value, torch.device) or (words and isinstance(value, str)):
        return _BELOW if str(value).partition(":")[0] == "cuda" else value
    return value


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    kwargs = dict(kwargs or {})
    given = _tensors([args, kwargs])
    fakes = [tensor for tensor in given if isinstance(tensor, FakeCuda)]
    if fakes and len(fakes) < len(given):
        _refuse_mixtures(func, args, given)
    there = bool(fakes)
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]).type != "cpu"
        kwargs["device"] = _HERE
    if isinstance(generator := kwargs.get("generator"), torch.Generator) and there:
        raise RuntimeError(
            f"Expected a 'cuda' device type for generator but found '{generator.device.type}'"
        )
    out = func(*_each(_held, args), **_each(_held, kwargs)) if fakes else func(*args, **kwargs)
    if not there:
        return out
    whose = {id(fake.held): fake for fake in fakes}  # in-place operations give back what they got

    def wrapped(one: Any) -> Any:
        if isinstance(one, FakeCuda):
            return one
        return whose[id(one)] if id(one) in whose else FakeCuda(one)

    found = _each(wrapped, out)
    for fake in fakes:
        if fake.shape != fake.held.shape:
            raise NotImplementedError(
                f"fake CUDA tensors cannot change their shape in place: {func}"
            )
    return found


def _held(one: Tensor) -> Tensor:
    return one.held if isinstance(one, FakeCuda) else one


def _tensors(thing: Any) -> list[Tensor]:
    """The tensors in nested arguments; PyTorch's own walk takes longer than the operations of small models."""
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, (tuple, list, dict)):
        inside = thing.values() if isinstance(thing, dict) else thing
        return [found for one in inside for found in _tensors(one)]
    return []


def _each(change: Callable[[Tensor], Tensor], thing: Any) -> Any:
    """The same nested arguments or outputs with each tensor changed."""
    if isinstance(thing, Tensor):
        return change(thing)
    if isinstance(thing, (tuple, list)):
        return type(thing)([_each(change, one) for one in thing])
    if isinstance(thing, dict):
        return {name: _each(change, one) for name, one in thing.items()}
    return thing


def _refuse_mixtures(func: Any, args: tuple[Any, ...], given: list[Tensor]) -> None:
    kind = func.overloadpacket
    if kind in _ANY_DEVICES:
        return
    if kind in _INDEXED:
        here = not isinstance(args[0], FakeCuda)
        if here and any(isinstance(one, FakeCuda) for one in _tensors(args[1])):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        given = [
            one for one in (args[0], *args[2:3]) if isinstance(one, Tensor)
        ]  # indices may be here
    written = _written(func, args)
    for one in given:
        number = one.dim() == 0 and kind not in _NO_NUMBERS and all(one is not w for w in written)
        if (
            not isinstance(one, FakeCuda)
            and not number
            and any(isinstance(g, FakeCuda) for g in given)
        ):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
                f"cpu! (in {func})"
            )


def _written(func: Any, args: tuple[Any, ...]) -> list[Any]:
    """The arguments that the operation writes into."""
    told = zip(func._schema.arguments, args, strict=False)
    return [
        arg for about, arg in told if about.alias_info is not None and about.alias_info.is_write
    ]


def _stand_ins() -> dict[str, Callable[..., Any]]:
    """What `torch.cuda` says of the device that is not there."""
    about = SimpleNamespace(
        name=NAME, total_memory=2**34, major=9, minor=0, multi_processor_count=1
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: NAME,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": lambda device=None: about,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "max_memory_allocated": lambda device=None: 0,
    }


def _apply(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """`nn.Module._apply` where a tensor's class changes with its device: parameters stay the same objects."""
    done: dict[int, tuple[nn.Parameter, nn.Parameter]] = vars(fn).setdefault("done", {})
    for part in module.children() if recurse else ():
        part._apply(fn)
    for name, weight in module._parameters.items():
        if weight is not None:
            old, new = done.get(id(weight)) or (weight, _moved(weight, fn))
            done[id(weight)], done[id(new)] = (old, new), (new, new)
            module._parameters[name] = new
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


@torch.no_grad()
def _moved(weight: nn.Parameter, fn: Callable[[Tensor], Tensor]) -> nn.Parameter:
    found, gradient = fn(weight), weight.grad
    if found is weight:
        return weight
    if not isinstance(found, FakeCuda) and not isinstance(weight, FakeCuda):
        weight.data = found
        if gradient is not None:
            weight.grad = fn(gradient)
        return weight
    weight.grad = None
    hooks = weight._backward_hooks, weight._post_accumulate_grad_hooks
    moved = nn.Parameter(found, weight.requires_grad)
    try:
        torch.utils.swap_tensors(weight, moved)
    except RuntimeError:  # a graph that is still there holds it: then the module gets a new object
        weight = moved
    weight._backward_hooks, weight._post_accumulate_grad_hooks = hooks
    if gradient is not None:
        weight.grad = fn(gradient)
    return weight


def _is_parameter(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter)


def _look(thing: Any, path: str, found: list[str], seen: set[int]) -> None:
    if id(thing) in seen or isinstance(thing, str | bytes | int | float | type(None)):
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        if isinstance(thing, FakeCuda) or isinstance(
            thing.grad if thing.is_leaf else None, FakeCuda
        ):
            found.append(path or "it")
    elif isinstance(thing, nn.Module):
        for name, tensor in thing.state_dict(keep_vars=True).items():
            _look(tensor, f"{path}.{name}".lstrip("."), found, seen)
        for name, tensor in thing.named_buffers():
            _look(tensor, f"{path}.{name}".lstrip("."), found, seen)
    elif isinstance(thing, Mapping):
        for name, value in thing.items():
            _look(value, f"{path}[{name!r}]", found, seen)
    elif isinstance(thing, list | tuple | set | frozenset):
        for number, value in enumerate(thing):
            _look(value, f"{path}[{number}]", found, seen)
    elif is_dataclass(thing):
        for one in fields(thing):
            _look(getattr(thing, one.name), f"{path}.{one.name}".lstrip("."), found, seen)
