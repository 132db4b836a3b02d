"""What enters and leaves the modules of a model without taps, by the modules' own names.

A live model of `transformers`, like any other `nn.Module` that this library did not make, has no taps.
`capture` and `intervene` then take the names that `model.named_modules()` gives, and globs of them:

- `"model.layers.0.mlp"`: what the module returns; of a tuple, a dictionary or a `ModelOutput` the first tensor;
- `"model.layers.0.mlp:input"`: the first tensor that it is called with;
- `"model.layers.*.self_attn:output.1"`: one item of what it returns, by number or by its field
  (`":output.logits"`: the model itself has the empty name);
- `"model.layers.0.self_attn:input.attention_mask"`: one argument, by its parameter or its number.

A glob matches names, never the part behind the colon. It passes over the model itself, over modules that
return no tensor, and over a second name of a module that it has already found; a name that is given in full
stands for the module wherever it is called, also under its other names. Of a module that is called several
times `capture` keeps what came last. A value's axes are those of the model: `at` takes three as (batch position
...) and four as (batch head position ...), and `by_head` divides a width into heads where a model does not.

Values are seen through forward hooks, which leave with the `with` block. What was compiled by `torch.compile`
runs uncompiled inside it, as a compiled call would pass by the hooks. A copy of the model that is made inside
has none.

>>> import torch
>>> from torch import nn
>>> from measured_transformer import capture, intervene
>>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
>>> x = torch.randn(3, 4)
>>> with capture(model, "1", "2:input") as seen:
...     y = model(x)
>>> bool(torch.equal(seen["1"], seen["2:input"]))
True
>>> with intervene(model, {"1": 0.0}):
...     bool(torch.equal(model(x), model[2].bias.expand(3, 2)))
True
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.parts.tap import Watcher

_Path = tuple[str | int, ...]
"""The steps from a value to one inside it: numbers of items, and keys or fields."""


# Names --------------------------------------------------------------------------------------------


def called_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that can be called, by name, the model itself by the empty one.

    A module that several names share has them all. What `torch.compile` wraps has the names that it had before.
    """
    return {
        ".".join(step for step in name.split(".") if step != "_orig_mod"): module
        for name, module in _below(model, "", ())
        if not isinstance(module, nn.ModuleList | nn.ModuleDict)
    }


def _below(
    module: nn.Module, name: str, above: tuple[nn.Module, ...]
) -> Iterator[tuple[str, nn.Module]]:
    yield name, module
    for key, child in module._modules.items():
        if child is not None and not any(child is other for other in above):
            path = f"{name}.{key}" if name else key
            yield from _below(child, path, (*above, module))


def matching_sites(model: nn.Module, patterns: Iterable[str]) -> dict[str, Site]:
    """The sites that match at least one name or glob, in the order of the modules.

    Raises:
        KeyError: when a pattern matches no module; the message gives the nearest names.
        ValueError: when what stands behind a colon is neither an input nor an output, or a module is one of
            TorchScript.
    """
    known = called_modules(model)
    found: dict[str, Site] = {}
    for pattern in patterns:
        name, colon, place = pattern.partition(":")
        if colon and place.split(".")[0] not in ("input", "output"):
            raise ValueError(
                "behind a module's name and a colon stands 'input' or 'output', with the name or number of an "
                f"item after a dot where it is not the first tensor; got {pattern!r}"
            )
        for hit in _hits(known, name):
            site = Site(hit, known[hit], known[""], place or "output", name in known)
            if site.key not in found or site.in_full:
                found[site.key] = site
    order = {name: i for i, name in enumerate(known)}
    return dict(sorted(found.items(), key=lambda item: order[item[1].name]))


def _hits(known: dict[str, nn.Module], pattern: str) -> list[str]:
    if pattern in known:
        hits = [pattern]
    else:
        every = {id(known[name]): name for name in reversed(known) if fnmatchcase(name, pattern)}
        hits = [name for name in every.values() if name]
    if not hits:
        near = get_close_matches(pattern, known, n=3, cutoff=0.4)
        hint = f"; the nearest names are {', '.join(near)}" if near else ""
        raise KeyError(
            f"no module is called {pattern!r}{hint} (the model has no taps and {len(known) - 1} modules: "
            "measured_transformer.internals.modules.called_modules lists them)"
        )
    for name in hits:
        if isinstance(known[name], torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'the model'!r} is a module of TorchScript, whose calls no hook sees; watch the "
                "module that it was made from"
            )
    return hits


