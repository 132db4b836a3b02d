"""A preparation for training that multiplies what branches write at first.

It has a file to itself because rates that were tuned with it stay good as long as it does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.training.loop import Model


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
