"""Accounts that add up: the linear part of a norm, and the check that parts are the whole.

Whoever splits a number into parts promises that they sum to it. A model that was changed beyond what its
config says (a hook behind a tap, a norm of another kind) would break the promise without a word, so every
account checks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.norms import LayerNorm, PlainLayerNorm, RMSNorm
from measured_transformer.parts.tap import Tap

_UNITS, _UNITS_OF_HALF = 1000, 16
"""How many units of the precision a sum of parts may be off, relative to the sizes of the parts."""


def held_norm(
    norm: nn.Module, scale: Float[Tensor, "..."] | None
) -> tuple[Callable[[Tensor], Tensor], Tensor | None]:
    """The linear part of a norm with its scale held fixed, and the constant that it adds (None: nothing).

    Args:
        norm: a norm with a tap `scale`, or none.
        scale: what passed the tap.

    Raises:
        ValueError: when the norm is no linear function even with its scale held, as a tanh is not.
    """
    if isinstance(norm, nn.Identity):
        return lambda x: x, None
    if type(norm) is LayerNorm and scale is not None:
        return lambda x: (x - x.mean(-1, keepdim=True)) / scale * norm.weight, norm.bias
    if type(norm) is PlainLayerNorm and scale is not None:
        return lambda x: (x - x.mean(-1, keepdim=True)) / scale, None
    if type(norm) is RMSNorm and scale is not None:
        return lambda x: x / scale * (norm.weight + norm.offset), None
    if scale is None or not isinstance(getattr(norm, "scale", None), Tap):
        raise ValueError(
            f"a {type(norm).__name__} is no linear function of the stream, whatever is held fixed: what a "
            "part is worth, patching (analysis.patching) and ablation (analysis.ablation) tell"
        )
    held = scale

    def affine(x: Tensor) -> Tensor:
        with intervene(norm, {"scale": held}):
            found: Tensor = norm(x)
        return found

    nothing = affine(held.new_zeros((*held.shape[:-1], _width(norm, held))))
    return lambda x: affine(x) - nothing, nothing


def require_sum(
    parts: Iterable[Float[Tensor, "*shape"]],
    whole: Float[Tensor, "*shape"],
    *,
    what: str,
    model: nn.Module,
) -> None:
    """Check that parts add up to the whole, but for rounding.

    Args:
        parts, whole: of one shape.
        what: is split, for the error.
        model: whose hooks are named in the error.

    Raises:
        ValueError: when they do not.
    """
    total, size = torch.zeros_like(whole), torch.zeros_like(whole)
    for part in parts:
        total += part
        size += part.abs()
    eps = torch.finfo(whole.dtype).eps
    allowed = (_UNITS if eps < 1e-4 else _UNITS_OF_HALF) * eps * float(size.max())
    apart = float((total - whole).abs().max())
    if not apart <= allowed:
        hooked = [
            name or "the model"
            for name, part in model.named_modules()
            if part._forward_hooks or part._forward_pre_hooks
        ]
        cause = f"; forward hooks change {', '.join(hooked[:3])} behind the taps" if hooked else ""
        raise ValueError(
            f"the parts do not add up to {what}: the sum is up to {apart:.3g} away{cause}. The model computes "
            "something else than its taps and its config say"
        )


def _width(norm: nn.Module, scale: Tensor) -> int:
    weight = getattr(norm, "weight", None)
    return scale.shape[-1] if weight is None else int(weight.shape[-1])