# Sites --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """One value that passes a module: something it is called with, or something it returns.

    Attributes:
        name, module: the module.
        model: what the module is a part of.
        place: `input` or `output`, with a path after a dot where it is not the first tensor.
        in_full: whether the name was given in full, and not by a glob.
    """

    name: str
    module: nn.Module
    model: nn.Module
    place: str = "output"
    in_full: bool = True

    @property
    def key(self) -> str:
        """The name under which `capture` keeps the value."""
        return self.name if self.place == "output" else f"{self.name}:{self.place}"

    @contextmanager
    def watched_by(self, watch: Watcher) -> Iterator[None]:
        """Let `watch` see a copy of the value at each call, and put what it returns in the value's place.

        Warns when the model ran and the module, whose name was given in full, was not called.
        """
        hook, ran = _Hook(self, watch), _Calls()
        entered = self.place.startswith("input")
        # A compiled call does not ask anew whether there are hooks.
        with torch.compiler.set_stance("force_eager"):
            handles = []
            if self.in_full:
                handles.append(self.model.register_forward_pre_hook(ran, with_kwargs=True))
            if entered:
                handles.append(self.module.register_forward_pre_hook(hook, with_kwargs=True))
            else:
                handles.append(self.module.register_forward_hook(hook))
            try:
                yield
            finally:
                for handle in handles:
                    handle.remove()
        if self.in_full and ran.number and not hook.calls.number:
            warnings.warn(
                f"{self.name} was not called while the model ran: nothing was seen or changed there",
                stacklevel=8,  # the end of the `with` block of `capture` or `intervene`
            )


class _Calls:
    """A hook that counts calls, and does nothing in a copy of its model."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, module: nn.Module, args: object, rest: object) -> Any:
        self.number += 1

    def __reduce__(self) -> Any:
        return _nothing, ()


class _Hook(_Calls):
    """The hook of a site: before the module's call or, with its output as `rest`, after it."""

    def __init__(self, site: Site, watch: Watcher) -> None:
        super().__init__()
        self.site, self.watch, self.calls = site, watch, _Calls()

    def __call__(self, module: nn.Module, args: object, rest: object) -> Any:
        self.calls(module, args, rest)
        entered = self.site.place.startswith("input")
        value = (args, rest) if entered else rest
        path = _steps(self.site, value)
        if path is None:
            return None
        new = self.watch(_at(value, path).clone())
        if new is None:
            return None
        _check_recomputation(self.site)
        # A copy, as the model may write into what it is given, and may ask for another layout than an expanded
        # tensor has.
        new = new.to(_at(value, path).dtype).clone(memory_format=torch.contiguous_format)
        return _replaced(value, path, new)


def _nothing() -> Callable[..., None]:
    return _pass_by


def _pass_by(*_: object) -> None:
    """The hook that a copy of a watched model has."""


def _check_recomputation(site: Site) -> None:
    if not site.module.training:
        return
    if any(getattr(part, "gradient_checkpointing", False) is True for part in site.model.modules()):
        raise ValueError(
            f"{site.key} is not changed in a model with gradient checkpointing, whose backward pass computes "
            "values anew when the change may be gone; switch that off, or call model.eval(), before"
        )


# Values inside values -----------------------------------------------------------------------------


def _steps(site: Site, value: Any) -> _Path | None:
    """The path to the site's tensor; None where a glob has found a module that has none.

    Raises:
        ValueError: when there is no tensor where one was named.
    """
    where, *rest = site.place.split(".")
    if not rest:
        path = _first(value)
        if path is None and site.in_full:
            raise ValueError(f"{site.key} holds no tensor, but {_described(value)}")
        return path
    start: _Path = ()
    if where == "input":
        start, rest = _argument(site, value, rest)
    for step in rest:
        names = list(_items(_at(value, start)))
        by_name: dict[str, str | int] = {str(name): name for name in names}
        if step not in by_name and not (step.isdigit() and int(step) < len(names)):
            raise ValueError(
                f"{site.key} is not there: {_described(_at(value, start))} has "
                f"{', '.join(map(str, names)) or 'no items'}"
            )
        start = (*start, by_name[step] if step in by_name else names[int(step)])
    found = _at(value, start)
    if not isinstance(found, Tensor):
        raise ValueError(
            f"{site.key} is no tensor but {_described(found)}"
            + (
                "; models of transformers return attention weights only with attn_implementation='eager'"
                if found is None and where == "output"
                else ""
            )
        )
    return start


