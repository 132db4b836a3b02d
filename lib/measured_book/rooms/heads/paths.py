"""What two heads do together: how far their effects add up, and through which input one reads the other."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.block import Block
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.losses import cross_entropy
from torch import Tensor

from measured_book.rooms.heads.algebra import Which

# What two heads do together -------------------------------------------------------------------------


@dataclass(frozen=True)
class PairEffects:
    """What removing heads does to a model's loss, one at a time and two at a time.

    Attributes:
        heads: (layer, head) of each.
        pairs: the numbers, in `heads`, of the two of each pair.
        single: rise of the loss without one head, in nats.
        joint: rise of the loss without both heads of a pair.
    """

    heads: Int[np.ndarray, "head 2"]
    pairs: Int[np.ndarray, "pair 2"]
    single: Float[np.ndarray, "head"]
    joint: Float[np.ndarray, "pair"]

    @property
    def interaction(self) -> Float[np.ndarray, "pair"]:
        """What the joint effect has beyond the sum of the two single ones; independent heads have none."""
        return self.joint - self.single[self.pairs].sum(axis=1)

    @property
    def same_layer(self) -> Which:
        """Which pairs stand in one layer."""
        layers = self.heads[self.pairs, 0]
        same: Which = layers[:, 0] == layers[:, 1]
        return same

    def share(self, chosen: Which) -> float:
        """Sizes of the interactions over sizes of the joint effects, both summed over the chosen pairs.

        Raises:
            ValueError: when the chosen pairs have no effect at all.
        """
        size = float(np.abs(self.joint[chosen]).sum())
        if size == 0:
            raise ValueError("the chosen pairs have no joint effect that could be taken apart")
        return float(np.abs(self.interaction[chosen]).sum()) / size


@torch.no_grad()
def pair_effects(model: Model, batch: Batch) -> PairEffects:
    """Remove each head and each pair of heads of a decoder or encoder and see what the loss does.

    A head is removed by setting what it mixed to zero, so that it writes nothing.

    Args:
        model: in evaluation mode.
        batch: what the loss is computed on.

    Raises:
        KeyError: when the model is an encoder-decoder, whose blocks have other names.
    """
    with capture(model, "blocks.*.attention.mixed", transform=lambda mixed: mixed[:1]) as seen:
        predict(model, batch)
    counts = [mixed.shape[1] for mixed in seen.values()]
    heads = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]

    def loss(*removed: tuple[int, int]) -> float:
        changes = {}
        for layer in {layer for layer, _ in removed}:
            these = [head for at_layer, head in removed if at_layer == layer]
            changes[f"blocks.{layer}.attention.mixed"] = at(0.0, heads=these)
        with intervene(model, changes):
            logits = predict(model, batch).double()
        return cross_entropy(logits, batch.targets, batch.scored).item()

    whole = loss()
    pairs = list(itertools.combinations(range(len(heads)), 2))
    return PairEffects(
        np.array(heads),
        np.array(pairs),
        np.array([loss(head) - whole for head in heads]),
        np.array([loss(heads[a], heads[b]) - whole for a, b in pairs]),
    )


# Induction ------------------------------------------------------------------------------------------


Path = Literal["q", "k", "v", "all", "direct"]
PATHS: tuple[Path, ...] = ("q", "k", "v", "all", "direct")
"""The ways from a first layer's heads: to what the second layer reads for its queries, keys, values, to all
three, and past the second layer to the logits."""
_TAPS = {"q": ("queries", "query"), "k": ("keys", "key"), "v": ("values", "value")}


@torch.no_grad()
def patched(model: Model, batch: Batch, path: Path) -> Float[Tensor, "batch position vocab"]:
    """Logits when over one path the first layer's heads bring what they wrote on another sequence.

    All other paths stay as they are. The other sequence is the next one of the batch, so that what is common to
    all sequences, such as the place, goes on arriving.

    Args:
        model: two blocks of attention alone, with norms before it.
        batch: of at least two sequences.
        path: the way that is cut.

    Raises:
        ValueError: for another number of blocks, or a batch of one.
    """
    if len(model.blocks) != 2 or len(batch.inputs) < 2:  # type: ignore[arg-type]
        raise ValueError(
            f"expected two blocks and two sequences, got {len(model.blocks)} "  # type: ignore[arg-type]
            f"and {len(batch.inputs)}"
        )
    with capture(model, "blocks.0.attention.out", "blocks.1.residual_pre") as seen:
        predict(model, batch)
    wrote, stream = seen["blocks.0.attention.out"], seen["blocks.1.residual_pre"]
    other = wrote.roll(1, dims=0) - wrote
    if path == "direct":
        with intervene(model, {"blocks.1.residual_post": lambda x: x + other}):
            return predict(model, batch)
    block = cast(Block, model.blocks[1])  # type: ignore[index]
    read = block.attention_norm(stream + other)
    changes = {}
    for each in _TAPS if path == "all" else (path,):
        tap, projection = _TAPS[each]
        whole = block.attention.get_submodule(projection)(read)
        heads = whole.unflatten(-1, (-1, block.attention.d_head)).transpose(1, 2)
        changes[f"blocks.1.attention.{tap}"] = heads
    with intervene(model, changes):
        return predict(model, batch)


def right(logits: Float[Tensor, "batch position vocab"], batch: Batch) -> float:
    """Share of the scored positions with the right answer."""
    found = (logits.argmax(-1) == batch.targets)[batch.scored]
    return float(found.double().mean())
