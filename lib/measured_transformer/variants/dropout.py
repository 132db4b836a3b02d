"""Dropout in another place: after the addition to the stream."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.parts.block import Block

# Dropout behind the addition ----------------------------------------------------------------------


class _DropBehind(Block):
    """A block that drops entries of the stream itself, after a write has been added to it."""

    def _add(self, norm: nn.Module, x: Tensor, branch: Tensor) -> Tensor:
        total = x + branch if self.residual else branch
        if self.training and self.dropout:
            total = F.dropout(total, self.dropout)
        return norm(total) if self.placement == "post" else total


def drop_behind(model: nn.Module) -> None:
    """Move the dropout of every block from before the addition to after it; for `train(prepare=...)`."""
    for module in model.modules():
        if isinstance(module, Block):
            module.__class__ = _DropBehind
