"""Cross-attention as alignment: its weights, and how well its largest ones agree with the right alignment."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.internals.capture import capture
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, predict


@torch.no_grad()
def cross_patterns(model: Model, batch: Batch) -> Float[Tensor, "batch layer head query key"]:
    """The weights of cross-attention, of all layers and heads."""
    with capture(model, "decoder.blocks.*.cross_attention.pattern") as seen:
        predict(model, batch)
    return torch.stack(list(seen.values()), 1)


def alignment_scores(
    links: Int[Tensor, "batch layer head position"],
    gold: Int[Tensor, "batch position"],
    words: Bool[Tensor, "batch position"],
) -> tuple[Float[Tensor, "layer head"], Float[Tensor, "layer head"]]:
    """How well links to source words agree with the right ones.

    Args:
        links: for each target position the source position that it is linked to.
        gold: the right one; -1 where there is none.
        words: which target positions hold words.

    Returns:
        the share of words with a right alignment whose link is right; and the alignment error rate: one minus
        twice the right links over all links (one a word) plus all right alignments.
    """
    has = (gold >= 0)[:, None, None]
    right = ((links == gold[:, None, None]) & has).sum((0, 3)).double()
    return right / has.sum(), 1 - 2 * right / (words.sum() + has.sum())
