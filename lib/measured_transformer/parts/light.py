"""A model without what calling a module costs: the same forward passes, parts and weights as plain attributes.

`nn.Module` looks for hooks at every call, and finds weights and parts in tables of its own. Where one token is
read at a time, as in decoding, this takes a small model longer than its arithmetic. `light` makes an object
that runs the very `forward` of each part, with the same weights, and skips both.

What was hooked, compiled, or replaced by a module of another library, and every part with a `forward` of its
own, stays what it is and is called as ever. Taps stay what they are, too: who watches them sees every value.

>>> import torch
>>> from measured_transformer.parts.feedforward import FeedForward
>>> network = FeedForward(4, 8).eval()
>>> x = torch.randn(1, 1, 4)
>>> bool(torch.equal(light(network)(x), network(x)))
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn
from torch.nn.modules import module as torch_module

from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.part import Part

Instead = Callable[[Linear], Callable[..., Any] | None]
"""What stands in the place of a linear map; None: its light form, as ever."""

_TORCH = (nn.Embedding, nn.Identity, nn.Linear)
_CLASSES: dict[type[nn.Module], type[nn.Module]] = {}
_Kind = TypeVar("_Kind", bound=nn.Module)


def light(module: _Kind, instead: Instead | None = None) -> _Kind:
    """The same function as the module's, cheaper to call.

    It holds the module's own weights, so what is changed in place is seen. What is replaced, hooked or put into
    another mode later is not: make it when a text begins, and let it go when the text ends.

    Args:
        module: a model or a part of one, in the mode in which it is to be called.
        instead: asked about each linear map whose call is no more than its class's; what it gives is called in
            its place and must have its attributes.
    """
    made: dict[int, Any] = {}
    hooked = torch_module._has_any_global_hook()
    result: _Kind = module if hooked else _light(module, made, instead)
    return result


def _light(module: nn.Module, made: dict[int, Any], instead: Instead | None) -> Any:
    """The light form of a module, or the module itself; a shared part has one."""
    key = id(module)
    if key not in made and instead is not None and type(module) is Linear and _is_plain(module):
        other = instead(module)
        if other is not None:
            made[key] = other
    if key not in made:
        if type(module) is nn.ModuleList:
            made[key] = tuple(_light(part, made, instead) for part in module)
        elif type(module) is nn.Dropout and _is_plain(module) and not module.training:
            made[key] = _light(nn.Identity(), made, instead)
        elif _has_light_form(module) and _is_plain(module):
            parts = {
                name: None if part is None else _light(part, made, instead)
                for name, part in module._modules.items()
            }
            found = object.__new__(_light_class(type(module)))
            found.__dict__.update(
                {**module.__dict__, **module._parameters, **module._buffers, **parts}
            )
            made[key] = found
        else:
            made[key] = module
    return made[key]


def _light_class(kind: type[nn.Module]) -> type[nn.Module]:
    """A class whose objects are called by their `forward` alone."""
    if kind not in _CLASSES:
        own = {"__call__": kind.forward, "__module__": __name__}
        _CLASSES[kind] = type(kind.__name__, (kind,), own)
    return _CLASSES[kind]


def _has_light_form(module: nn.Module) -> bool:
    """Return whether the module is of this library, or PyTorch's, and keeps nothing from call to call."""
    kind = type(module)
    if kind in _TORCH:
        return True
    own = kind.__module__.startswith(
        ("measured_transformer.parts.", "measured_transformer.models.")
    )
    return own and isinstance(module, Part) and not module.keeps_state


def _is_plain(module: nn.Module) -> bool:
    """Return whether calling the module does no more than its class's `forward`."""
    kept = vars(module)
    hooks = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_backward_pre_hooks",
    )
    compiled = getattr(module, "_compiled_call_impl", None) is not None
    return "forward" not in kept and not compiled and not any(kept[name] for name in hooks)
