"""Attention whose scores move otherwise or not at all, and attention whose projections are shared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model


class LearnedScale(nn.Module):
    """A projection whose result is multiplied by one learned number, at first 1.

    The number is kept as a logarithm, so that it stays positive, and the logarithm moves ten times as far as
    another weight would: Adam's steps are as long for every weight, and this one has far to go.
    """

    stride = 10.0

    def __init__(self, projection: nn.Module) -> None:
        """Wrap a projection."""
        super().__init__()
        self.projection = projection
        self.log_scale = nn.Parameter(torch.zeros(()))

    @property
    def factor(self) -> Tensor:
        """The learned number."""
        return (self.stride * self.log_scale).exp()

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Project, then multiply."""
        scaled: Tensor = self.factor * self.projection(x)
        return scaled


def learn_scale(model: Model) -> None:
    """Let every attention sublayer learn its scale, in place, starting from the config's.

    Made to be given to `train` as its `prepare`. The queries carry the learned number, so that scores do.
    """
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            module.query = LearnedScale(module.query)  # type: ignore[assignment]


@dataclass(frozen=True)
class RescaledScores:
    """Fresh scores times a factor, its root in the queries' and its root in the keys' weights.

    The model starts as if its scale were multiplied by the factor, but its weights move as before: how scores
    *start* comes apart from how far they *move* in a step. Made to be given to `train` as its `prepare`.

    Attributes:
        factor: on the scores, positive.

    Raises:
        ValueError: when the factor is not positive.
    """

    factor: float

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise ValueError(f"the factor on scores must be positive, got {self.factor}")

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Multiply the weights, in place."""
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                for parameter in (*module.query.parameters(), *module.key.parameters()):
                    parameter.mul_(math.sqrt(self.factor))


@dataclass(frozen=True)
class FrozenScores:
    """Preparation for training: the query and key projections of all attention layers keep their random values.

    Everything else learns, the values and output projections among it. What a head attends to can then only
    change as far as what reaches its queries and keys changes.
    """

    def __call__(self, model: Model) -> None:
        """Take the projections of the model out of training."""
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.query.requires_grad_(False)
                module.key.requires_grad_(False)


@dataclass(frozen=True)
class CutScores:
    """Preparation for training: no gradient passes the attention scores.

    Then nothing learns from where attention went, neither queries and keys nor what they are made of. The
    scores themselves are computed as ever.
    """

    def __call__(self, model: Model) -> None:
        """Let the scores of all attention layers pass as constants, from now on."""
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.scores = _Cut()


class _Cut(Tap):
    """A tap that passes its value on as a constant."""

    @property
    def watched(self) -> bool:
        """Always: the scores must be computed for it to cut them off."""
        return True

    def __call__(self, value: Tensor) -> Tensor:
        return super().__call__(value.detach())


Tie = Literal["none", "qk", "kv", "qkv"]
"""Which projections are one: none, queries and keys, keys and values, or all three."""


@dataclass(frozen=True)
class Tied:
    """Preparation for training: the projections named are one and the same in every attention layer.

    Attributes:
        tie: 'qk', 'kv', 'qkv' or 'none'.

    >>> from measured_transformer.models.encoder import Encoder
    >>> model = Encoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
    >>> Tied("qk")(model)
    >>> model.blocks[0].attention.key is model.blocks[0].attention.query
    True

    Raises:
        ValueError: when there is no such tie.
    """

    tie: Tie

    def __post_init__(self) -> None:
        if self.tie not in get_args(Tie):
            raise ValueError(f"tie must be one of {', '.join(get_args(Tie))}, got {self.tie!r}")

    def __call__(self, model: Model) -> None:
        """Replace the projections of the model.

        Raises:
            ValueError: when queries shall share with keys of which there are fewer heads.
        """
        for layer in model.modules():
            if not isinstance(layer, MultiHeadAttention):
                continue
            if "q" in self.tie and layer.n_kv_heads != layer.n_heads:
                raise ValueError(
                    "queries can share a projection only with as many key heads, got "
                    f"n_heads={layer.n_heads} and n_kv_heads={layer.n_kv_heads}"
                )
            if self.tie in ("qk", "qkv"):
                layer.key = layer.query
            if self.tie in ("kv", "qkv"):
                layer.value = layer.key


def same_size(config: Config, tie: Tie) -> Config:
    """The config whose tied model has as many weights as the free one of `config`, as nearly as neurons allow.

    What the shared projections save is given to the feed-forward networks.

    Raises:
        ValueError: when there is no such tie.

    >>> same_size(Config(vocab=4, d_model=32), "qkv").neurons
    160
    """
    saved = {"none": 0, "qk": 1, "kv": 1, "qkv": 2}[Tied(tie).tie]
    d, inner = config.d_model, config.n_heads * config.head_width
    weights = saved * (d + config.attention_has_bias) * inner
    neuron = 2 * d + config.ffn_has_bias
    return config.replace(d_ff=config.neurons + round(weights / neuron))
