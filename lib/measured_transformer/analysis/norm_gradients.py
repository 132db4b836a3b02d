"""How a gradient changes on its way down the stream, how unequal the blocks' are, and how to level them."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from measured_transformer.analysis.norm_arms import _blocks, _when_all_are_there
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model
from measured_transformer.training.losses import cross_entropy


def gradient_cosines(model: Decoder | Encoder, batch: Batch) -> Float[ndarray, "state"]:
    """Cosine between the loss's gradient at each state of the stream and that at the last one, embedding first.

    Both are taken over all tokens and entries at once. States: what enters each block, what leaves the last.
    """
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(model.config.n_layers))]
    with torch.enable_grad(), capture(model, *names, gradients=True) as seen:
        loss = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
        gradients = torch.autograd.grad(loss, [seen[name] for name in names])
    flat = torch.stack([gradient.flatten() for gradient in gradients]).double()
    cosines: ndarray = torch.cosine_similarity(flat, flat[-1:], dim=1).cpu().numpy()
    return cosines


def first_gradients(model: Decoder | Encoder, batch: Batch) -> dict[str, Float[ndarray, "at"]]:
    """The length of each parameter's gradient on one batch, in the form of `norm_arms.gradient_lengths`.

    The model is left without gradients.
    """
    model.zero_grad()
    with torch.enable_grad():
        cross_entropy(model(batch.inputs), batch.targets, batch.scored).backward()
    named = model.named_parameters()
    found = {n: np.array([float(w.grad.norm())]) for n, w in named if w.grad is not None}
    model.zero_grad()
    return found


def spread(lengths: Float[ndarray, "*at block"]) -> Float[ndarray, "*at"]:
    """The longest block's gradient over the shortest one's.

    Raises:
        ValueError: when a block has no gradient at all, so that there is no ratio.
    """
    if not (np.asarray(lengths) > 0).all():
        raise ValueError(f"expected gradients in every block, got lengths {lengths}")
    ratio: ndarray = lengths.max(-1) / lengths.min(-1)
    return ratio


def equal_by_kind(model: Model) -> None:
    """Before each step, make the gradient of every weight and bias as long in one block as in all others.

    The query weights of all blocks get the geometric mean of their lengths, so do the key weights, and so on
    for each parameter of a block by its name. `norm_arms.equal_gradients` is coarser: it leaves the lengths
    *within* a block as they stand to one another. A parameter whose gradient is zero in some block stays.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    named = [dict(block.named_parameters()) for block in _blocks(model)]

    def equalise(_: Tensor) -> None:
        for name in named[0]:
            found = [block[name].grad for block in named]
            gradients = [gradient for gradient in found if gradient is not None]
            lengths = [float(gradient.norm()) for gradient in gradients]
            if min(lengths) > 0 and all(map(math.isfinite, lengths)):
                mean = math.exp(math.fsum(map(math.log, lengths)) / len(lengths))
                for gradient, length in zip(gradients, lengths, strict=True):
                    gradient.mul_(mean / length)

    _when_all_are_there(model, equalise)


def share_closed(
    slow: Float[ndarray, "run"], mended: Float[ndarray, "run"], fast: Float[ndarray, "run"]
) -> Float[ndarray, "run"]:
    """The share of the gap between a slow and a fast arm that a remedy of the slow one closes, run by run.

    Args:
        slow, mended, fast: logarithms of steps, run by run from the same seeds.

    Returns:
        what the remedy gained in each run, over the mean gap: 0 for no help, 1 for all of the gap.

    Raises:
        ValueError: when the slow arm is not slower on average: there is no gap to close.
    """
    gap = float(np.mean(slow - fast))
    if gap <= 0:
        raise ValueError(f"expected the slow arm to be slower on average, got a gap of {gap:.3g}")
    closed: ndarray = (slow - mended) / gap
    return closed
