"""What all measurements of this chapter share: draws of texts, and a control that has learned nothing."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import cast

import torch
from jaxtyping import Float, Int
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.block import Block
from measured_transformer.parts.norms import RMSNorm
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.smollm2.model import smollm2
from measured_book.smollm2.texts import KINDS, draw

BLOCKS = tuple(range(1, 31))
HEADS = tuple(range(9))
STATES = (0, *BLOCKS)
ARMS = ("trained", "untrained")
WRITERS = ("attention", "network")
MORE, FRESH = 30, 1000
"""Draws of what ten draws left undecided, and what is added to a seed: draws that nobody had looked at."""
PARTS = {"attention": "attention", "network": "feedforward"}
"""A writer -> its name in a block."""
Patterns = Float[Tensor, "text head query key"]
DEVIATION = 1 / 24
"""Of the weights that training begins with, which is one over the root of the width."""


def texts(seed: int, each: int, tokens: int) -> Int[Tensor, "text position"]:
    """So many texts of the reference, then as many of the book."""
    return torch.cat([draw(seed, kind, each, tokens) for kind in KINDS])


def number_of(seed: int) -> int:
    """Which draw a seed is, from 0: the last digit of a seed names its stream."""
    return seed // 10


@cache
@torch.no_grad()
def untrained() -> Decoder:
    """The architecture with weights drawn anew, once for all draws of texts: gains of norms are one."""
    other, draws = deepcopy(smollm2().model), make_generator(0, "untrained SmolLM2")
    for parameter in other.parameters():
        if parameter.ndim > 1:
            parameter.copy_(DEVIATION * torch.randn(parameter.shape, generator=draws))
        else:
            parameter.fill_(1.0)
    return other.eval().requires_grad_(False)


def model_of(arm: str) -> Decoder:
    """The model itself, or the one that has learned nothing."""
    return smollm2().model if arm == "trained" else untrained()


@torch.no_grad()
def patterns_of(model: Decoder, tokens: Int[Tensor, "text position"]) -> list[Patterns]:
    """The patterns of each block, in double precision."""
    with capture(model, "blocks.*.attention.pattern") as seen:
        model.stream(tokens)
    return [seen[f"blocks.{i}.attention.pattern"].double() for i in range(len(model.blocks))]


def unembedding(model: Decoder) -> Float[Tensor, "vocab d_model"]:
    """The matrix from final states to logits."""
    assert model.unembedding is not None
    return model.unembedding.weight


def gains(model: Decoder) -> Float[Tensor, "d_model"]:
    """The weights of the final norm."""
    assert isinstance(model.final_norm, RMSNorm)
    return model.final_norm.weight


def written_by(model: Decoder, block: int) -> Float[Tensor, "d_model neuron"]:
    """The values of the neurons of a block, a column each."""
    network = cast(Block, model.blocks[block]).feedforward
    return network.down.weight


def ranks_agree(first: Float[Tensor, "n"], second: Float[Tensor, "n"]) -> float:
    """Spearman's rank correlation, to twelve digits.

    >>> ranks_agree(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([3.0, 4.0, 5.0]))
    1.0
    """
    from scipy.stats import spearmanr

    return round(float(spearmanr(first.double().numpy(), second.double().numpy()).statistic), 12)
