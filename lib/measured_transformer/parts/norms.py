r"""LayerNorm, RMSNorm, both without weights where wanted, and no norm at all.

LayerNorm: $y = (x - \mu) / \sqrt{\sigma^2 + \epsilon} \cdot \gamma + \beta$ with mean $\mu$ and (biased)
variance $\sigma^2$ over the features of one position (Ba et al. 2016). RMSNorm drops the centring and the bias:
$y = x / \sqrt{\overline{x^2} + \epsilon} \cdot \gamma$ (Zhang and Sennrich 2019); Gemma stores $\gamma - 1$.

In half precision the mean and the variance are taken in float32, as PyTorch's own kernels do, whether somebody
watches or not: the square of 256 is beyond float16. A norm with weights in float16 takes vectors in float32 as
well, and gives such vectors.

A further norm is one more entry of `NORMS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.parts.part import Part
from measured_transformer.parts.tap import Tap

NormName = Literal["layer", "rms", "layer_plain", "none"]
"""Names of norms: LayerNorm, RMSNorm, LayerNorm without weights (OLMo), and none."""


class LayerNorm(Part):
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
        weight, bias = _as_wide_as(x, self.weight, self.bias)
        if not self.scale.watched:
            return F.layer_norm(x, weight.shape, weight, bias, self.eps)
        exact, weight, bias = _at_least_float32(x, weight, bias)
        centred = exact - exact.mean(dim=-1, keepdim=True)
        scale = self.scale((centred.square().mean(dim=-1, keepdim=True) + self.eps).sqrt())
        y = centred / scale * weight
        return (y if bias is None else y + bias).to(x.dtype)


class RMSNorm(Part):
    """Scale each position's vector to a root mean square of one, then stretch it by learned weights.

    With an offset, the stretch is the stored weight plus that number (Gemma: 1).

    Tap: `scale`, the divisor sqrt(mean square + eps), (batch, position, 1).
    """

    def __init__(self, d_model: int, *, eps: float = 1e-5, offset: float = 0.0) -> None:
        super().__init__()
        self.eps, self.offset = eps, offset
        self.weight = nn.Parameter(torch.full((d_model,), 1 - offset))
        self.scale = Tap()

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The normalised vectors. Raises ValueError when the width is another than `d_model`."""
        _check_width(x, self.weight)
        weight = self.weight + self.offset if self.offset else self.weight
        weight, _ = _as_wide_as(x, weight, None)
        if not self.scale.watched:
            return F.rms_norm(x, weight.shape, weight, self.eps)
        exact, weight, _ = _at_least_float32(x, weight, None)
        scale = self.scale((exact.square().mean(dim=-1, keepdim=True) + self.eps).sqrt())
        return (exact / scale * weight).to(x.dtype)


class PlainLayerNorm(Part):
    """LayerNorm without weight and bias.

    Tap: `scale`, the divisor sqrt(variance + eps), (batch, position, 1).
    """

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.d_model, self.eps = d_model, eps
        self.scale = Tap()

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The normalised vectors. Raises ValueError when the width is another than `d_model`."""
        if x.shape[-1] != self.d_model:
            raise ValueError(_misfit(self.d_model, x))
        if not self.scale.watched:
            return F.layer_norm(x, (self.d_model,), eps=self.eps)
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = exact - exact.mean(dim=-1, keepdim=True)
        scale = self.scale((centred.square().mean(dim=-1, keepdim=True) + self.eps).sqrt())
        return (centred / scale).to(x.dtype)


class HeadNorm(Part):
    """A norm of the queries or keys of each head, with weights of its own for every head.

    Tap: `norm.scale`, the divisors, (batch, head, position, 1).
    """

    def __init__(self, norm: nn.Module, n_heads: int, d_head: int) -> None:
        """Wrap a norm without weights of its own for vectors of width `d_head`."""
        super().__init__()
        self.norm = norm
        self.weight = nn.Parameter(torch.ones(n_heads, d_head))

    def forward(
        self, x: Float[Tensor, "batch head position d_head"]
    ) -> Float[Tensor, "batch head position d_head"]:
        """The normalised vectors, each head's stretched by its own weights."""
        normed: Tensor = self.norm(x) * self.weight[:, None]
        return normed


# Width, what is added to the variance, whether there is a bias, and the offset of the weight; the norm.
NORMS: dict[str, Callable[[int, float, bool, float], nn.Module]] = {
    "layer": lambda d, eps, bias, offset: LayerNorm(d, eps=eps, bias=bias),
    "rms": lambda d, eps, bias, offset: RMSNorm(d, eps=eps, offset=offset),
    "layer_plain": lambda d, eps, bias, offset: PlainLayerNorm(d, eps=eps),
    "none": lambda d, eps, bias, offset: nn.Identity(),
}


def make_norm(
    name: str, d_model: int, *, eps: float = 1e-5, bias: bool = True, offset: float = 0.0
) -> nn.Module:
    """The norm of that name.

    Args:
        name: one of `NORMS`: 'layer', 'rms', 'layer_plain', 'none', or what was added there.
        d_model: width of the vectors.
        eps: added to the variance or mean square.
        bias: whether a LayerNorm has a bias.
        offset: what is added to the stored weight of an RMSNorm before it is used.

    Raises:
        ValueError: when the name is another one.
    """
    if name not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)}; got {name!r}")
    return NORMS[name](d_model, eps, bias, offset)


def _at_least_float32(
    x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same numbers in float32 where they come in half precision."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return x, weight, bias
    return x.float(), weight.float(), None if bias is None else bias.float()


def _as_wide_as(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The weights in float32, where they are float16 and the vectors are float32."""
    if weight.dtype != torch.float16 or x.dtype != torch.float32:
        return weight, bias
    return weight.float(), None if bias is None else bias.float()


def _check_width(x: Tensor, weight: Tensor) -> None:
    if x.shape[-1] != weight.shape[0]:
        raise ValueError(_misfit(len(weight), x))


def _misfit(width: int, x: Tensor) -> str:
    return f"this norm is for width d_model={width}, got shape {tuple(x.shape)}"
