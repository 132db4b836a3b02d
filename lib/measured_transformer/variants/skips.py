"""Blocks that keep the skip connection of one of their two sublayers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.training.loop import Model

Around = Literal["attention", "feedforward"]
"""The sublayer whose skip connection stays."""


class OneSkipBlock(Block):
    """A pre-norm block in which the stream passes one sublayer, and the other one replaces it."""

    def __init__(self, block: Block, around: Around) -> None:
        """Take over the parts of a block.

        Raises:
            ValueError: when the block is not pre-norm, has cross-attention or no skip connections.
        """
        if block.placement != "pre" or block.cross_attention is not None or not block.residual:
            raise ValueError(
                "expected a pre-norm block of self-attention with skip connections, got "
                f"placement={block.placement!r} and residual={block.residual}"
            )
        super().__init__(
            block.attention, block.feedforward, block.attention_norm, block.feedforward_norm
        )
        self.around = around

    def _add(self, norm: nn.Module, x: Tensor, branch: Tensor) -> Tensor:
        kept = self.attention_norm if self.around == "attention" else self.feedforward_norm
        return x + branch if norm is kept else branch


@dataclass(frozen=True)
class OneSkip:
    """Leave each block of a fresh model the skip connection around one sublayer; to be given as `prepare`."""

    around: Around

    def __call__(self, model: Model) -> None:
        """Change the model in place; its weights stay.

        Raises:
            ValueError: for an `EncoderDecoder`, or blocks that `OneSkipBlock` does not take.
        """
        if not isinstance(model, Stack):
            raise ValueError(f"expected a model of one stack, got {type(model).__name__}")
        for place, block in enumerate(model.blocks):
            assert isinstance(block, Block)
            model.blocks[place] = OneSkipBlock(block, self.around)
