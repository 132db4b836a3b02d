"""Checks that a model is what its config describes: its modules, their settings, and what it computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.tap import Tap

Model = Decoder | Encoder | EncoderDecoder
_HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"),
    "_load_state_dict_post_hooks",
)
_PROBE = 24  # positions that both models are compared on
_ROUNDING = 200  # in units of the last place: kernels may differ with the alignment of tensors


def check_own_parts(model: Model, twin: Model) -> None:
    """Raise ValueError unless a model computes what a model of its config with its weights computes.

    Compared are the modules by name and type, their settings and shapes, which weights are tied, the outputs on
    a few sequences, and what a pooler makes of states; no hooks may be attached, and no tap watched.

    Args:
        model: is asked for outputs in evaluation mode, and then put back.
        twin: a fresh model of the same class and config; it gets the weights of the model.

    Raises:
        ValueError: says in one sentence what is not of the config.
    """
    _check_modules(model, twin)
    _check_settings(model, twin)
    _check_tensors(model, twin)
    _lend(model, twin)
    _check_outputs(model, twin)


def main_dtype(model: nn.Module) -> torch.dtype:
    """The precision of what a model holds beside its weights, where it holds that; else of most weights."""
    kept = model.state_dict()
    beside = [b.dtype for n, b in model.named_buffers() if n not in kept and b.is_floating_point()]
    sizes: Counter[torch.dtype] = Counter()
    for tensor in kept.values():
        sizes[tensor.dtype] += tensor.numel() if tensor.is_floating_point() else 0
    return beside[0] if beside else max(sizes, key=lambda dtype: sizes[dtype])


def pooled_answers(model: nn.Module) -> list[Tensor]:
    """What a pooler, and the map to classes behind it, make of three random states.

    Empty where the outputs tell: an encoder whose head is 'none' or 'mlm' reads its pooler in `pool` and
    `classify` alone.
    """
    if not isinstance(model, Encoder) or model.pooler is None or model.config.head == "sequence":
        return []
    first = next(model.parameters())
    states = torch.randn(3, 1, model.config.d_model, generator=torch.Generator().manual_seed(0))
    states = states.to(first.device, first.dtype)
    return [model.pool(states), *([] if model.classifier is None else [model.classify(states)])]


def _refuse(what: str) -> ValueError:
    return ValueError(
        f"this model is not what its config describes, so that another one would be loaded: {what}"
    )


def _check_modules(model: nn.Module, twin: nn.Module) -> None:
    own = dict(model.named_modules(remove_duplicate=False))
    due = dict(twin.named_modules(remove_duplicate=False))
    for name in due:
        if name not in own:
            raise _refuse(f"it has no {name}")
        if type(own[name]) is not type(due[name]):
            came, expected = type(own[name]).__name__, type(due[name]).__name__
            raise _refuse(f"{name} is a {came} and not a {expected}")
    for name, module in own.items():
        if name not in due:
            raise _refuse(
                f"it has a {type(module).__name__} at {name}, which the config does not ask for"
            )
        if any(getattr(module, hooks, None) for hooks in _HOOKS):
            raise _refuse(f"a hook is attached to {name or 'it'}")
        if isinstance(module, Tap) and module.watched:
            raise ValueError(
                f"the tap {name} is being watched: save the model after the block of capture or intervene"
            )


def _check_settings(model: nn.Module, twin: nn.Module) -> None:
    """Compare the plain values that modules hold; what else they hold shows in the outputs."""
    due = dict(twin.named_modules(remove_duplicate=False))
    for name, module in model.named_modules(remove_duplicate=False):
        own, expected = _settings(module), _settings(due[name])
        for key, value in own.items():
            place = f"{name}.{key}" if name else key
            if callable(value) and key not in expected:
                raise _refuse(f"{place} was replaced")
            if (
                key in expected
                and _plain(value)
                and _plain(expected[key])
                and value != expected[key]
            ):
                raise _refuse(f"{place} is {value!r:.60} and not {expected[key]!r:.60}")


def _settings(module: nn.Module) -> dict[str, Any]:
    return {k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | Config)


def _check_tensors(model: nn.Module, twin: nn.Module) -> None:
    own, due = model.state_dict(keep_vars=True), twin.state_dict(keep_vars=True)
    for name in due:
        if name not in own:
            raise _refuse(f"it has no {name}")
        if own[name].shape != due[name].shape:
            came, expected = tuple(own[name].shape), tuple(due[name].shape)
            raise _refuse(f"{name} has the shape {came} and not {expected}")
        if own[name].is_meta:
            raise ValueError(
                f"{name} has no values (it is on the device meta), so it cannot be saved"
            )
    for name in own:
        if name not in due:
            raise _refuse(f"it has {name}, which the config does not ask for")
    tied = _alike(own)
    for name, wanted in _alike(due).items():
        if tied[name] != wanted:
            other = min(tied[name] ^ wanted)
            verb = "tied" if other in tied[name] else "not tied"
            raise _refuse(f"{name} and {other} are {verb}")


def _alike(tensors: dict[str, Tensor]) -> dict[str, frozenset[str]]:
    """For each name the names of the same tensor."""
    groups: dict[int, set[str]] = {}
    for name, tensor in tensors.items():
        groups.setdefault(id(tensor), set()).add(name)
    return {name: frozenset(groups[id(tensor)]) for name, tensor in tensors.items()}


def _lend(model: nn.Module, twin: nn.Module) -> None:
    """Let the twin compute with the model's own tensors."""
    own = model.state_dict(keep_vars=True)
    twin.to(next(iter(own.values())).device, main_dtype(model))
    for name, tensor in own.items():
        module, _, last = name.rpartition(".")
        setattr(twin.get_submodule(module), last, tensor)


@torch.no_grad()
def _check_outputs(model: Model, twin: Model) -> None:
    with _evaluating(model), _evaluating(twin):
        try:
            own, due = ([_outputs(one), *pooled_answers(one)] for one in (model, twin))
        except RuntimeError as error:
            raise _refuse(f"it cannot be run ({str(error).splitlines()[0]})") from error
    for what, ours, theirs in zip(("outputs", "pooled states", "classes"), own, due, strict=False):
        _check_equal(what, ours, theirs)


def _check_equal(what: str, own: Tensor, due: Tensor) -> None:
    if own.shape != due.shape:
        raise _refuse(f"its {what} have the shape {tuple(own.shape)} and not {tuple(due.shape)}")
    finite = due.isfinite()
    size = float(due[finite].abs().max()) if bool(finite.any()) else 0.0
    most = _ROUNDING * torch.finfo(due.dtype).eps * max(size, 1e-30)
    apart = bool((own.isfinite() != finite).any()) or bool(
        ((own - due)[finite & own.isfinite()].abs() > most).any()
    )
    if apart:
        raise _refuse(f"with the same weights the two give other {what}")


def _outputs(model: Model) -> Tensor:
    config, device = model.config, next(model.parameters()).device
    n = min(_PROBE, config.max_length)
    draws = torch.Generator().manual_seed(0)
    tokens = torch.randint(config.vocab, (2, n), generator=draws).to(device)
    if isinstance(model, EncoderDecoder):
        return model(tokens, tokens.flip(1))
    return model(tokens)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True
