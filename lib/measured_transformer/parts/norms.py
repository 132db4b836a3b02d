r"""LayerNorm, RMSNorm, and no norm at all.

LayerNorm: $y = (x - \mu) / \sqrt{\sigma^2 + \epsilon} \cdot \gamma + \beta$ with mean $\mu$ and (biased)
variance $\sigma^2$ over the features of one position (Ba et al. 2016). RMSNorm drops the centring and the bias:
$y = x / \sqrt{\overline{x^2} + \epsilon} \cdot \gamma$ (Zhang and Sennrich 2019).
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.parts.tap import Tap

NormName = Literal["layer", "rms", "none"]
"""Names of norms: LayerNorm, RMSNorm, and none."""


class LayerNorm(nn.Module):
    """Centre and scale each position's vector, then stretch and shift it by learned weights.

    Tap: `scale`, the divisor sqrt(variance + eps), (batch, position, 1).
    """

    def __init__(self, d_model: int, *, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None
        self.scale = Tap()

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The normalised vectors. Raises ValueError when the width is another than `d_model`."""
        _check_width(x, self.weight)
        if not self.scale.watched:
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        centred = x - x.mean(dim=-1, keepdim=True)
        scale = self.scale((centred.square().mean(dim=-1, keepdim=True) + self.eps).sqrt())
        y = centred / scale * self.weight
        return y if self.bias is None else y + self.bias


class RMSNorm(nn.Module):
    """Scale each position's vector to a root mean square of one, then stretch it by learned weights.

    Tap: `scale`, the divisor sqrt(mean square + eps), (batch, position, 1).
    """

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.scale = Tap()

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The normalised vectors. Raises ValueError when the width is another than `d_model`."""
        _check_width(x, self.weight)
        if not self.scale.watched:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        scale = self.scale((x.square().mean(dim=-1, keepdim=True) + self.eps).sqrt())
        return x / scale * self.weight


def make_norm(
    name: NormName, d_model: int, *, eps: float = 1e-5, bias: bool = True
) -> LayerNorm | RMSNorm | nn.Identity:
    """The norm of that name: 'layer', 'rms' or 'none'.

    Raises:
        ValueError: when the name is another one.
    """
    if name == "layer":
        return LayerNorm(d_model, eps=eps, bias=bias)
    if name == "rms":
        return RMSNorm(d_model, eps=eps)
    if name == "none":
        return nn.Identity()
    raise ValueError(f"norm must be 'layer', 'rms' or 'none', got {name!r}")


def _check_width(x: Tensor, weight: Tensor) -> None:
    if x.shape[-1] != weight.shape[0]:
        raise ValueError(
            f"this norm is for width d_model={len(weight)}, got shape {tuple(x.shape)}"
        )
