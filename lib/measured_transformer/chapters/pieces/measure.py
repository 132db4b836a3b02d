"""A Transformer without one kind of its pieces: what it can reach at best, and what a trained one loses.

Leaving a piece *out* (`left_out`) and taking it *away* answer two questions. A model that is built without
attention has its whole training to find another way; one that loses its attention after training has none. The
first asks whether a task needs the piece, the second whether this trained model uses it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from measured_transformer.analysis.ablation import Component, How, effects
from measured_transformer.analysis.ablation import loss as mean_loss
from measured_transformer.analysis.residual import ledger
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.tasks.text import TextLM

# What is the best without attention? --------------------------------------------------------------


def lonely_loss(task: Task) -> float:
    """Smallest expected loss, in nats, of a model whose positions never look at one another.

    Each position knows its own token and its own number, and nothing else. In reversal the middle position
    of an odd length knows its answer; every other answer is a fresh draw. In associative recall no key tells
    its value. In text the token before is all there is: see `bigram_loss`.

    Raises:
        ValueError: for another task.

    >>> round(lonely_loss(Reversal(vocab=6, length=6)), 3)
    1.792
    """
    match task:
        case Reversal():
            return (1 - task.length % 2 / task.length) * float(np.log(task.vocab))
        case AssociativeRecall():
            return task.blind_loss()
        case TextLM():
            return bigram_loss(task.tokens(), task.vocab)
    raise ValueError(
        f"expected Reversal, AssociativeRecall or TextLM, got {type(task).__name__}: its loss is not known"
    )


def bigram_loss(tokens: Int[Tensor, "token"], vocab: int) -> float:
    """Conditional entropy of a token given the one before it, in nats, by the counts of this text.

    No predictor that sees one token at a time does better on this very text.

    Raises:
        ValueError: for fewer than two tokens.

    >>> bigram_loss(torch.tensor([0, 1, 0, 1, 0]), 2)
    0.0
    """
    if len(tokens) < 2:
        raise ValueError(f"expected at least two tokens, got {len(tokens)}")
    pairs = torch.bincount(tokens[:-1] * vocab + tokens[1:], minlength=vocab**2).double()
    pairs = pairs.view(vocab, vocab)
    before = pairs.sum(1, keepdim=True)
    costs = torch.where(pairs > 0, -pairs * (pairs / before).log(), torch.zeros_like(pairs))
    return max(0.0, float(costs.sum() / pairs.sum()))


# Taken away after training ------------------------------------------------------------------------


def rises_when_taken(
    model: Decoder | Encoder,
    batch: Batch,
    reference: Batch,
    *,
    part: str,
    how: How = "mean",
) -> Float[ndarray, "layer_or_all"]:
    """How far a trained model's loss rises when a sublayer's writes are replaced; last entry: in all layers.

    Args:
        model: trained, with all its sublayers.
        batch: what the loss is measured on.
        reference: other sequences, whose writes are averaged position by position.
        part: `attention` or `feedforward`.
        how: as in `ablation.ablated`.

    Raises:
        ValueError: when the part is another one.
    """
    if part not in ("attention", "feedforward"):
        raise ValueError(f"part must be 'attention' or 'feedforward', got {part!r}")
    layers = [Component(f"blocks.{i}.{part}.out") for i in range(model.config.n_layers)]
    return effects(model, [*layers, layers], batch, how=how, reference=reference, metric=mean_loss)


# Width and the size of writes ---------------------------------------------------------------------


def parameter_ratio(model: Stack) -> float:
    """Parameters of a block's feed-forward network over those of its attention, biases included.

    Raises:
        ValueError: when the layers are no blocks.
    """
    block = model.blocks[0]
    if not isinstance(block, Block):
        raise ValueError(
            f"expected a model of blocks, got {type(block).__name__} as its first layer"
        )
    network, attention = (
        sum(weight.numel() for weight in one.parameters())
        for one in (block.feedforward, block.attention)
    )
    return network / attention


def log_writes(
    model: Stack, tokens: Int[Tensor, "batch position"]
) -> tuple[Float[ndarray, "block"], Float[ndarray, "block"]]:
    """Logarithm of the mean length of what attention writes, and of what the feed-forward network writes."""
    lengths = (
        ledger(model, tokens).writes.norm(dim=-1).mean(dim=(1, 2)).log().double().cpu().numpy()
    )
    return lengths[::2], lengths[1::2]


def fitted_slope(x: Sequence[float], y: Float[ndarray, "point"]) -> float:
    """Slope of the straight line through points, by least squares.

    Raises:
        ValueError: for fewer than two different x.

    >>> round(fitted_slope([0.0, 1.0, 2.0], np.array([1.0, 3.0, 5.0])), 6)
    2.0
    """
    if len(set(x)) < 2:
        raise ValueError(f"expected at least two different x, got {list(x)}")
    return float(np.polyfit(x, y, 1)[0])


def expected_write(widths: Float[ndarray, "width"]) -> Float[ndarray, "width"]:
    r"""Size of a fresh ReLU network's write, for entries of size one at its entrance: $\sqrt{2r/(1+r)^2}$.

    With Xavier weights, whose variance is $2/(n_{in} + n_{out})$, and $r$ neurons for each entry of the stream.
    The same for $r$ and for $1/r$.

    >>> expected_write(np.array([0.25, 1.0, 4.0])).round(3).tolist()
    [0.566, 0.707, 0.566]
    """
    sizes: ndarray = np.sqrt(2 * widths) / (1 + widths)
    return sizes
