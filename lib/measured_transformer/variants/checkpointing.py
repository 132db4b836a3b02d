"""Gradient checkpointing: a block keeps its input alone, and computes the rest again when gradients come back.

Source: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from measured_transformer.internals.replay import Replay
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.block import Block
from measured_transformer.training.loop import Model


class CheckpointedBlock(Block):
    """A block that runs a second time in the backward pass, with the same dropout and the same watchers."""

    same_dropout = True
    computes_as = Block  # what an export may take it for

    def forward(self, x: Tensor, memory: Tensor | None = None, **how: Any) -> Tensor:
        """The stream after this layer, see `Block.forward`."""
        if not torch.is_grad_enabled() or how.get("cache") is not None:
            return super().forward(x, memory, **how)
        replay = Replay(self)
        plain, runs = super().forward, 0

        def run(*given: Any, **how: Any) -> Tensor:
            nonlocal runs
            runs += 1
            with replay.first() if runs == 1 else replay.again():
                return plain(*given, **how)

        found: Tensor = checkpoint(
            run, x, memory, use_reentrant=False, preserve_rng_state=self.same_dropout, **how
        )
        return found


@dataclass(frozen=True)
class Checkpointed:
    """Preparation for training: every so many blocks is run again in the backward pass.

    Attributes:
        every: 1 for each block, 2 for every second, and so on.
        same_dropout: whether the second run drops what the first has dropped. Without it gradients are wrong,
            which is good for seeing a test fail.

    Raises:
        ValueError: when `every` is not positive.
    """

    every: int = 1
    same_dropout: bool = True

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"expected every to be at least 1, got {self.every}")

    def __call__(self, model: Model) -> None:
        """Change the blocks of a model; their weights stay the same tensors.

        Raises:
            ValueError: when the model is an encoder-decoder.
        """
        if isinstance(model, EncoderDecoder):
            raise ValueError("expected a Decoder or an Encoder, got an EncoderDecoder")
        for i, block in enumerate(model.blocks):
            if i % self.every == 0:
                assert type(block) in (Block, CheckpointedBlock)
                block.__class__ = CheckpointedBlock
                block.same_dropout = self.same_dropout  # type: ignore[assignment]


@contextmanager
def counting_saved() -> Iterator[dict[int, int]]:
    """While the block runs, collect the memory that is kept for gradients: address -> bytes, each once.

    Weights are tensors that are there in any case and count, too, where a step keeps them; see `saved_bytes`.
    """
    held: dict[int, int] = {}
    alive: list[Tensor] = []  # an address must not be given to another tensor meanwhile

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield held


def saved_bytes(model: Model, inputs: Tensor) -> int:
    """Bytes that a forward pass keeps for the backward pass, without the weights and the inputs."""
    with torch.enable_grad(), counting_saved() as held:
        loss = model(inputs).logsumexp(-1).mean()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    own.add(inputs.untyped_storage().data_ptr())
    del loss
    return sum(size for address, size in held.items() if address not in own)