def _argument(site: Site, value: Any, steps: list[str]) -> tuple[_Path, list[str]]:
    """The path to an argument among (args, kwargs), by its number, its parameter or its keyword."""
    args, kwargs = value
    name, *rest = steps
    if name in kwargs:
        return (1, name), rest
    parameters = list(inspect.signature(site.module.forward).parameters)
    number = int(name) if name.isdigit() else parameters.index(name) if name in parameters else -1
    if not 0 <= number < len(args):
        given = [*parameters[: len(args)], *kwargs]
        raise ValueError(
            f"{site.key} is not there: the module was called with {', '.join(given) or 'nothing'}"
        )
    return (0, number), rest


def _items(value: Any) -> dict[str | int, Any]:
    """The items of a tuple, list, dictionary or dataclass by their numbers, keys or fields."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {}


def _at(value: Any, path: _Path) -> Any:
    for step in path:
        value = _items(value)[step]
    return value


def _first(value: Any) -> _Path | None:
    """The path to the first tensor."""
    if isinstance(value, Tensor):
        return ()
    for name, item in _items(value).items():
        inner = _first(item)
        if inner is not None:
            return (name, *inner)
    return None


def _replaced(value: Any, path: _Path, new: Tensor) -> Any:
    """A copy of the value with another tensor at the path; what holds the tensor is not written to."""
    if not path:
        return new
    step, *rest = path
    items = _items(value)
    items[step] = _replaced(items[step], tuple(rest), new)
    if hasattr(value, "_fields"):
        return type(value)(*items.values())
    if isinstance(value, tuple | list):
        return type(value)(items.values())
    changed = copy.copy(value)
    if isinstance(value, Mapping):
        changed[step] = items[step]
    else:
        object.__setattr__(changed, str(step), items[step])
    return changed


def _described(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__}"


# Heads --------------------------------------------------------------------------------------------


def split_heads(
    value: Float[Tensor, "..."], n_heads: int
) -> Float[Tensor, "batch head position d_head"]:
    """A value with an axis for its heads, which lie side by side in its width.

    Such are, of most models, what the projections to queries, keys and values return, and what the output
    projection of attention is called with.

    Raises:
        ValueError: when the value has not three axes, or the heads do not divide its width.

    >>> split_heads(torch.zeros(2, 5, 12), 3).shape
    torch.Size([2, 3, 5, 4])
    """
    if value.ndim != 3 or n_heads < 1 or value.shape[-1] % n_heads:
        raise ValueError(
            f"expected a value of shape (batch, position, width) whose width {n_heads} heads divide, got shape "
            f"{tuple(value.shape)}"
        )
    return value.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def by_head(change: Callable[[Tensor], Tensor], n_heads: int) -> Callable[[Tensor], Tensor]:
    """A change for `intervene` to a value whose heads lie side by side, such as the input of `o_proj`.

    Args:
        change: a function from the value with an axis for the heads (batch head position d_head) to its
            replacement, such as `at(0.0, heads=2)`.
        n_heads: how many heads divide the width.

    Raises:
        ValueError: in the forward pass, when the heads do not divide the value, or the replacement has
            another shape.

    >>> from measured_transformer.internals.at import at
    >>> by_head(at(0.0, heads=1), 3)(torch.ones(1, 1, 6))
    tensor([[[1., 1., 0., 0., 1., 1.]]])
    """

    def changed(value: Tensor) -> Tensor:
        parts = split_heads(value, n_heads)
        new = change(parts)
        if new.shape != parts.shape:
            raise ValueError(
                f"the replacement must be a tensor of shape {tuple(parts.shape)}, got shape {tuple(new.shape)}"
            )
        return new.transpose(1, 2).flatten(2)

    return changed
