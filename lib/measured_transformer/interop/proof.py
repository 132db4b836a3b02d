"""Proves that what is about to be written computes what the model computes.

A model may differ from its config: a norm may have been folded into a map, a hook attached, a function
exchanged. An export that goes by the config alone would then write another model without a word. So what would
be read back is built before anything is written, and compared with the model in four ways: its parts are of the
same classes, nothing is attached to them, no parameter is left over, and the logits of a few random sequences
are equal, as are the answers of a pooler that the logits do not read.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.own_parts import pooled_answers
from measured_transformer.parts.position_schemes import SCHEMES
from measured_transformer.parts.tap import Tap

Model = Decoder | Encoder | EncoderDecoder

SMALL = 5_000_000
"""Weights up to which the two are compared in float64, and on longer sequences."""
_ROWS, _SHORT, _LONG = 3, 16, 128
# How many units of the weights' precision the logits may be apart, relative to the largest logit: in float64,
# where only a factor that went into a weight is rounded; in the model's own precision; and in half precision.
_EXACT, _OWN, _HALF = 100, 1000, 16


def prove_same(model: Model, rebuilt: nn.Module, *, parts: nn.Module | None = None) -> None:
    """Check that a model and what was built from its weights are the same function.

    Args:
        model: what is to be exported. It is left as it is; captures and interventions that are at work do not
            count as part of it, and see nothing of this.
        rebuilt: what would be read back.
        parts: a fresh model whose parts are those that the export knows; `rebuilt` itself when not given.

    Raises:
        ValueError: when a part has another class, something is attached to a part, a parameter is left over or
            missing, or the logits differ; names it.
    """
    wanted = rebuilt if parts is None else parts
    faults = [*_parts_apart(model, wanted), *_left_over(model, wanted)]
    if not faults:
        with _unwatched(model):
            apart, allowed = _logits_apart(model, rebuilt)
        if not apart <= allowed:
            faults = [f"its logits are {apart:.3g} of the largest one apart from the model's"]
    if faults:
        shown = "; ".join(faults[:4]) + (f"; and {len(faults) - 4} more" if len(faults) > 4 else "")
        raise ValueError(
            f"the model does not compute what its config and weights say, so nothing is written: {shown}"
        )


def check_real(model: nn.Module) -> None:
    """Raise ValueError when a parameter has no numbers to write, as on the meta device."""
    for name, tensor in model.named_parameters():
        if tensor.is_meta or not tensor.is_floating_point():
            raise ValueError(
                f"expected weights that are real numbers, got {name} of {tensor.dtype} on the device "
                f"{tensor.device.type!r}"
            )


def _parts_apart(model: nn.Module, wanted: nn.Module) -> Iterator[str]:
    """What is attached to the model's parts, or has another class than it should."""
    theirs = dict(wanted.named_modules())
    for name, part in model.named_modules():
        place = name or "the model"
        if part._forward_hooks or part._forward_pre_hooks:
            yield f"{place} has a forward hook"
        replaced = [own for own, value in vars(part).items() if _overrides(part, own, value)]
        if replaced:
            yield f"{place} has its own {', '.join(replaced)}"
        if name in theirs and not _same_class(type(part), type(theirs[name])):
            yield f"{place} is a {type(part).__name__} and would be a {type(theirs[name]).__name__}"
        elif name not in theirs and not isinstance(part, Tap | nn.Identity):
            yield f"{place} has no counterpart"


def _overrides(part: nn.Module, name: str, value: object) -> bool:
    """Return whether an attribute of one part hides a method of its class."""
    return callable(value) and callable(getattr(type(part), name, None))


def _same_class(one: type, other: type) -> bool:
    """Return whether a class computes as the other: it is the other, or inherits all that it does."""
    one = getattr(one, "computes_as", one)
    if one is other:
        return True
    if not issubclass(one, other):
        return False
    between = one.__mro__[: one.__mro__.index(other)]
    own = {name for kind in between for name in vars(kind) if not name.startswith("__")}
    return not any(hasattr(other, name) for name in own) and not any(
        "__call__" in vars(kind) for kind in between
    )


