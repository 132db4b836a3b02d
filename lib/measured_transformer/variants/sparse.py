"""Attention that skips most pairs by a fixed rule: a window, or a window and strides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.training.loop import Model


def window_mask(n: int, window: int) -> Bool[Tensor, "query key"]:
    """Each position sees itself and the `window` - 1 positions before it (Beltagy et al. 2020, causal).

    >>> window_mask(4, 2).int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    back = _back(n)
    return (back >= 0) & (back < window)


def stride_mask(n: int, stride: int) -> Bool[Tensor, "query key"]:
    """Each position sees itself and every `stride`-th position before it (Child et al. 2019).

    >>> stride_mask(4, 2).int().tolist()
    [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    back = _back(n)
    return (back >= 0) & (back % stride == 0)


@dataclass(frozen=True)
class Windowed:
    """Preparation for training: every head of a decoder sees the last few positions only.

    Attributes:
        window: how many, the position itself included.

    Raises:
        ValueError: when the window is not positive.
    """

    window: int

    def __post_init__(self) -> None:
        _check(window=self.window)

    def mask(self, n: int) -> Bool[Tensor, "query key"]:
        """Which key each query sees among n positions."""
        return window_mask(n, self.window)

    def __call__(self, model: Model) -> None:
        """Let all attention layers of the model hide the rest, from now on."""
        _hide(model, self)


@dataclass(frozen=True)
class Strided:
    """Preparation for training: the heads of the first half see a window, those of the second half strides.

    This is the strided pattern of Child et al. (2019), "Generating Long Sequences with Sparse Transformers",
    one half of it for each half of the heads. Two steps, one of each kind, lead from any position to any
    earlier one.

    Attributes:
        stride: both the length of the window and the distance of the positions seen beyond it.

    Raises:
        ValueError: when the stride is not positive.
    """

    stride: int

    def __post_init__(self) -> None:
        _check(stride=self.stride)

    def mask(self, n: int) -> Bool[Tensor, "two query key"]:
        """Which key each query sees among n positions: in the first half of the heads, and in the second."""
        return torch.stack((window_mask(n, self.stride), stride_mask(n, self.stride)))

    def __call__(self, model: Model) -> None:
        """Let all attention layers of the model hide the rest, from now on.

        Raises:
            ValueError: when a layer has an odd number of heads.
        """
        for layer in _layers(model):
            if layer.n_heads % 2:
                raise ValueError(
                    f"the two kinds of heads need an even number of them, got {layer.n_heads}"
                )
        _hide(model, self)


@dataclass(frozen=True)
class _Hide:
    """Hands an attention layer the mask before each call."""

    rule: Windowed | Strided

    def __call__(self, layer: MultiHeadAttention, args: Any, given: dict[str, Any]) -> Any:
        x: Tensor = args[0]
        mask = self.rule.mask(x.shape[1]).to(x.device)
        if mask.ndim == 3:
            mask = mask.repeat_interleave(layer.n_heads // 2, dim=0)
        return args, {**given, "mask": mask}


def _hide(model: Model, rule: Windowed | Strided) -> None:
    for layer in _layers(model):
        layer.register_forward_pre_hook(_Hide(rule), with_kwargs=True)


def _layers(model: Model) -> list[MultiHeadAttention]:
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


def _back(n: int) -> Tensor:
    position = torch.arange(n)
    return position[:, None] - position


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"expected a {name} of at least 1, got {size}")
