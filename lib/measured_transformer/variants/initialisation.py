"""Fresh weights other than a model's own: preparations for training that scale them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.training.loop import Model

WriteRule = Literal["gpt2", "depth-index"]
"""How the deviation of the matrices that write to the stream follows from depth, see `write_deviation`."""


def write_deviation(layer: int, n_layers: int, rule: WriteRule, *, base: float = 0.02) -> float:
    """Standard deviation of fresh weights that write to the stream, in layer 1 to `n_layers`.

    'gpt2' divides by the root of the number of writes, 2 a layer (Radford et al. 2019, section 2.3): the same
    for all layers. 'depth-index' divides by the root of the layer's own number (Zhang et al. 2019).

    >>> [round(write_deviation(layer, 4, "depth-index"), 4) for layer in (1, 2, 3, 4)]
    [0.02, 0.0141, 0.0115, 0.01]

    Raises:
        ValueError: when there is no such layer or rule.
    """
    if not 1 <= layer <= n_layers:
        raise ValueError(f"expected a layer from 1 to {n_layers}, got {layer}")
    if rule not in get_args(WriteRule):
        raise ValueError(f"rule must be one of {', '.join(get_args(WriteRule))}, got {rule!r}")
    return base / math.sqrt(2 * n_layers if rule == "gpt2" else layer)


@dataclass(frozen=True)
class Scaled:
    """Preparation for training: all weight matrices of the blocks are multiplied by a factor.

    Embeddings, norms and the unembedding stay as they are.

    Attributes:
        factor: what the matrices are multiplied by.
    """

    factor: float

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Multiply the matrices of the model."""
        for name, weight in model.named_parameters():
            if "blocks." in name and weight.ndim == 2:
                weight.mul_(self.factor)


@dataclass(frozen=True)
class ScaledWrites:
    """Preparation for training: the matrices that write to the stream are scaled by a `WriteRule`.

    These are attention's output projection and the feed-forward network's second matrix.

    Attributes:
        rule: 'gpt2' or 'depth-index', see `write_deviation`.
    """

    rule: WriteRule

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Scale the matrices of the model."""
        for name, weight in model.named_parameters():
            if name.endswith(("attention.output.weight", "feedforward.down.weight")):
                layer = int(name.partition("blocks.")[2].partition(".")[0]) + 1
                weight.mul_(write_deviation(layer, model.config.n_layers, self.rule, base=1.0))


@dataclass(frozen=True)
class BranchFactor:
    r"""Multiply every matrix that writes to the stream, and its bias, by one factor before the first step.

    These are attention's output projection and the feed-forward network's second map. A fresh branch is linear
    in them, so the block begins as $x + f\,F(x)$; training then changes the weights as it likes.

    Attributes:
        factor: what they are multiplied by; 1 changes nothing, 0 makes blocks that begin by doing nothing.

    Raises:
        ValueError: when the factor is negative or not finite.
    """

    factor: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor >= 0):
            raise ValueError(f"factor must be finite and not negative, got {self.factor}")

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Multiply the matrices of the model.

        Raises:
            ValueError: for an `EncoderDecoder`.
        """
        if not isinstance(model, Stack):
            raise ValueError(f"expected an Encoder or a Decoder, got an {type(model).__name__}")
        for block in model.blocks:
            if isinstance(block, Block):
                for writer in (block.attention.output, block.feedforward.down):
                    for weight in writer.parameters():
                        weight.mul_(self.factor)