def _left_over(model: nn.Module, wanted: nn.Module) -> Iterator[str]:
    """The stored numbers of one that have no place in the other."""
    ours, theirs = (
        {**dict(one.named_parameters(remove_duplicate=False)), **one.state_dict()}
        for one in (model, wanted)
    )
    if surplus := sorted(ours.keys() - theirs.keys()):
        yield f"there is no place for {', '.join(surplus[:4])}"
    if missing := sorted(theirs.keys() - ours.keys()):
        yield f"it lacks {', '.join(missing[:4])}"
    shapes = [
        name for name in ours.keys() & theirs.keys() if ours[name].shape != theirs[name].shape
    ]
    for name in sorted(shapes)[:4]:
        yield f"{name} has the shape {tuple(ours[name].shape)}, not {tuple(theirs[name].shape)}"


@torch.no_grad()
def _logits_apart(model: Model, rebuilt: nn.Module) -> tuple[float, float]:
    """The largest distance of the logits, relative to the largest logit, and what rounding explains."""
    first = next(model.parameters())
    eps = max(torch.finfo(p.dtype).eps for p in model.parameters())
    small = sum(p.numel() for p in model.parameters()) <= SMALL
    if small:
        model, rebuilt = copy.deepcopy(model).double(), copy.deepcopy(rebuilt).double()
    rebuilt = rebuilt.to(first.device)
    training = [one for one in (*model.modules(), *rebuilt.modules()) if one.training]
    try:
        for one in training:
            one.training = False
        largest = apart = 0.0
        for inputs in _inputs(model, _LONG if small else _SHORT):
            answers = (_answers(one, *inputs) for one in (model, rebuilt))
            for ours, theirs in zip(*answers, strict=True):
                largest = max(largest, float(ours.abs().max()))
                apart = max(apart, float((ours - theirs).abs().max()))
    finally:
        for one in training:
            one.training = True
    units = _EXACT if small else _OWN if eps < 1e-4 else _HALF
    return apart / (largest or 1.0), units * eps


def _answers(
    model: nn.Module, sequences: tuple[Tensor, ...], others: dict[str, Tensor]
) -> list[Tensor]:
    """The logits, and what is read from a pooler beside them."""
    found: list[Tensor] = [model(*sequences, **others), *pooled_answers(model)]
    return [one.double().nan_to_num(0, 0, 0) for one in found]


def _inputs(model: Model, most: int) -> Iterator[tuple[tuple[Tensor, ...], dict[str, Tensor]]]:
    """Random sequences: several short ones, and a long one as far as the positions reach."""
    config, device = model.config, next(model.parameters()).device
    reach = config.max_length if SCHEMES[config.positions].limited else most
    draws = torch.Generator().manual_seed(0)
    for rows, length in ((_ROWS, min(_SHORT // 2, reach)), (1, min(most, reach))):
        tokens = torch.randint(config.vocab, (rows, length), generator=draws).to(device)
        others: dict[str, Tensor] = {}
        if config.token_types and isinstance(model, Encoder):
            types = torch.randint(config.token_types, tokens.shape, generator=draws)
            others = {"token_types": types.to(device)}
        if isinstance(model, EncoderDecoder):
            yield (tokens, tokens.flip(1)), others
        else:
            yield (tokens,), others


@contextmanager
def _unwatched(model: nn.Module) -> Iterator[None]:
    """Set captures and interventions aside for a while: they belong to the caller, not to the model."""
    taps = [part for part in model.modules() if isinstance(part, Tap)]
    watchers = [tap.watchers for tap in taps]
    try:
        for tap in taps:
            tap.watchers = ()
        yield
    finally:
        for tap, own in zip(taps, watchers, strict=True):
            tap.watchers = own
